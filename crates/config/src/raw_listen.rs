//! The edge as it is written: addresses, operators, and who the client is.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{OneOrMany, mapping};
#[cfg(feature = "schema")]
use super::schema::Scalar;
use super::shorthand::{RawCount, RawProxy, RawSecret};

mapping! {
    /// An address that serves clients.
    "a listener"
    struct RawListenerFields {
        /// A name that routes may ask for: `match: {listener: NAME}`. Default: the address.
        name: RawText,
        /// HOST:PORT, such as 0.0.0.0:8080 or [::]:8080.
        #[schemars(required, with = "hints::Address")]
        address: RawText,
        /// Speak TLS. Without it, HTTP/1.1 and HTTP/2 are spoken in the clear.
        tls: RawTls,
        /// Connections begin with a PROXY header (v1 or v2) that names the client; one without is closed.
        proxy_protocol: bool,
        /// Connections at once. Default: 10k.
        max_connections: RawCount,
        /// Connections at once of one client address. Default: 1k, for clients of other machines.
        max_connections_per_ip: RawCount,
    }
}

mapping! {
    /// How a listener speaks TLS.
    "tls"
    struct RawTls {
        /// Certificates with their keys. The first is for clients that ask for no name that another has.
        #[schemars(required)]
        certificates: OneOrMany<RawCertificate>,
        /// A file of authorities: clients have to show a certificate of theirs.
        client_ca: RawText,
        /// required (default), or optional: also clients without a certificate are served.
        #[schemars(extend("enum" = ["required", "optional"]))]
        client_auth: RawText,
        /// The oldest version that is spoken: 1.2 (default) or 1.3.
        #[schemars(with = "Option<Scalar>")]
        min_version: RawText,
        /// The longest that a handshake may take. Default: 10s.
        #[schemars(with = "Option<hints::Duration>")]
        handshake_timeout: RawText,
    }
}

mapping! {
    /// A certificate and its key, two PEM files.
    "a certificate"
    struct RawCertificate {
        /// The certificate, and behind it those that lead to its authority.
        #[schemars(required)]
        cert: RawText,
        /// Its private key, without a passphrase.
        #[schemars(required)]
        key: RawText,
    }
}

mapping! {
    /// The address for operators.
    "admin"
    struct RawAdmin {
        /// HOST:PORT; keep it on the loopback address.
        #[schemars(required, with = "hints::Address")]
        address: RawText,
        /// What changes need, as `Authorization: Bearer …`. Empty: the API is read-only.
        token: RawSecret,
        /// Host names and addresses under which it answers, beside those of this machine and its own address.
        hosts: Vec<At<RawText>>,
    }
}

mapping! {
    /// Who the client is when proxies stand before the gateway.
    "client_ip"
    struct RawClientIp {
        /// The only peers that are believed: addresses, networks, lists (`list:NAME`), and files of them, {file: PATH}.
        trusted_proxies: Vec<RawProxy>,
        /// The header they write: x-forwarded-for (default), forwarded, x-real-ip, or another one that holds one address,
        /// such as CF-Connecting-IP, True-Client-IP or Fly-Client-IP.
        #[schemars(with = "Option<hints::Header>", extend("examples" = ["x-forwarded-for", "forwarded", "x-real-ip"]))]
        header: RawText,
        /// Bits of an IPv6 address that make one client. Default: 64.
        #[schemars(extend("minimum" = 1, "maximum" = 128))]
        ipv6_prefix: RawCount,
    }
}

mapping! {
    /// How long to wait for clients.
    "timeouts"
    struct RawClientTimeouts {
        /// From a connection to its first byte, and from the first byte of a head to its last. Default: 10s.
        #[schemars(with = "Option<hints::Duration>")]
        head: RawText,
        /// For the next bytes of a body. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        body: RawText,
        /// Between two requests of a connection. Default: 75s.
        #[schemars(with = "Option<hints::Duration>")]
        idle: RawText,
        /// For a client to take any of an answer. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        write: RawText,
        /// From a request's head to the last byte of its answer. Default: no bound.
        #[schemars(with = "Option<hints::Duration>")]
        request: RawText,
    }
}

mapping! {
    /// What happens between the signal to end and the end.
    "drain"
    struct RawDrainFields {
        /// How long connections are still taken in while /readyz already says 503. Default: 0s.
        #[schemars(with = "Option<hints::Duration>")]
        delay: RawText,
        /// How long it waits for requests in flight after that. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        deadline: RawText,
    }
}

mapping! {
    /// What one HTTP/2 connection may send of frames that cost their sender nothing, at once; who sends more is cut off.
    "h2"
    struct RawH2 {
        /// Requests that are taken back within 20 ms (CVE-2023-44487). Default: 40.
        resets: RawCount,
        /// Requests that the gateway has to reset for their mistakes (CVE-2025-8671). Default: 30.
        errors: RawCount,
        /// SETTINGS (CVE-2019-9515). Default: 20.
        settings: RawCount,
        /// PING (CVE-2019-9512). Default: 40.
        pings: RawCount,
        /// DATA with nothing in it (CVE-2019-9518). Default: 40.
        empty_data: RawCount,
        /// Heads that unpack to more than `max_head` (CVE-2016-6581). Default: 20.
        large_heads: RawCount,
        /// PRIORITY and PRIORITY_UPDATE (CVE-2019-9513). Default: 50.
        priorities: RawCount,
        /// WINDOW_UPDATE (CVE-2019-9511). Default: 60.
        window_updates: RawCount,
        /// GOAWAY and frames of unknown kinds. Default: 40.
        others: RawCount,
    }
}
