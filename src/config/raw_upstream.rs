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
        /// Its servers: http://HOST:PORT or https://HOST:PORT, or {url: …, weight: N}.
        #[schemars(required)]
        servers: Vec<RawServer>,
        /// How requests are spread: round_robin (default).
        balance: RawBalance,
        /// How long to wait for it.
        timeouts: RawTimeouts,
        /// The protocol spoken to it: http1 (default) or http2.
        #[schemars(extend("enum" = ["http1", "http2"]))]
        protocol: RawText,
        /// Certificates, for https:// servers only.
        tls: RawUpstreamTls,
        /// Each connection begins with the client's address: v1 (text) or v2 (binary) of the PROXY protocol.
        #[schemars(extend("enum" = ["v1", "v2"]))]
        proxy_protocol: RawText,
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
        /// http://HOST:PORT or https://HOST:PORT
        #[schemars(required)]
        url: RawText,
        /// Its share of the requests. Default: 1.
        weight: RawCount,
    }
}

mapping! {
    /// Certificates and keys for the connections to servers: PEM files, which are watched.
    "tls"
    struct RawUpstreamTls {
        /// The authorities that sign the servers' certificates. Default: those of the system.
        ca: RawText,
        /// The gateway's own certificate, where the servers ask for one.
        cert: RawText,
        /// Its private key.
        key: RawText,
        /// The name that the servers' certificates have to be for, and that servers are told. Default: the host.
        server_name: RawText,
        /// Whether certificates are verified. Default: true.
        verify: bool,
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
