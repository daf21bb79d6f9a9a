//! Upstreams as they are written.

use crate::raw::balance::RawRetries;
use crate::raw::balance::{RawBalance, RawEjection, RawHealth};
use crate::raw::fair::RawFair;
#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::overload::RawOverload;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::{OneOrMany, mapping};

mapping! {
    /// An API behind the gateway.
    "an upstream"
    struct RawUpstream {
        /// The servers: http://HOST:PORT, https://HOST:PORT or unix:PATH, or {url: …, weight: N}.
        #[schemars(required)]
        servers: Vec<RawServer>,
        /// The load balancing algorithm: round_robin (default), least_requests, random, or {hash: KEY}.
        balance: RawBalance,
        /// Timeouts of the upstream.
        timeouts: RawTimeouts,
        /// The protocol of connections to the servers: http1 (default) or http2.
        #[schemars(extend("enum" = ["http1", "http2"]))]
        protocol: RawText,
        /// Certificates, for https:// servers only.
        tls: RawUpstreamTls,
        /// Sends the client's address at the beginning of each connection: version v1 (text) or v2 (binary) of the
        /// PROXY protocol.
        #[schemars(extend("enum" = ["v1", "v2"]))]
        proxy_protocol: RawText,
        /// The interval between two DNS lookups of the servers' names. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        resolve: RawText,
        /// Health checks of every server.
        health: RawHealth,
        /// Ejects a server for some time after consecutive failures, or off.
        ejection: RawEjection,
        /// How often a request is retried on another server, where that is safe: a number, or a mapping. Default: 1.
        retries: RawRetries,
        /// The maximum number of requests in flight per server, of all workers together. Default: no bound.
        max_connections: RawCount,
        /// The maximum number of requests that wait while all servers are at `max_connections`. Default: 100.
        max_pending: RawCount,
        /// The maximum size of a response head or of trailers; a larger one is answered 502. Default: 64KiB, or the top-level max_head
        /// if that is larger.
        #[schemars(with = "Option<hints::Size>")]
        max_head: RawText,
        /// The maximum number of header lines of a response; more are answered 502. Default: 1024.
        #[schemars(extend("minimum" = 10, "maximum" = 8_192))]
        max_headers: RawCount,
        /// Names of request headers that servers receive in the case given here; all others are in lower case. HTTP/1.1 only.
        #[schemars(with = "Option<OneOrMany<hints::Header>>")]
        header_case: OneOrMany<At<RawText>>,
        /// Protection from overload: who waits or is refused when there are too many requests. Default: none.
        overload: RawOverload,
        /// Divides what the upstream can handle fairly among consumers: those above their share wait behind the others.
        fair: RawFair,
    }
}

mapping! {
    /// A server of an upstream.
    "a server"
    struct RawServerFields {
        /// http://HOST:PORT, https://HOST:PORT, or unix:PATH for a Unix socket.
        #[schemars(required, with = "hints::Server")]
        url: RawText,
        /// The weight of the server in load balancing. Default: 1.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000))]
        weight: RawCount,
    }
}

mapping! {
    /// Certificates and keys for the connections to servers: PEM files, which are watched.
    "tls"
    struct RawUpstreamTls {
        /// The authorities that sign the certificates of the servers. Default: those of the system.
        ca: RawText,
        /// The gateway's client certificate, for servers that require one.
        cert: RawText,
        /// Its private key.
        key: RawText,
        /// The name that certificates must be valid for, and that is sent as SNI. Default: the host.
        server_name: RawText,
        /// Whether certificates are verified. Default: true.
        verify: bool,
    }
}

mapping! {
    /// How long to wait for an upstream.
    "timeouts"
    struct RawTimeouts {
        /// The timeout for establishing a connection. Default: 1s.
        #[schemars(with = "Option<hints::Duration>")]
        connect: RawText,
        /// The timeout for the head of the response after the request was sent. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        response: RawText,
        /// The timeout for the next bytes of a response. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        idle: RawText,
        /// How long a connection without a request is kept; a server that says `Keep-Alive: timeout=N` shortens it. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        keep_alive: RawText,
        /// The timeout for the next bytes of an upgraded connection, such as a WebSocket, in either direction.
        /// Default: 1h.
        #[schemars(with = "Option<hints::Duration>")]
        tunnel: RawText,
    }
}

crate::read::shorthand! {
    /// A server: a URL, or a mapping.
    RawServer(RawServerFields.url);
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawServer, "Server" => generator crate::raw::hints::text_or::<RawServerFields>(&crate::raw::hints::server(), generator);
}
