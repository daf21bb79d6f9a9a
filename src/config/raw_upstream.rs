//! Upstreams as they are written.

use super::forms::{RawBalance, RawCount, RawServer};
use super::node::Node;
use super::raw::RawText;
use super::read::{At, Later, Read, entries, mapping, not_available, unknown_key};
use super::report::{Place, Report};

mapping! {
    /// An API behind the gateway.
    "an upstream"
    struct RawUpstream {
        /// Its servers: http://HOST:PORT, or {url: …, weight: N}.
        #[schemars(required)]
        servers: Vec<RawServer>,
        /// How requests are spread: round_robin (default).
        balance: RawBalance,
        /// How long to wait for it.
        timeouts: RawTimeouts,
        /// The protocol spoken to it: http1.
        #[schemars(extend("enum" = ["http1"]))]
        protocol: RawText,
        #[schemars(skip)]
        health: Later,
        #[schemars(skip)]
        retries: Later,
    }
}

mapping! {
    /// A server of an upstream.
    "a server"
    struct RawServerFields {
        /// http://HOST:PORT
        #[schemars(required)]
        url: RawText,
        /// Its share of the requests. Default: 1.
        weight: RawCount,
    }
}

mapping! {
    /// How long to wait for an upstream.
    "timeouts"
    struct RawTimeouts {
        /// For a connection. Default: 1s.
        connect: RawText,
        /// For the head of its answer, once the request is sent. Default: 30s.
        response: RawText,
        /// For the next bytes of its answer, and for the next request on a kept connection. Default: 60s.
        idle: RawText,
        /// For the next bytes of an upgraded connection, such as a WebSocket, in either direction. Default: 1h.
        tunnel: RawText,
    }
}
