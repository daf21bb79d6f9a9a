//! gateway.yaml as it is written: every field optional, nothing checked against anything else.
//!
//! The doc comments are what `sluicegate schema` tells editors.

pub(crate) mod balance;
pub(crate) mod cors;
pub(crate) mod excess;
pub(crate) mod fair;
pub(crate) mod headers;
#[cfg(feature = "schema")]
pub(crate) mod hints;
pub(crate) mod jwt;
pub(crate) mod listen;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod outside;
pub(crate) mod overload;
pub(crate) mod queue;
pub(crate) mod regions;
pub(crate) mod rls;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod scalars;
#[cfg(feature = "schema")]
pub(crate) mod schema;
#[cfg(feature = "schema")]
pub(crate) mod schema_types;
pub(crate) mod shape;
pub(crate) mod store;
pub(crate) mod telemetry;
pub(crate) mod upstream;

#[cfg(feature = "schema")]
use std::collections::BTreeMap;

use crate::language::values;
use crate::raw::cors::RawCors;
use crate::raw::excess::{RawBurstCredit, RawPenalty};
use crate::raw::fair::RawFair;
use crate::raw::headers::RawHeaders;
use crate::raw::jwt::RawJwt;
use crate::raw::listen::{RawAdmin, RawClientIp, RawClientTimeouts, RawDrain, RawH2, RawListener};
use crate::raw::lists::RawList;
use crate::raw::log::{RawAccessLog, RawTrace};
use crate::raw::metrics::RawMetrics;
use crate::raw::outside::{RawCheck, RawIntrospection};
use crate::raw::overload::{RawOwnOverload, RawPriorities};
use crate::raw::queue::RawQueue;
use crate::raw::regions::RawRegions;
use crate::raw::rls::{RawLimitador, RawRls};
use crate::raw::route::RawRoute;
use crate::raw::rules::RawRules;
use crate::raw::scalars::{RawCount, RawText};
#[cfg(feature = "schema")]
use crate::raw::schema_types::Scalar;
use crate::raw::shape::RawHeaderChanges;
use crate::raw::store::RawStore;
use crate::raw::telemetry::RawTelemetry;
use crate::raw::upstream::RawUpstream;
use crate::read::at::At;
use crate::read::report::Report;
use crate::read::yaml_tree::{Node, Value};
use crate::read::{Named, OneOrMany, Read, mapping, text};

mapping! {
    /// The configuration of a gateway. Top-level keys that begin with `x-` are ignored: a place for YAML anchors.
    "gateway.yaml"
    struct RawConfig {
        /// Addresses that serve clients.
        #[schemars(required)]
        listen: Vec<RawListener>,
        /// The admin API: metrics, health and state; never on an address that serves clients.
        admin: RawAdmin,
        /// How the client address is determined behind proxies.
        client_ip: RawClientIp,
        /// How clients are authenticated.
        auth: RawAuth,
        /// The store of counters that several gateways share. Without it, counters are local to the process.
        store: RawStore,
        /// Several regions that divide the shared limits among them.
        regions: RawRegions,
        /// Lists of addresses, by name: networks, or a file with one per line.
        #[schemars(extend("propertyNames" = hints::names()))]
        lists: Named<RawList>,
        /// Lists of clients that are answered 403, on every route.
        deny: OneOrMany<At<RawText>>,
        /// Lists of the only clients that are admitted, on routes that have no `allow` of their own.
        allow: OneOrMany<At<RawText>>,
        /// The limits, by name.
        #[schemars(extend("propertyNames" = hints::names()))]
        limits: Named<RawLimit>,
        /// Limits for other proxies, which ask by Envoy's rate limit service.
        rls: RawRls,
        /// Limits for other proxies, which ask as they ask limitador.
        limitador: RawLimitador,
        /// The APIs behind the gateway, by name.
        #[schemars(extend("propertyNames" = hints::names()))]
        upstreams: Named<RawUpstream>,
        /// The routes. The first route that matches a request is used. Required, unless all listeners have `serve: rls` or
        /// `serve: limitador`.
        routes: Vec<RawRoute>,
        /// The rate limit headers of responses: a list of families (x-ratelimit, ietf, retry-after), or {families, upstream}. Default: all.
        headers: RawHeaders,
        /// Cross-origin resource sharing (CORS): a mapping, or off. Default: off.
        cors: RawCors,
        /// Changes of request headers before forwarding, on all routes.
        request_headers: RawHeaderChanges,
        /// Changes of response headers, on all routes and for requests that match no route.
        response_headers: RawHeaderChanges,
        /// The access log, or off. Default: a short line per request on standard output.
        access_log: RawAccessLog,
        /// How requests become part of a trace (W3C Trace Context).
        trace: RawTrace,
        /// The number of serving threads, each with its own sockets. Default: one per core.
        #[schemars(extend("minimum" = 1, "maximum" = 256))]
        workers: RawCount,
        /// The maximum size of a request body; a larger one is answered 413. Default: no bound.
        #[schemars(with = "Option<hints::Size>")]
        max_body: RawText,
        /// The maximum size of a request head; a larger one is answered 431. Default: 32KiB.
        #[schemars(with = "Option<hints::Size>")]
        max_head: RawText,
        /// The maximum number of headers of a request. Default: 100.
        #[schemars(extend("minimum" = 10, "maximum" = 256))]
        max_headers: RawCount,
        /// Names of response headers that clients receive in the case given here; all others are in lower case. HTTP/1.1 only.
        #[schemars(with = "Option<OneOrMany<hints::Header>>")]
        header_case: OneOrMany<At<RawText>>,
        /// The maximum size of the path and query of a request; a longer one is answered 414. Default: 8KiB.
        #[schemars(with = "Option<hints::Size>")]
        max_target: RawText,
        /// The minimum average rate of a request body in bytes per second; 0 for no bound. Default: 240.
        #[schemars(with = "Option<hints::Size>")]
        min_body_rate: RawText,
        /// The minimum rate in bytes per second at which a client must read a response; 0 for no bound. Default: 240.
        #[schemars(with = "Option<hints::Size>")]
        min_send_rate: RawText,
        /// Request headers with underscores in their names, which some servers take for others: removed (default) or
        /// forwarded, but for those that read like a header that the gateway sets or trusts.
        #[schemars(extend("enum" = ["removed", "forwarded"]))]
        underscores: RawText,
        /// Timeouts of client connections.
        timeouts: RawClientTimeouts,
        /// Flood limits: how many cheap frames of each kind an HTTP/2 connection may send at once.
        h2: RawH2,
        /// How long SIGTERM waits for requests in flight: a duration (default 30s), or {delay: 5s, deadline: 30s}.
        drain: RawDrain,
        /// Rules: other numbers of a limit for single keys, managed while the gateway runs.
        rules: RawRules,
        /// What the metrics show beyond the usual.
        metrics: RawMetrics,
        /// Traces and metrics that the gateway sends by itself.
        telemetry: RawTelemetry,
        /// How important the requests of plans and consumers are, where an upstream has `overload`.
        priorities: RawPriorities,
        /// Protection of the gateway itself from overload: the least important requests are refused (503) first. Default: none.
        overload: RawOwnOverload,
    }
}

mapping! {
    /// How clients are authenticated.
    "auth"
    struct RawAuth {
        /// API keys.
        api_key: RawApiKey,
        /// User tokens.
        jwt: RawJwt,
        /// Tokens that are asked about at their issuer.
        introspection: RawIntrospection,
        /// An external check of each request.
        check: RawCheck,
    }
}

mapping! {
    /// Where the API key is: in a header, in the query, or in either.
    "auth.api_key"
    struct RawApiKey {
        /// The header. Default: X-Api-Key, or none with `query`.
        #[schemars(with = "Option<hints::Header>")]
        header: RawText,
        /// The query parameter. With `header` too, a request has its key in one of them; two different keys are none.
        query: RawText,
        /// The file of consumers and their keys; `sluicegate consumers add` writes it.
        #[schemars(with = "Option<hints::File>")]
        consumers: RawText,
        /// Answer 401 to requests without a known key. Default: false.
        required: bool,
        /// Whether the upstream receives X-Consumer-Name and X-Consumer-Plan. Default: true.
        forward: bool,
    }
}

mapping! {
    /// A limit.
    "a limit"
    struct RawLimit {
        /// What is counted separately.
        #[schemars(required, with = "OneOrMany<hints::Key>", description = hints::keys())]
        key: OneOrMany<At<RawText>>,
        /// token_bucket (default), leaky_bucket, fixed_window, sliding_log, sliding_window or concurrency.
        #[schemars(extend("enum" = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "concurrency"]))]
        algorithm: RawText,
        /// Count per period: 100/min, 10/s, 20/15s; for fixed_window also 1M/month. Or where the identity of a request names
        /// its rate: jwt:CLAIM, consumer:metadata.NAME, check:rate.
        #[schemars(with = "Option<hints::LimitRate>")]
        rate: RawText,
        /// The highest rate that the identity of a request can name.
        #[schemars(with = "Option<hints::Rate>")]
        max_rate: RawText,
        /// The rate of requests whose identity names none.
        #[schemars(with = "Option<hints::Rate>")]
        default_rate: RawText,
        /// fixed_window: the time zone in which its days, weeks and months begin, such as Europe/Berlin. Default: UTC.
        zone: RawText,
        /// Bucket size (token_bucket) or queue places (leaky_bucket). Default: the rate's count.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000_000_000))]
        burst: RawCount,
        /// sliding_window: sub-windows per period. Default: 1.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000))]
        slices: RawCount,
        /// sliding_window: the oldest sub-window counts in full, so that no window admits more than the rate's count. With
        /// `sync: leased`: leases admit nothing above the limit; a bucket is smaller by the tokens that may be leased.
        strict: bool,
        /// sliding_log: refused requests count too.
        count_rejected: bool,
        /// concurrency: the maximum number of requests in flight.
        max: RawCount,
        /// leaky_bucket: the longest wait; requests that would wait longer are refused.
        #[schemars(with = "Option<hints::Duration>")]
        max_delay: RawText,
        /// The cost of a request: a number (default 1), `header:NAME` of the request, `check:cost` for the number that
        /// auth.check answers, or a mapping.
        cost: RawCost,
        /// token_bucket: the largest debt that late costs may leave below an empty bucket. Default: no bound.
        overdraft: RawCount,
        /// A ban: after a refusal, the key is refused for this time: 15min, or {after: 5, within: 1min, for: 15min}.
        ban: RawBan,
        /// enforce (default), shadow (counted and reported, refuses nobody) or off.
        #[schemars(extend("enum" = ["enforce", "shadow", "off"]))]
        mode: RawText,
        /// Addresses, networks, lists (`list:NAME`) and key values that are exempt from this limit.
        #[schemars(with = "Option<Vec<Scalar>>")]
        exempt: Vec<At<RawText>>,
        /// What happens to requests without the key: shared (default, they share one counter), skip or deny (401).
        #[schemars(extend("enum" = ["shared", "skip", "deny"]))]
        on_missing: RawText,
        /// Where the limit is counted: shared (default with a store) or local (default without).
        #[schemars(extend("enum" = ["shared", "local"]))]
        scope: RawText,
        /// How a shared limit is counted: exact (default), with one call to the store per request; leased, with tokens that
        /// are paid for in advance; auto, leased where the limit is large enough.
        #[schemars(extend("enum" = ["auto", "exact", "leased"]))]
        sync: RawText,
        /// The part of the rate's count that all gateways together may have paid for and not spent. Default: 5%.
        #[schemars(with = "Option<hints::Share>")]
        error_budget: RawText,
        /// The part of the limit from which on answers carry X-RateLimit-Warning with its name: 80%. Default: never.
        warn: RawText,
        /// Divides the limit fairly among consumers: whoever asks for less than the fair share is never refused because of others.
        fair: RawFair,
        /// A slower lane: requests above the limit wait in it instead of being refused, as long as it has room.
        penalty: RawPenalty,
        /// 202: requests above the limit are accepted, kept in `queue` and delivered later. Default: only those of clients that
        /// ask for it with `Prefer: respond-async`.
        #[schemars(extend("minimum" = 202, "maximum" = 202))]
        accept: RawCount,
        /// token_bucket and leaky_bucket: where requests above the limit are kept until it admits them.
        queue: RawQueue,
        /// token_bucket: unused quota that is saved for a burst.
        burst_credit: RawBurstCredit,
        /// What happens while the store is unavailable: local (default, counted in the process), open (admitted) or
        /// closed (503).
        #[schemars(extend("enum" = ["local", "open", "closed"]))]
        on_store_failure: RawText,
        /// The maximum number of live counters of this limit. Default: 1M.
        max_keys: RawCount,
        /// A second rate that is evaluated and reported, but never enforced.
        candidate: RawPlan,
        /// The requests to which the limit applies. Default: all.
        when: RawWhen,
        /// Rates for consumers and users on these plans.
        plans: Named<RawPlan>,
    }
}

mapping! {
    /// A ban: after refusals, all requests of the key are refused for some time.
    "a ban"
    struct RawBanFields {
        /// The number of refusals after which the ban begins. Default: 1.
        after: RawCount,
        /// The period in which the refusals are counted, such as 1min.
        #[schemars(with = "Option<hints::Duration>")]
        within: RawText,
        /// The duration of the ban, such as 15min.
        #[schemars(required, with = "hints::Duration")]
        span = "for": RawText,
    }
}

mapping! {
    /// The rate of a limit for some requests.
    "a rate with fields"
    struct RawPlanFields {
        /// Count per period.
        #[schemars(with = "Option<hints::Rate>")]
        rate: RawText,
        /// Bucket size or queue places. Default: the rate's count.
        burst: RawCount,
        /// concurrency: the maximum number of requests in flight.
        max: RawCount,
    }
}

mapping! {
    /// The cost of a request, which may depend on the request and on its response.
    "a cost with fields"
    struct RawCostFields {
        /// The cost of the request itself: a number, `header:NAME` or `check:cost`. Default: 1 with `status` or
        /// `methods`, otherwise 0.
        #[schemars(with = "Option<Scalar>")]
        request: RawText,
        /// The cost of requests with these methods, instead of `request`.
        methods: Named<RawCount>,
        /// Only responses with these statuses are charged: 401, 5xx.
        #[schemars(with = "Option<OneOrMany<hints::Status>>")]
        status: OneOrMany<At<RawText>>,
        /// A response header whose number is charged too.
        #[schemars(with = "Option<hints::Header>")]
        response_header: RawText,
        /// The cost of requests of these routes, instead of all other costs.
        routes: Named<RawCount>,
        /// Also charges the bytes of bodies: request, response or both.
        #[schemars(extend("enum" = ["request", "response", "both"]))]
        bytes: RawText,
        /// The amount that is charged before the response is known, and corrected after it. Default: the cost of the
        /// request itself, at least 1.
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
        /// Request headers with their exact values; `*` matches any value.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        headers: Named<At<RawText>>,
        /// Values of the limit's key.
        key: OneOrMany<At<RawText>>,
    }
}

crate::read::shorthand! {
    /// The duration of a ban, or a mapping.
    RawBan(RawBanFields.span) "a duration or {after: N, within: DURATION, for: DURATION}";
}

/// A cost: a number, `header:NAME`, or a mapping.
#[derive(Clone, Debug)]
pub(crate) enum RawCost {
    Text(String),
    Fields(Box<RawCostFields>),
}

/// The numbers of a limit for some requests: a rate, a number of places, or a mapping.
#[derive(Clone, Debug)]
pub(crate) struct RawPlan(pub(crate) RawPlanFields);

impl Read for RawCost {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if let Value::Map(entries) = &node.value {
            // YAML reads `header: X-Cost` as a mapping; the user meant header:X-Cost.
            let meant = matches!(entries.as_slice(), [(Node { value: Value::Scalar(kind), .. }, _)] if kind == "header");
            if !meant {
                return RawCostFields::read(node, report).map(|fields| Self::Fields(Box::new(fields)));
            }
        }
        text(node, "a number, header:NAME or a mapping", report).map(Self::Text)
    }
}

impl Read for RawPlan {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Scalar(text) = &node.value else {
            return RawPlanFields::read(node, report).map(Self);
        };
        let mut fields = RawPlanFields::empty(node.at);
        match values::count(text) {
            Ok(places) => fields.max = Some(At { at: node.at, value: RawCount(places) }),
            Err(_) => fields.rate = Some(At { at: node.at, value: text.clone() }),
        }
        Some(Self(fields))
    }
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawCost, "Cost" => generator {
        crate::raw::hints::number_or::<RawCostFields>(&crate::raw::hints::cost(), &["5", "header:X-Cost", "check:cost"], generator)
    };
    RawPlan, "Plan" => generator {
        crate::raw::hints::number_or::<RawPlanFields>(&format!("{}|{}", crate::raw::hints::COUNT, crate::raw::hints::rate()), &["1000/min"], generator)
    };
    RawBan, "Ban" => generator crate::raw::hints::text_or::<RawBanFields>(&crate::raw::hints::duration(), generator);
}
