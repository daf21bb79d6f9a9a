//! Routes as they are written.

#[cfg(feature = "schema")]
use std::collections::BTreeMap;

use crate::raw::cors::RawCors;
use crate::raw::headers::RawHeaders;
#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
#[cfg(feature = "schema")]
use crate::raw::schema_types::Scalar;
use crate::raw::shape::{RawHeaderChanges, RawRewrite};
use crate::read::at::At;
use crate::read::report::{Problem, Report};
use crate::read::yaml_tree::{Node, Value};
use crate::read::{Named, OneOrMany, Read, mapping, wrong};

mapping! {
    /// A route: which requests it matches, where they go, and under which limits.
    "a route"
    struct RawRoute {
        /// Its name in metrics, logs and replays.
        name: RawText,
        /// Which requests the route matches. Default: all.
        matches = "match": RawMatch,
        /// The upstream to which requests are forwarded.
        upstream: RawText,
        /// The response, if the gateway answers these requests itself.
        respond: RawAnswer,
        /// Redirects clients: https://{host}{path}, or {status: 308, to: …}.
        redirect: RawRedirect,
        /// Lists of clients that are answered 403, in addition to the top-level `deny`.
        deny: OneOrMany<At<RawText>>,
        /// Lists of the only clients that are admitted, instead of the top-level `allow`.
        allow: OneOrMany<At<RawText>>,
        /// CORS preflight requests: counted (default), or exempt from limits and authentication.
        #[schemars(extend("enum" = ["counted", "exempt"]))]
        preflight: RawText,
        /// Whether these requests are checked by auth.check: on (default) or off.
        #[schemars(extend("enum" = ["on", "off"]))]
        check: RawText,
        /// Cross-origin resource sharing (CORS), instead of the top-level `cors`; or off.
        cors: RawCors,
        /// The limits of these requests; all of them must admit a request.
        limits: Vec<At<RawText>>,
        /// The path that is forwarded: normalized (default) or original.
        #[schemars(extend("enum" = ["normalized", "original"]))]
        forward_path: RawText,
        /// Paths with an encoded slash: refused (default), kept (forwarded as %2F), or decoded (a slash like any other).
        #[schemars(extend("enum" = ["refused", "kept", "decoded"]))]
        encoded_slash: RawText,
        /// A prefix that is removed from the path before forwarding: with /api, /api/x is forwarded as /x.
        strip_prefix: RawText,
        /// The path that is forwarded instead: /v2/{rest}, or {match: REGEX, to: /x/$1}.
        rewrite: RawRewrite,
        /// Changes of request headers before forwarding, after the top-level ones.
        request_headers: RawHeaderChanges,
        /// Changes of response headers, after the top-level ones; also for refusals.
        response_headers: RawHeaderChanges,
        /// X-Original-URL, X-HTTP-Method-Override and similar headers: removed (default) or forwarded.
        #[schemars(extend("enum" = ["removed", "forwarded"]))]
        override_headers: RawText,
        /// The rate limit headers of responses on this route.
        headers: RawHeaders,
        /// The response to refused requests, instead of the default.
        reject: RawReject,
        /// The maximum size of a request body on this route.
        #[schemars(with = "Option<hints::Size>")]
        max_body: RawText,
        /// The time from the head of a request to the last byte of its response, on this route.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// How important its requests are where the upstream has `overload`: critical, default or sheddable.
        #[schemars(extend("enum" = ["critical", "default", "sheddable"]))]
        priority: RawText,
    }
}

mapping! {
    /// Which requests a route takes; all that is given has to fit.
    "match"
    struct RawMatch {
        /// The name of a listener.
        listener: RawText,
        /// Host names: api.example.com, *.example.com for all subdomains, or {regex: …}.
        #[schemars(with = "Option<OneOrMany<OrRegex<hints::Host>>>")]
        host: OneOrMany<At<RawPattern>>,
        /// Paths: /login, /v1/* (/v1 and everything below it), /users/{id}, or {regex: …}.
        #[schemars(with = "Option<OneOrMany<OrRegex<hints::Path>>>")]
        path: OneOrMany<At<RawPattern>>,
        /// Methods.
        #[schemars(with = "Option<OneOrMany<hints::Method>>")]
        methods: OneOrMany<At<RawText>>,
        /// Request headers with their exact values; `*` matches any value.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        headers: Named<At<RawText>>,
        /// Query parameters with their exact values or {regex: …}; `*` matches any value.
        #[schemars(with = "Option<BTreeMap<String, OrRegex<Scalar>>>")]
        query: Named<At<RawPattern>>,
        /// Whether the limits also apply to other spellings of the path: loose (default) or exact.
        #[schemars(extend("enum" = ["loose", "exact"]))]
        spelling: RawText,
    }
}

mapping! {
    /// A regular expression that matches from beginning to end.
    "a regular expression"
    struct RawRegex {
        /// The expression, in the syntax of the Rust crate regex.
        #[schemars(required)]
        regex: RawText,
    }
}

/// A text, or `{regex: TEXT}`.
#[derive(Clone, Debug)]
pub(crate) enum RawPattern {
    Text(String),
    Regex(RawRegex),
}

impl Read for RawPattern {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(_) => {
                let raw = RawRegex::read(node, report)?;
                if raw.regex.is_none() && raw.wrong.is_empty() {
                    report.error(Problem::new(node.at, "expected a value or {regex: …}"));
                }
                raw.regex.is_some().then_some(Self::Regex(raw))
            }
            _ => String::read(node, report).map(Self::Text),
        }
    }
}

mapping! {
    /// A response by the gateway itself.
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
    /// A redirect.
    "redirect"
    struct RawRedirectFields {
        /// The status: 301, 302, 303, 307 or 308. Default: 307.
        status: RawCount,
        /// A URL or a path, with variables: https://{host}{path}. The query of the request is kept unless the URL has
        /// one.
        #[schemars(required)]
        to: RawText,
    }
}

crate::read::shorthand! {
    /// A redirect: a URL, or a mapping.
    RawRedirect(RawRedirectFields.to);
}

/// An answer of the gateway itself: a mapping, or `usage`.
#[derive(Clone, Debug)]
pub(crate) enum RawAnswer {
    Fixed(Box<RawRespond>),
    Usage,
}

impl Read for RawAnswer {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text == "usage" => Some(Self::Usage),
            Value::Scalar(text) if text.parse::<u16>().is_ok() => {
                wrong(node, "respond (a mapping)", Some(format!("write {{status: {text}}}")), report)
            }
            _ => RawRespond::read(node, report).map(|fields| Self::Fixed(Box::new(fields))),
        }
    }
}

/// A value, or a regular expression.
#[cfg(feature = "schema")]
pub(crate) struct OrRegex<T>(std::marker::PhantomData<T>);

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawAnswer, "Answer" => generator crate::raw::hints::word_or::<RawRespond>(&["usage"], generator);
    RawRedirect, "Redirect" => generator crate::raw::hints::text_or::<RawRedirectFields>(".+", generator);
    OrRegex<T> where T, "OrRegex" => generator {
        let (value, regex) = (generator.subschema_for::<T>(), generator.subschema_for::<RawRegex>());
        schemars::json_schema!({ "anyOf": [value, regex] })
    };
}
