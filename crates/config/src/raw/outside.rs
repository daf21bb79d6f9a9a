//! `auth.introspection` and `auth.check` as they are written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::raw::scalars::{RawCount, RawSecret};
use crate::read::at::At;
use crate::read::{Named, OneOrMany, mapping};

mapping! {
    /// Token introspection (RFC 7662): the issuer is asked about tokens that the gateway cannot verify itself.
    "auth.introspection"
    struct RawIntrospection {
        /// Where tokens are asked about: https://…, or http:// on this machine only.
        #[schemars(required)]
        url: RawText,
        /// The authorities that sign the server's certificate: a PEM file. Default: those of the system.
        ca: RawText,
        /// The id with which the gateway authenticates itself (Basic).
        #[schemars(required)]
        client_id: RawText,
        /// The secret that belongs to it.
        #[schemars(required)]
        client_secret: RawSecret,
        /// The header with the token; in Authorization it follows `Bearer`. Default: Authorization.
        #[schemars(with = "Option<hints::Header>")]
        header: RawText,
        /// The member of the answer that identifies the user. Default: sub.
        user_claim: RawText,
        /// The member of the answer that contains the plan of the user. Default: none.
        plan_claim: RawText,
        /// Whether a request without a valid token is answered 401. Default: false.
        required: bool,
        /// Members of the answer that are forwarded to the upstream as headers: {X-User: sub}. Headers of these names
        /// from clients are removed.
        forward: Named<At<RawText>>,
        /// How long an active token is remembered, at most until it expires. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        ttl: RawText,
        /// How long an inactive token is remembered. Default: 5s.
        #[schemars(with = "Option<hints::Duration>")]
        negative_ttl: RawText,
        /// How much longer an active token is used while the service is away. Default: 5min with on_failure: stale,
        /// otherwise 0s.
        #[schemars(with = "Option<hints::Duration>")]
        stale: RawText,
        /// How long an answer may take. Default: 250ms.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// The maximum number of questions at the same time, of the whole process. A request waits for its turn at most
        /// for `timeout`; then it is answered 503. Default: 64.
        #[schemars(extend("minimum" = 1, "maximum" = 10_000))]
        max_in_flight: RawCount,
        /// What happens to a request with an unknown token while the service is away: stale (default) and refuse
        /// answer 503, anonymous continues without the token.
        #[schemars(extend("enum" = ["refuse", "anonymous", "stale"]))]
        on_failure: RawText,
        /// The maximum number of active tokens that are remembered, and of inactive ones. Default: 100k.
        #[schemars(extend("minimum" = 16, "maximum" = 10_000_000))]
        max_cached: RawCount,
    }
}

mapping! {
    /// An external check: a service is asked about each request.
    "auth.check"
    struct RawCheck {
        /// Where requests are asked about: https://…, or http:// on this machine only.
        #[schemars(required)]
        url: RawText,
        /// The authorities that sign the server's certificate: a PEM file. Default: those of the system.
        ca: RawText,
        /// The headers of a request that are sent on. Default: Authorization and Cookie.
        #[schemars(with = "Option<OneOrMany<hints::Header>>")]
        headers: OneOrMany<At<RawText>>,
        /// How answers are remembered. Default: not at all, each request is checked.
        cache: RawCheckCache,
        /// Whether the upstream receives X-Consumer-Name and X-Consumer-Plan. Default: true.
        forward: bool,
        /// How much longer an answer is used while the service is away. Default: 5min with on_failure: stale,
        /// otherwise 0s.
        #[schemars(with = "Option<hints::Duration>")]
        stale: RawText,
        /// How long an answer may take. Default: 250ms.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// The maximum number of questions at the same time, of the whole process. A request waits for its turn at most
        /// for `timeout`; then it is answered 503. Default: 64.
        #[schemars(extend("minimum" = 1, "maximum" = 10_000))]
        max_in_flight: RawCount,
        /// What happens to a request while the service is away: refuse (default) answers 503, anonymous continues
        /// unchecked, stale is refuse with remembered answers that are used for longer.
        #[schemars(extend("enum" = ["refuse", "anonymous", "stale"]))]
        on_failure: RawText,
        /// The maximum number of answers that are remembered, of admissions and of refusals each. Default: 100k.
        #[schemars(extend("minimum" = 16, "maximum" = 10_000_000))]
        max_cached: RawCount,
    }
}

mapping! {
    /// How answers of an external check are remembered.
    "auth.check.cache"
    struct RawCheckCache {
        /// The request headers on whose values an answer depends. Default: the `headers` that are sent on.
        #[schemars(with = "Option<OneOrMany<hints::Header>>")]
        key: OneOrMany<At<RawText>>,
        /// How long an answer is remembered, unless it says X-Sluicegate-Cache: SECONDS. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        ttl: RawText,
    }
}
