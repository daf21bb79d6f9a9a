//! Routes: which requests, and what becomes of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::language::query_match::{self, QueryMatch};
use crate::model::cors::CorsConfig;
use crate::model::lists::Access;
use crate::model::reference::Reference;
use crate::model::serialize::{
    cors, header_changes, required_headers, seconds_or_null, spelling, status, texts,
};
use crate::{HeaderChange, PathChange, UriTemplate, Variable};
use crate::{HostPattern, PathError, Paths, normalize, normalize_encoded_slashes};
use sluicegate_overload::Priority;

/// A route.
#[derive(Clone, Debug, Serialize)]
pub struct RouteConfig {
    /// Its name.
    pub name: String,
    /// Which requests it takes.
    #[serde(rename = "match")]
    pub matches: Match,
    /// Which clients it admits.
    #[serde(flatten)]
    pub access: Access,
    /// Whether they are checked outside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
    /// Which pages of other origins may read their answers; `None` where the gateway says nothing of that.
    #[serde(serialize_with = "cors")]
    pub cors: Option<Arc<CorsConfig>>,
    /// What becomes of them.
    #[serde(flatten)]
    pub action: Action,
    /// The limits of its requests.
    pub limits: Vec<Reference>,
    /// The answer headers that tell of limits.
    pub headers: HeaderFamilies,
    /// The answer to those refused, instead of the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject: Option<Reject>,
    /// The longest request body in bytes.
    pub max_body: Option<u64>,
    /// From a request's head to the last byte of its answer; `None` for no bound.
    #[serde(serialize_with = "seconds_or_null")]
    pub timeout: Option<Duration>,
    /// How important its requests are.
    #[serde(serialize_with = "crate::model::overload::name")]
    pub priority: Priority,
    /// How its requests and answers are shaped.
    #[serde(flatten)]
    pub shape: ShapeConfig,
}

/// How the requests and answers of a route are shaped: what stands on top of the file, and then the route's own.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShapeConfig {
    /// Headers of requests that are forwarded.
    #[serde(rename = "request_headers", serialize_with = "header_changes")]
    pub request: Vec<HeaderChange>,
    /// Headers of all answers.
    #[serde(rename = "response_headers", serialize_with = "header_changes")]
    pub answer: Vec<HeaderChange>,
    /// The path that is forwarded.
    #[serde(flatten)]
    pub path: PathChange,
}

impl RouteConfig {
    /// What an encoded slash in a path of its requests means.
    pub fn encoded_slash(&self) -> EncodedSlash {
        match self.action {
            Action::Forward { encoded_slash, .. } => encoded_slash,
            Action::Usage | Action::Redirect { .. } | Action::Respond { .. } => EncodedSlash::Refused,
        }
    }

    /// The normal form of the path of one of its requests.
    ///
    /// # Errors
    /// If servers could read the path in more than one way, or if it has an encoded slash that the route does not accept.
    pub fn normal_path<'a>(&self, path: &'a str) -> Result<Cow<'a, str>, PathError> {
        match (normalize(path), self.encoded_slash()) {
            (Err(PathError::EncodedSlash), EncodedSlash::Kept) => {
                normalize_encoded_slashes(path).map(|(kept, _)| Cow::Owned(kept))
            }
            (Err(PathError::EncodedSlash), EncodedSlash::Decoded) => {
                normalize_encoded_slashes(path).map(|(_, decoded)| Cow::Owned(decoded))
            }
            (normal, _) => normal,
        }
    }

    /// All variables that its templates name.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let redirect = match &self.action {
            Action::Redirect { to, .. } => Some(to),
            _ => None,
        };
        let headers = self.shape.request.iter().chain(&self.shape.answer).filter_map(HeaderChange::template);
        let redirect = redirect.into_iter().flat_map(UriTemplate::variables);
        headers.flat_map(|template| template.variables()).chain(self.shape.path.variables()).chain(redirect)
    }
}

/// Which requests a route takes; all that is given has to fit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Match {
    /// The listener.
    pub listener: Option<Reference>,
    /// One of these hosts; empty for all.
    #[serde(rename = "host")]
    pub hosts: Vec<HostPattern>,
    /// One of these paths; empty for all.
    #[serde(rename = "path")]
    pub paths: Paths,
    /// One of these methods; empty for all.
    #[serde(serialize_with = "texts")]
    pub methods: Vec<Method>,
    /// Whether it takes CORS preflight requests for its methods too, and asks them for no limit and no credentials.
    #[serde(skip)]
    pub preflight: bool,
    /// These headers with these values; `None` for any value.
    #[serde(serialize_with = "required_headers")]
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// These query parameters.
    #[serde(serialize_with = "query_match::serialize")]
    pub query: Vec<QueryMatch>,
    /// Whether only the paths as they are written are meant, and no other spelling is under the route's limits.
    #[serde(rename = "spelling", serialize_with = "spelling")]
    pub exact_spelling: bool,
}

/// What becomes of an admitted request.
#[derive(Clone, Debug)]
pub enum Action {
    /// It is forwarded.
    Forward {
        /// The upstream.
        upstream: Reference,
        /// Whether the path goes out as it came in.
        original_path: bool,
        /// Whether paths with an encoded slash are accepted, and what it means.
        encoded_slash: EncodedSlash,
        /// Whether headers that ask for another path or method go out too.
        overrides: bool,
    },
    /// The client is told its own limits, which spends nothing.
    Usage,
    /// The client is sent elsewhere.
    Redirect {
        /// The status.
        status: StatusCode,
        /// Where to.
        to: UriTemplate,
    },
    /// It is answered by the gateway.
    Respond {
        /// The status.
        status: StatusCode,
        /// The body.
        body: String,
        /// Its type.
        content_type: HeaderValue,
    },
}

/// What an encoded slash (`%2F`) in a path means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EncodedSlash {
    /// The path is refused.
    #[default]
    Refused,
    /// It is part of its segment, and forwarded as it is.
    Kept,
    /// It is a slash like any other, and forwarded as one.
    Decoded,
}

/// An answer to refused requests that replaces the usual one.
#[derive(Clone, Debug, Serialize)]
pub struct Reject {
    /// The status.
    #[serde(serialize_with = "status")]
    pub status: StatusCode,
    /// The body, with its placeholders.
    pub body: String,
    /// Its type.
    #[serde(skip)]
    pub content_type: HeaderValue,
}

/// Families of answer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// X-RateLimit-Limit, -Remaining, -Reset, -Retry-After.
    pub x_ratelimit: bool,
    /// RateLimit and RateLimit-Policy.
    pub ietf: bool,
    /// Retry-After.
    pub retry_after: bool,
    /// What becomes of those that the upstream sends.
    pub upstream: UpstreamHeaders,
}

/// What becomes of rate limit headers in a response of the upstream. In its own 429 they are kept in any case, because they
/// tell when to come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamHeaders {
    /// The gateway's take their place.
    #[default]
    Replace,
    /// They stay, and the gateway sends none of that family.
    Keep,
    /// They get other names, beside the gateway's.
    Rename,
}

/// As a route writes it, so that it can stand among the other fields of one.
impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = match self {
            Self::Forward { upstream, original_path, encoded_slash, overrides } => json!({
                "upstream": upstream,
                "forward_path": if *original_path { "original" } else { "normalized" },
                "encoded_slash": encoded_slash,
                "override_headers": if *overrides { "forwarded" } else { "removed" },
            }),
            Self::Usage => json!({ "respond": "usage" }),
            Self::Redirect { status, to } => {
                json!({ "redirect": { "status": status.as_u16(), "to": to.text } })
            }
            Self::Respond { status, .. } => json!({ "respond": { "status": status.as_u16() } }),
        };
        value.serialize(serializer)
    }
}

/// The names of those that are on, and what becomes of the upstream's if that is not the default.
impl Serialize for HeaderFamilies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = [(self.x_ratelimit, "x-ratelimit"), (self.ietf, "ietf"), (self.retry_after, "retry-after")];
        let families = all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name);
        match self.upstream {
            UpstreamHeaders::Replace => serializer.collect_seq(families),
            upstream => {
                let families: Vec<&str> = families.collect();
                json!({ "families": families, "upstream": upstream }).serialize(serializer)
            }
        }
    }
}
