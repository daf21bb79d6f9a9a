//! The edge as it is written: addresses, operators, and who the client is.

use super::forms::{RawCount, RawSecret};
use super::node::Node;
use super::raw::RawText;
use super::read::{At, Later, Read, entries, mapping, not_available, unknown_key};
use super::report::{Place, Report};

mapping! {
    /// An address that serves clients.
    "a listener"
    struct RawListenerFields {
        /// A name that routes may ask for: `match: {listener: NAME}`. Default: the address.
        name: RawText,
        /// HOST:PORT, such as 0.0.0.0:8080 or [::]:8080.
        #[schemars(required)]
        address: RawText,
        #[schemars(skip)]
        tls: Later,
        #[schemars(skip)]
        proxy_protocol: Later,
    }
}

mapping! {
    /// The address for operators.
    "admin"
    struct RawAdmin {
        /// HOST:PORT; keep it on the loopback address.
        #[schemars(required)]
        address: RawText,
        /// What changes need, as `Authorization: Bearer …`. Empty: the API is read-only.
        token: RawSecret,
    }
}

mapping! {
    /// Who the client is when proxies stand before the gateway.
    "client_ip"
    struct RawClientIp {
        /// The only peers that are believed: addresses and networks.
        trusted_proxies: Vec<At<RawText>>,
        /// The header they write: x-forwarded-for (default), forwarded or x-real-ip.
        #[schemars(extend("enum" = ["x-forwarded-for", "forwarded", "x-real-ip"]))]
        header: RawText,
        /// Bits of an IPv6 address that make one client. Default: 64.
        ipv6_prefix: RawCount,
    }
}

mapping! {
    /// How long to wait for clients.
    "timeouts"
    struct RawClientTimeouts {
        /// From a connection to its first byte, and from the first byte of a head to its last. Default: 10s.
        head: RawText,
        /// For the next bytes of a body. Default: 30s.
        body: RawText,
        /// Between two requests of a connection. Default: 75s.
        idle: RawText,
        /// For a client to take any of an answer. Default: 60s.
        write: RawText,
        /// From a request's head to the last byte of its answer. Default: no bound.
        request: RawText,
    }
}
