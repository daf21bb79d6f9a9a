//! Routes: which requests, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::cors::CorsConfig;
use super::lists::Access;
use super::{HostPattern, PathPattern};
use crate::{HeaderChange, PathChange, UriTemplate, Variable};

/// A route.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Its name.
    pub name: String,
    /// Which requests it takes.
    pub matches: Match,
    /// Which clients it admits.
    pub access: Access,
    /// Which pages of other origins may read their answers; `None` where the gateway says nothing of that.
    pub cors: Option<Arc<CorsConfig>>,
    /// What becomes of them.
    pub action: Action,
    /// Indices into [`Config::limits`](super::Config::limits).
    pub limits: Vec<usize>,
    /// The answer headers that tell of limits.
    pub headers: HeaderFamilies,
    /// The answer to those refused, instead of the usual one.
    pub reject: Option<Reject>,
    /// The longest request body in bytes.
    pub max_body: Option<u64>,
    /// From a request's head to the last byte of its answer; `None` for no bound.
    pub timeout: Option<Duration>,
    /// How its requests and answers are shaped.
    pub shape: ShapeConfig,
}

/// How the requests and answers of a route are shaped: what stands on top of the file, and then the route's own.
#[derive(Clone, Debug, Default)]
pub struct ShapeConfig {
    /// Headers of requests that are forwarded.
    pub request: Vec<HeaderChange>,
    /// Headers of all answers.
    pub answer: Vec<HeaderChange>,
    /// The path that is forwarded.
    pub path: PathChange,
}

impl RouteConfig {
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
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// An index into [`Config::listeners`](super::Config::listeners).
    pub listener: Option<usize>,
    /// One of these hosts; empty for all.
    pub hosts: Vec<HostPattern>,
    /// One of these paths; empty for all.
    pub paths: Vec<PathPattern>,
    /// One of these methods; empty for all.
    pub methods: Vec<Method>,
    /// Whether it takes CORS preflight requests for its methods too, and asks them for no limit and no credentials.
    pub preflight: bool,
    /// These headers with these values; `None` for any value.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// Whether only the paths as they are written are meant, and no other spelling is under the route's limits.
    pub exact_spelling: bool,
}

/// What becomes of an admitted request.
#[derive(Clone, Debug)]
pub enum Action {
    /// It is forwarded to an upstream: an index into [`Config::upstreams`](super::Config::upstreams).
    Forward {
        /// The index.
        upstream: usize,
        /// Whether the path goes out as it came in.
        original_path: bool,
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

/// An answer to refused requests that replaces the usual one.
#[derive(Clone, Debug)]
pub struct Reject {
    /// The status.
    pub status: StatusCode,
    /// The body, with its placeholders.
    pub body: String,
    /// Its type.
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
}
