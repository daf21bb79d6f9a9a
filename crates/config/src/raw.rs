//! gateway.yaml as it is written: every field optional, nothing checked against anything else.
//!
//! The doc comments are what `sluicegate schema` tells editors.

#[cfg(feature = "schema")]
use std::collections::BTreeMap;

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw_cors::RawCors;
use super::raw_jwt::RawJwt;
use super::raw_listen::{RawAdmin, RawClientIp, RawClientTimeouts, RawH2};
use super::raw_log::{RawAccessLog, RawTrace};
use super::raw_route::RawRoute;
use super::raw_shape::RawHeaderChanges;
use super::raw_store::RawStore;
use super::raw_upstream::RawUpstream;
use super::read::{Later, Named, OneOrMany, mapping};
#[cfg(feature = "schema")]
use super::schema::{Family, Scalar};
use super::shorthand::{RawBan, RawCost, RawCount, RawDrain, RawList, RawListener, RawPlan};

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
        /// Lists of addresses, by name: networks, or a file that holds one a line.
        #[schemars(extend("propertyNames" = hints::names()))]
        lists: Named<RawList>,
        /// Lists of clients that are answered 403, on every route.
        deny: OneOrMany<At<RawText>>,
        /// Lists of the only clients that are let in, on routes that have no `allow` of their own.
        allow: OneOrMany<At<RawText>>,
        /// The limits, by name.
        #[schemars(extend("propertyNames" = hints::names()))]
        limits: Named<RawLimit>,
        /// The APIs behind the gateway, by name.
        #[schemars(extend("propertyNames" = hints::names()))]
        upstreams: Named<RawUpstream>,
        /// Which requests go where under which limits. The first that matches wins.
        #[schemars(required)]
        routes: Vec<RawRoute>,
        /// Families of answer headers: x-ratelimit, ietf, retry-after. Default: all.
        #[schemars(with = "Option<Vec<Family>>")]
        headers: Vec<At<RawText>>,
        /// Which pages of other origins may read answers (CORS): a mapping, or off. Default: off.
        cors: RawCors,
        /// Headers of requests that are changed before they are forwarded, on all routes.
        request_headers: RawHeaderChanges,
        /// Headers of answers that are changed, on all routes and where none matches.
        response_headers: RawHeaderChanges,
        /// A line of every request, or off. Without it: a short line on standard output.
        access_log: RawAccessLog,
        /// How requests find their place in a trace.
        trace: RawTrace,
        /// Threads that serve, each with its own sockets. Default: one per core.
        #[schemars(extend("minimum" = 1, "maximum" = 256))]
        workers: RawCount,
        /// The longest request body; a longer one is answered 413. Default: no bound.
        #[schemars(with = "Option<hints::Size>")]
        max_body: RawText,
        /// The longest request head; a longer one is answered 431. Default: 32KiB.
        #[schemars(with = "Option<hints::Size>")]
        max_head: RawText,
        /// How many headers a request may have. Default: 100.
        #[schemars(extend("minimum" = 10, "maximum" = 256))]
        max_headers: RawCount,
        /// The least bytes a second of a request body, on average; 0 for no bound. Default: 240.
        #[schemars(with = "Option<hints::Size>")]
        min_body_rate: RawText,
        /// The least bytes a second at which a client takes an answer that waits to be sent; 0 for no bound. Default: 240.
        #[schemars(with = "Option<hints::Size>")]
        min_send_rate: RawText,
        /// Request headers with underscores in their names, which some servers take for others: removed (default) or
        /// forwarded, but for those that read like a header that the gateway sets or trusts.
        #[schemars(extend("enum" = ["removed", "forwarded"]))]
        underscores: RawText,
        /// How long to wait for clients.
        timeouts: RawClientTimeouts,
        /// What one HTTP/2 connection may send of frames that cost their sender nothing.
        h2: RawH2,
        /// How long SIGTERM waits for requests in flight: a duration (default 30s), or {delay: 5s, deadline: 30s}.
        drain: RawDrain,
        #[schemars(skip)]
        rules: Later,
        #[schemars(skip)]
        overload: Later,
    }
}

/// A value in one of the file's small languages (a rate, a duration, a key); read when all is known.
pub(super) type RawText = String;

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
        #[schemars(with = "Option<hints::Header>")]
        header: RawText,
        /// The query parameter, instead of a header.
        query: RawText,
        /// The file of the known keys and whose they are; `sluicegate consumers add` writes it.
        #[schemars(with = "Option<hints::File>")]
        consumers: RawText,
        /// Answer 401 to requests without a known key. Default: false.
        required: bool,
        /// Tell the upstream the consumer in X-Consumer-Name and X-Consumer-Plan. Default: true.
        forward: bool,
    }
}

mapping! {
    /// A limit.
    "a limit"
    struct RawLimit {
        /// What is counted apart: ip, ip/64 (and other bits of IPv6), ip/24 (of IPv4), api_key, consumer, global, host, method, path, path:NAME, route, header:NAME,
        /// query:NAME, cookie:NAME. `a | b` is the first that the request has, a list is all together.
        #[schemars(required, with = "OneOrMany<hints::Key>")]
        key: OneOrMany<At<RawText>>,
        /// token_bucket (default), leaky_bucket, fixed_window, sliding_log, sliding_window or concurrency.
        #[schemars(extend("enum" = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "concurrency"]))]
        algorithm: RawText,
        /// Count per period: 100/min, 10/s, 20/15s; for fixed_window also 1M/month.
        #[schemars(with = "Option<hints::Rate>")]
        rate: RawText,
        /// fixed_window: the time zone in which its days, weeks and months begin, such as Europe/Berlin. Default: UTC.
        zone: RawText,
        /// Bucket size (token_bucket) or queue places (leaky_bucket). Default: the rate's count.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000_000_000))]
        burst: RawCount,
        /// sliding_window: sub-windows per period. Default: 1.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000))]
        slices: RawCount,
        /// sliding_log: refused requests also hold a place.
        count_rejected: bool,
        /// concurrency: requests in flight.
        max: RawCount,
        /// leaky_bucket: a longer wait is refused instead.
        #[schemars(with = "Option<hints::Duration>")]
        max_delay: RawText,
        /// What a request spends: a number (default 1), `header:NAME` of the request, or a mapping.
        cost: RawCost,
        /// token_bucket: the most that late costs may leave owed below empty. Default: all of them.
        overdraft: RawCount,
        /// After a refusal the key is refused for this long: 15min, or {after: 5, within: 1min, for: 15min}.
        ban: RawBan,
        /// enforce (default), shadow (counted and reported, refuses nobody) or off.
        #[schemars(extend("enum" = ["enforce", "shadow", "off"]))]
        mode: RawText,
        /// Addresses, networks, lists (`list:NAME`) and key values that this limit leaves alone.
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
    /// Refuses a key for a while after it was refused.
    "a ban"
    struct RawBanFields {
        /// Refusals that begin it. Default: 1.
        after: RawCount,
        /// The time within which they count, such as 1min.
        #[schemars(with = "Option<hints::Duration>")]
        within: RawText,
        /// How long it lasts, such as 15min.
        #[schemars(required, with = "hints::Duration")]
        span = "for": RawText,
    }
}

mapping! {
    /// The numbers of a limit for some requests.
    "a rate with fields"
    struct RawPlanFields {
        /// Count per period.
        #[schemars(with = "Option<hints::Rate>")]
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
        #[schemars(with = "Option<OneOrMany<hints::Status>>")]
        status: OneOrMany<At<RawText>>,
        /// A header of the answer, whose number is charged too.
        #[schemars(with = "Option<hints::Header>")]
        response_header: RawText,
        /// For requests of these routes, instead.
        routes: Named<RawCount>,
        /// The bytes of a body are charged too: request, response or both.
        #[schemars(extend("enum" = ["request", "response", "both"]))]
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
        #[schemars(with = "Option<OneOrMany<hints::Method>>")]
        methods: OneOrMany<At<RawText>>,
        /// Request headers and their exact values; `*` for any value.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        headers: Named<At<RawText>>,
        /// Values of the limit's key.
        key: OneOrMany<At<RawText>>,
    }
}

mapping! {
    /// A list of addresses in a file.
    "a list"
    struct RawListFile {
        /// The file, with an address or a network a line.
        #[schemars(required, with = "hints::File")]
        file: RawText,
    }
}

mapping! {
    /// A secret in a file.
    "a secret"
    struct RawSecretFile {
        /// The file that holds it.
        #[schemars(required, with = "hints::File")]
        file: RawText,
    }
}
