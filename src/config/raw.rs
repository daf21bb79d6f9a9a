//! gateway.yaml as it is written: every field optional, nothing checked against anything else.
//!
//! The doc comments are what `sluicegate schema` tells editors.

use std::collections::BTreeMap;

use super::forms::{RawAnswer, RawBalance, RawCost, RawCount, RawListener, RawPlan, RawSecret, RawServer};
use super::node::Node;
use super::raw_ban::RawBan;
use super::raw_jwt::RawJwt;
use super::read::{At, Later, Named, OneOrMany, Read, entries, mapping, not_available, unknown_key};
use super::report::{Place, Report};
use super::schema::{Family, Scalar};

mapping! {
    /// The configuration of a gateway.
    "gateway.yaml"
    struct RawConfig {
        /// Addresses that serve clients.
        #[schemars(required)]
        listen: Vec<RawListener>,
        /// Metrics, health and state; never on an address that serves clients.
        admin: RawAdmin,
        /// Who the client is when proxies stand before the gateway.
        client_ip: RawClientIp,
        /// Where clients put their credentials.
        auth: RawAuth,
        /// Where counters live that several gateways share. Without it they live in the process.
        store: RawStore,
        /// The limits, by name.
        limits: Named<RawLimit>,
        /// The APIs behind the gateway, by name.
        upstreams: Named<RawUpstream>,
        /// Which requests go where under which limits. The first that matches wins.
        #[schemars(required)]
        routes: Vec<RawRoute>,
        /// Families of answer headers: x-ratelimit, ietf, retry-after. Default: all.
        #[schemars(with = "Option<Vec<Family>>")]
        headers: Vec<At<RawText>>,
        /// Threads that serve, each with its own sockets. Default: one per core.
        workers: RawCount,
        /// The longest request body; a longer one is answered 413. Default: no bound.
        #[schemars(with = "Option<RawCount>")]
        max_body: RawText,
        /// The longest request head; a longer one is answered 431. Default: 32KiB.
        #[schemars(with = "Option<RawCount>")]
        max_head: RawText,
        /// How long SIGTERM waits for requests in flight. Default: 30s.
        drain: RawText,
        #[schemars(skip)]
        rules: Later,
        #[schemars(skip)]
        overload: Later,
    }
}

/// A value in one of the file's small languages (a rate, a duration, a key); read when all is known.
pub(super) type RawText = String;

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
    /// Where clients put their credentials.
    "auth"
    struct RawAuth {
        /// API keys.
        api_key: RawApiKey,
        /// User tokens.
        jwt: RawJwt,
    }
}

mapping! {
    /// Where the API key is: in a header or in the query.
    "auth.api_key"
    struct RawApiKey {
        /// The header. Default: X-Api-Key.
        header: RawText,
        /// The query parameter, instead of a header.
        query: RawText,
        /// The file of the known keys and whose they are; `sluicegate consumers add` writes it.
        consumers: RawText,
        /// Answer 401 to requests without a known key. Default: false.
        required: bool,
        /// Tell the upstream the consumer in X-Consumer-Name and X-Consumer-Plan. Default: true.
        forward: bool,
    }
}

mapping! {
    /// Where counters live that several gateways share.
    "store"
    struct RawStore {
        /// A Redis: one server (url), a cluster, or the one that sentinels watch.
        #[schemars(required)]
        redis: RawRedis,
    }
}

mapping! {
    /// A Redis; one of url, cluster and sentinel.
    "store.redis"
    struct RawRedis {
        /// redis://HOST:6379/0, rediss:// for TLS, redis+unix:///PATH?db=0 for a socket.
        url: RawText,
        /// Some nodes of a cluster: redis://HOST:PORT or rediss://HOST:PORT.
        cluster: Vec<At<RawText>>,
        /// The sentinels that know the server.
        sentinel: RawSentinel,
        /// The user, if it is not in the URL.
        username: RawText,
        /// The password, if it is not in the URL.
        password: RawSecret,
        /// The number of the database, if it is not in the URL. Default: 0.
        database: RawCount,
        /// Certificates, for rediss:// only.
        tls: RawRedisTls,
        /// The longest that a request waits for a decision. Default: 50ms.
        timeout: RawText,
        /// What the names of all keys in Redis begin with. Default: sluicegate.
        prefix: RawText,
    }
}

mapping! {
    /// The sentinels that know the server.
    "store.redis.sentinel"
    struct RawSentinel {
        /// The name that they know it by.
        #[schemars(required)]
        master: RawText,
        /// The sentinels: redis://HOST:26379 or rediss://HOST:26379.
        #[schemars(required)]
        nodes: Vec<At<RawText>>,
        /// The user at the sentinels themselves.
        username: RawText,
        /// The password at the sentinels themselves.
        password: RawSecret,
    }
}

mapping! {
    /// Certificates and keys: PEM files.
    "store.redis.tls"
    struct RawRedisTls {
        /// The authorities that sign the server's certificate. Default: those of the system.
        ca: RawText,
        /// The gateway's own certificate, where the server asks for one.
        cert: RawText,
        /// Its private key.
        key: RawText,
    }
}

mapping! {
    /// A limit.
    "a limit"
    struct RawLimit {
        /// What is counted apart: ip, api_key, consumer, global, host, method, path, path:NAME, route, header:NAME,
        /// query:NAME, cookie:NAME. `a | b` is the first that the request has, a list is all together.
        #[schemars(required)]
        key: OneOrMany<At<RawText>>,
        /// token_bucket (default), leaky_bucket, fixed_window, sliding_log, sliding_window or concurrency.
        #[schemars(extend("enum" = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "concurrency"]))]
        algorithm: RawText,
        /// Count per period: 100/min, 10/s, 20/15s.
        rate: RawText,
        /// Bucket size (token_bucket) or queue places (leaky_bucket). Default: the rate's count.
        burst: RawCount,
        /// sliding_window: sub-windows per period. Default: 1.
        slices: RawCount,
        /// sliding_log: refused requests also hold a place.
        count_rejected: bool,
        /// concurrency: requests in flight.
        max: RawCount,
        /// leaky_bucket: a longer wait is refused instead.
        max_delay: RawText,
        /// What a request spends: a number (default 1), `header:NAME` of the request, or a mapping.
        cost: RawCost,
        /// After a refusal the key is refused for this long: 15min, or {after: 5, within: 1min, for: 15min}.
        ban: RawBan,
        /// enforce (default), shadow (counted and reported, refuses nobody) or off.
        #[schemars(extend("enum" = ["enforce", "shadow", "off"]))]
        mode: RawText,
        /// Addresses, networks and key values that this limit leaves alone.
        #[schemars(with = "Option<Vec<Scalar>>")]
        exempt: Vec<At<RawText>>,
        /// A request without the key: shared (default, one bucket for all of them), skip or deny (401).
        #[schemars(extend("enum" = ["shared", "skip", "deny"]))]
        on_missing: RawText,
        /// Where it is counted: shared (default with a store) or local (default without).
        #[schemars(extend("enum" = ["shared", "local"]))]
        scope: RawText,
        /// How a shared limit is counted: exact (default), one question to the store per request.
        #[schemars(extend("enum" = ["exact"]))]
        sync: RawText,
        /// While the store fails: local (default, counted in the process), open (admitted) or closed (503).
        #[schemars(extend("enum" = ["local", "open", "closed"]))]
        on_store_failure: RawText,
        /// Live counters this limit may hold. Default: 1M.
        max_keys: RawCount,
        /// A second rate, counted beside the enforced one and reported, never enforced.
        candidate: RawPlan,
        /// The requests that it concerns. Without it: all.
        when: RawWhen,
        /// Other rates for consumers and users on these plans.
        plans: Named<RawPlan>,
    }
}

mapping! {
    /// The numbers of a limit for some requests.
    "a rate with fields"
    struct RawPlanFields {
        /// Count per period.
        rate: RawText,
        /// Bucket size or queue places. Default: the rate's count.
        burst: RawCount,
        /// concurrency: requests in flight.
        max: RawCount,
    }
}

mapping! {
    /// What a request spends, by what it is and by what came of it.
    "a cost with fields"
    struct RawCostFields {
        /// For the request itself: a number or `header:NAME`. Default: 1 with `status` or `methods`, else 0.
        #[schemars(with = "Option<Scalar>")]
        request: RawText,
        /// For requests with these methods, instead.
        methods: Named<RawCount>,
        /// Only answers with these statuses cost anything: 401, 5xx.
        #[schemars(with = "Option<OneOrMany<Scalar>>")]
        status: OneOrMany<At<RawText>>,
        /// A header of the answer, whose number is charged too.
        response_header: RawText,
        /// The bytes of the answer's body are charged too: response.
        #[schemars(extend("enum" = ["response"]))]
        bytes: RawText,
        /// What is taken before the answer is there, and settled behind it. Default: what the request itself costs, at
        /// least 1.
        reserve: RawCount,
    }
}

mapping! {
    /// The requests that a limit concerns; all that is given has to fit.
    "when"
    struct RawWhen {
        /// Methods.
        methods: OneOrMany<At<RawText>>,
        /// Request headers and their exact values; `*` for any value.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        headers: Named<At<RawText>>,
        /// Values of the limit's key.
        key: OneOrMany<At<RawText>>,
    }
}

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
    }
}

mapping! {
    /// Requests of one kind, where they go and under which limits.
    "a route"
    struct RawRoute {
        /// Its name in metrics, logs and replays.
        name: RawText,
        /// Which requests. Without it: all.
        matches = "match": RawMatch,
        /// The upstream they are forwarded to.
        upstream: RawText,
        /// The answer, if the gateway itself gives it.
        respond: RawAnswer,
        /// The limits that all have to admit them.
        limits: Vec<At<RawText>>,
        /// The path that is forwarded: normalized (default) or original.
        #[schemars(extend("enum" = ["normalized", "original"]))]
        forward_path: RawText,
        /// Families of answer headers of this route.
        #[schemars(with = "Option<Vec<Family>>")]
        headers: Vec<At<RawText>>,
        /// The answer to those refused, instead of the usual one.
        reject: RawReject,
        /// The longest request body of this route.
        #[schemars(with = "Option<RawCount>")]
        max_body: RawText,
        #[schemars(skip)]
        priority: Later,
    }
}

mapping! {
    /// Which requests a route takes; all that is given has to fit.
    "match"
    struct RawMatch {
        /// A listener's name.
        listener: RawText,
        /// Host names: api.example.com, or *.example.com for every name below.
        host: OneOrMany<At<RawText>>,
        /// A path: /login, /v1/* (it and all below), /users/{id}.
        path: OneOrMany<At<RawText>>,
        /// Methods.
        methods: OneOrMany<At<RawText>>,
        /// Request headers and their exact values; `*` for any value.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        headers: Named<At<RawText>>,
    }
}

mapping! {
    /// An answer of the gateway itself.
    "respond"
    struct RawRespond {
        /// The status. Default: 200.
        status: RawCount,
        /// The body.
        #[schemars(with = "Option<Scalar>")]
        body: RawText,
        /// Default: text/plain; charset=utf-8
        content_type: RawText,
    }
}

mapping! {
    /// The answer to refused requests. {limit}, {retry_after} and {request_id} are replaced.
    "reject"
    struct RawReject {
        /// The status. Default: 429.
        status: RawCount,
        /// The body.
        #[schemars(with = "Option<Scalar>")]
        body: RawText,
        /// Default: text/plain; charset=utf-8
        content_type: RawText,
    }
}

mapping! {
    "a secret"
    struct RawSecretFile {
        /// The file that holds it.
        #[schemars(required)]
        file: RawText,
    }
}
