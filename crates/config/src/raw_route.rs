//! Routes as they are written.

#[cfg(feature = "schema")]
use std::collections::BTreeMap;

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::raw_cors::RawCors;
use super::raw_shape::{RawHeaderChanges, RawRewrite};
use super::read::{Later, Named, OneOrMany, mapping};
#[cfg(feature = "schema")]
use super::schema::{Family, Scalar};
use super::shorthand::{RawAnswer, RawCount, RawRedirect};

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
        /// Where clients are sent instead: https://{host}{path}, or {status: 308, to: …}.
        redirect: RawRedirect,
        /// Lists of clients that are answered 403, besides those on top.
        deny: OneOrMany<At<RawText>>,
        /// Lists of the only clients that are let in, instead of those on top.
        allow: OneOrMany<At<RawText>>,
        /// CORS preflight requests: counted (default), or exempt from limits and authentication.
        #[schemars(extend("enum" = ["counted", "exempt"]))]
        preflight: RawText,
        /// Which pages of other origins may read answers (CORS), instead of what is said on top; or off.
        cors: RawCors,
        /// The limits that all have to admit them.
        limits: Vec<At<RawText>>,
        /// The path that is forwarded: normalized (default) or original.
        #[schemars(extend("enum" = ["normalized", "original"]))]
        forward_path: RawText,
        /// Taken from the front of the path before it is forwarded: with /api, /api/x goes out as /x.
        strip_prefix: RawText,
        /// The path that is forwarded instead: /v2/{rest}, or {match: REGEX, to: /x/$1}.
        rewrite: RawRewrite,
        /// Headers of requests that are changed before they are forwarded, after those on top.
        request_headers: RawHeaderChanges,
        /// Headers of answers that are changed, after those on top; also of refusals.
        response_headers: RawHeaderChanges,
        /// X-Original-URL, X-HTTP-Method-Override and their like: removed (default) or forwarded.
        #[schemars(extend("enum" = ["removed", "forwarded"]))]
        override_headers: RawText,
        /// Families of answer headers of this route.
        #[schemars(with = "Option<Vec<Family>>")]
        headers: Vec<At<RawText>>,
        /// The answer to those refused, instead of the usual one.
        reject: RawReject,
        /// The longest request body of this route.
        #[schemars(with = "Option<hints::Size>")]
        max_body: RawText,
        /// From a request's head to the last byte of its answer, on this route.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
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
        #[schemars(with = "Option<OneOrMany<hints::Host>>")]
        host: OneOrMany<At<RawText>>,
        /// A path: /login, /v1/* (it and all below), /users/{id}.
        #[schemars(with = "Option<OneOrMany<hints::Path>>")]
        path: OneOrMany<At<RawText>>,
        /// Methods.
        #[schemars(with = "Option<OneOrMany<hints::Method>>")]
        methods: OneOrMany<At<RawText>>,
        /// Request headers and their exact values; `*` for any value.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        headers: Named<At<RawText>>,
        /// Whether other spellings of the path are under the limits too: loose (default) or exact.
        #[schemars(extend("enum" = ["loose", "exact"]))]
        spelling: RawText,
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
    /// The answer to refused requests. {limit}, {reason}, {retry_after} and {request_id} are replaced.
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
    /// Where clients are sent.
    "redirect"
    struct RawRedirectFields {
        /// The status: 301, 302, 303, 307 or 308. Default: 307.
        status: RawCount,
        /// A URL or a path, with variables: https://{host}{path}. The query goes along unless one is written.
        #[schemars(required)]
        to: RawText,
    }
}
