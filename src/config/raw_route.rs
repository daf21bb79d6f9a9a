//! Routes as they are written.

use std::collections::BTreeMap;

use super::forms::{RawAnswer, RawCount};
use super::node::Node;
use super::raw::RawText;
use super::read::{At, Later, Named, OneOrMany, Read, entries, mapping, not_available, unknown_key};
use super::report::{Place, Report};
use super::schema::{Family, Scalar};

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
        /// Lists of clients that are answered 403, besides those on top.
        deny: OneOrMany<At<RawText>>,
        /// Lists of the only clients that are let in, instead of those on top.
        allow: OneOrMany<At<RawText>>,
        /// CORS preflight requests: counted (default), or exempt from limits and authentication.
        #[schemars(extend("enum" = ["counted", "exempt"]))]
        preflight: RawText,
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
        /// From a request's head to the last byte of its answer, on this route.
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
