//! Upstreams as they are written.

#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::raw_balance::{RawBalance, RawEjection, RawHealth};
use super::read::mapping;
use super::shorthand::{RawCount, RawRetries, RawServer};

mapping! {
    /// An API behind the gateway.
    "an upstream"
    struct RawUpstream {
        /// Its servers: http://HOST:PORT or https://HOST:PORT, or {url: …, weight: N}.
        #[schemars(required)]
        servers: Vec<RawServer>,
        /// How requests are spread: round_robin (default), least_requests, random, or {hash: KEY}.
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
        /// How often the names of servers are looked up. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        resolve: RawText,
        /// Asks every server whether it is well.
        health: RawHealth,
        /// Takes a server out for a while after failures in a row, or off.
        ejection: RawEjection,
        /// How often a request is tried on another server, where that is safe: a number, or a mapping. Default: 1.
        retries: RawRetries,
        /// Requests that one server has at once, of all workers together. Default: no bound.
        max_connections: RawCount,
        /// Requests that wait while all servers have as many as they may. Default: 100.
        max_pending: RawCount,
    }
}

mapping! {
    /// A server of an upstream.
    "a server"
    struct RawServerFields {
        /// http://HOST:PORT or https://HOST:PORT
        #[schemars(required, with = "hints::Server")]
        url: RawText,
        /// Its share of the requests. Default: 1.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000))]
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
        #[schemars(with = "Option<hints::Duration>")]
        connect: RawText,
        /// For the head of its answer, once the request is sent. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        response: RawText,
        /// For the next bytes of its answer, and for the next request on a kept connection. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        idle: RawText,
        /// For the next bytes of an upgraded connection, such as a WebSocket, in either direction. Default: 1h.
        #[schemars(with = "Option<hints::Duration>")]
        tunnel: RawText,
    }
}
