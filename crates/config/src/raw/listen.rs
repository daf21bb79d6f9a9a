//! The edge as it is written: addresses, operators, and who the client is.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::lists::RawProxy;
use crate::raw::scalars::RawText;
use crate::raw::scalars::{RawCount, RawSecret};
#[cfg(feature = "schema")]
use crate::raw::schema_types::Scalar;
use crate::read::at::At;
use crate::read::{Named, OneOrMany, mapping};

mapping! {
    /// An address that serves clients.
    "a listener"
    struct RawListenerFields {
        /// A name for routes to match: `match: {listener: NAME}`. Default: the address.
        name: RawText,
        /// HOST:PORT, such as 0.0.0.0:8080 or [::]:8080, or unix:PATH for a Unix socket.
        #[schemars(required, with = "hints::ListenAddress")]
        address: RawText,
        /// TLS for this listener. Without it, HTTP/1.1 and HTTP/2 are accepted in plain text.
        tls: RawTls,
        /// Connections begin with a PROXY header (v1 or v2) that names the client; connections without it are closed.
        proxy_protocol: bool,
        /// The maximum number of open connections. Default: 10k.
        max_connections: RawCount,
        /// The maximum number of open connections per client address. Default: 1k, except for clients on this
        /// machine.
        max_connections_per_ip: RawCount,
        /// Decides on the requests of another proxy instead of serving clients: check (an HTTP request whose X-Forwarded
        /// headers describe that of the client: nginx, Traefik, Caddy, APISIX), ext_authz (Envoy, over gRPC), ext_authz_http
        /// (Envoy, over HTTP), rls (Envoy's rate limit service, by the limits of `rls`) or limitador (the services of limitador, by
        /// the limits of `limitador`).
        #[schemars(extend("enum" = ["check", "ext_authz", "ext_authz_http", "rls", "limitador"]))]
        serve: RawText,
        /// The addresses and networks of the proxies that may ask, since they name the client. Required with `serve`, unless
        /// `tls.client_ca` identifies them.
        #[schemars(with = "Option<Vec<hints::Network>>")]
        callers: Vec<At<RawText>>,
        /// With `serve: check` and the two kinds of ext_authz: the status of refusals, from 400 to 599, in place of their own.
        /// nginx accepts only 401 and 403.
        #[schemars(extend("minimum" = 400, "maximum" = 599))]
        deny_status: RawCount,
    }
}

mapping! {
    /// How a listener speaks TLS.
    "tls"
    struct RawTls {
        /// Certificates with their keys. The first is used for clients whose server name matches no other.
        #[schemars(required)]
        certificates: OneOrMany<RawCertificate>,
        /// A file of authorities that must have signed the certificates of clients.
        client_ca: RawText,
        /// required (default), or optional: clients without a certificate are served too.
        #[schemars(extend("enum" = ["required", "optional"]))]
        client_auth: RawText,
        /// The oldest accepted version: 1.2 (default) or 1.3.
        #[schemars(with = "Option<Scalar>")]
        min_version: RawText,
        /// The timeout of a handshake. Default: 10s.
        #[schemars(with = "Option<hints::Duration>")]
        handshake_timeout: RawText,
    }
}

mapping! {
    /// A certificate and its key, two PEM files.
    "a certificate"
    struct RawCertificate {
        /// The certificate, followed by the chain to its authority.
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
        /// The token that changes require, as `Authorization: Bearer …`. Without any token, the API is read-only.
        token: RawSecret,
        /// More tokens, by the name of who has them, each with what it allows.
        #[schemars(extend("propertyNames" = hints::names()))]
        tokens: Named<RawAdminToken>,
        /// Who may read: open (default, whoever reaches the address) or token (whoever has one; /healthz and /readyz stay
        /// open).
        #[schemars(extend("enum" = ["open", "token"]))]
        reads: RawText,
        /// Whether keys are shown with their secrets, such as API keys and cookies. Default: false, which shows digests.
        show_keys: bool,
        /// Additional host names and addresses that are accepted in Host.
        hosts: Vec<At<RawText>>,
    }
}

mapping! {
    /// A token of the admin API.
    "a token"
    struct RawAdminToken {
        /// The token.
        #[schemars(required)]
        token: RawSecret,
        /// What it allows: read, rules (also changes of rules) or all. Default: read.
        #[schemars(extend("enum" = ["read", "rules", "all"]))]
        role: RawText,
    }
}

mapping! {
    /// How the client address is determined behind proxies.
    "client_ip"
    struct RawClientIp {
        /// Trusted proxies: addresses, networks, lists (`list:NAME`), and files of them, {file: PATH}. The header of
        /// other peers is ignored.
        trusted_proxies: Vec<RawProxy>,
        /// The header in which proxies name the client: x-forwarded-for (default), forwarded, x-real-ip, or another
        /// one that contains one address, such as CF-Connecting-IP, True-Client-IP or Fly-Client-IP.
        #[schemars(with = "Option<hints::Header>", extend("examples" = ["x-forwarded-for", "forwarded", "x-real-ip"]))]
        header: RawText,
        /// How many proxies in a row are in front of the gateway, each of which adds its peer to the header: the client is
        /// this address of the list, counted from its end. Without trusted_proxies every peer is a proxy. Default: the
        /// last address that is not a trusted proxy.
        #[schemars(extend("minimum" = 1, "maximum" = 32))]
        depth: RawCount,
        /// The length of the IPv6 prefix that counts as one client. Default: 64.
        #[schemars(extend("minimum" = 1, "maximum" = 128))]
        ipv6_prefix: RawCount,
    }
}

mapping! {
    /// Timeouts of client connections.
    "timeouts"
    struct RawClientTimeouts {
        /// The time from a new connection to its first byte, and from the first byte of a head to the last. Default:
        /// 10s.
        #[schemars(with = "Option<hints::Duration>")]
        head: RawText,
        /// The timeout for the next bytes of a body. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        body: RawText,
        /// The time between two requests of a connection. Default: 75s.
        #[schemars(with = "Option<hints::Duration>")]
        idle: RawText,
        /// The timeout for a client to accept the next bytes of a response. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        write: RawText,
        /// The time from the head of a request to the last byte of its response. Default: no bound.
        #[schemars(with = "Option<hints::Duration>")]
        request: RawText,
    }
}

mapping! {
    /// How the gateway shuts down after SIGTERM.
    "drain"
    struct RawDrainFields {
        /// How long connections are still accepted while /readyz already returns 503. Default: 0s.
        #[schemars(with = "Option<hints::Duration>")]
        delay: RawText,
        /// How long requests in flight may take after that. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        deadline: RawText,
    }
}

mapping! {
    /// What one HTTP/2 connection may send of frames that cost their sender nothing, at once; who sends more is cut off.
    "h2"
    struct RawH2 {
        /// Requests that are cancelled within 20 ms (CVE-2023-44487). Default: 40.
        resets: RawCount,
        /// Requests that the gateway resets because of errors in them (CVE-2025-8671). Default: 30.
        errors: RawCount,
        /// SETTINGS frames (CVE-2019-9515). Default: 20.
        settings: RawCount,
        /// PING frames (CVE-2019-9512). Default: 40.
        pings: RawCount,
        /// Empty DATA frames (CVE-2019-9518). Default: 40.
        empty_data: RawCount,
        /// Heads that are larger than `max_head` after decompression (CVE-2016-6581). Default: 20.
        large_heads: RawCount,
        /// PRIORITY and PRIORITY_UPDATE frames (CVE-2019-9513). Default: 50.
        priorities: RawCount,
        /// WINDOW_UPDATE frames (CVE-2019-9511). Default: 60.
        window_updates: RawCount,
        /// GOAWAY frames and frames of unknown types. Default: 40.
        others: RawCount,
    }
}

crate::read::shorthand! {
    /// A listener: `0.0.0.0:8080`, or a mapping.
    RawListener(RawListenerFields.address);
    /// The time that a drain may take, or a mapping.
    RawDrain(RawDrainFields.deadline) "a duration or {delay: DURATION, deadline: DURATION}";
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawListener, "Listener" => generator crate::raw::hints::text_or::<RawListenerFields>(&crate::raw::hints::listen_address(), generator);
    RawDrain, "Drain" => generator crate::raw::hints::text_or::<RawDrainFields>(&crate::raw::hints::duration(), generator);
}
