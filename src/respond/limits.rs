//! What clients are told of their limits: headers on admitted answers, and the refusal.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use sluicegate_limiter::{Refusal, Span};

use super::Writer;
use super::problem::{NO_STORE, Refused, X_REQUEST_ID, fixed, problem};
use crate::config::{HeaderFamilies, Reject};
use crate::forward::Body;
use crate::limit::{Decision, Verdict};
use crate::listen::Connection;
use crate::pipeline::Judged;
use crate::snapshot::Route;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// What a client is told to wait when nobody can foretell: a place becomes free when another request ends.
const BUSY: Span = Span::SECOND;

/// The headers that tell of limits, made before the answer is there.
#[derive(Default)]
pub struct Told {
    /// Limit, remaining, reset.
    x_ratelimit: Option<[HeaderValue; 3]>,
    ietf: Option<HeaderValue>,
    policies: Option<HeaderValue>,
    retry_after: Option<HeaderValue>,
    families: Option<HeaderFamilies>,
}

/// The verdict that headers speak of: that of the enforced limit which refuses longest, or else of the one
/// closest to its end.
pub fn speaker(route: &Route, asked: &[usize], decision: &Decision) -> Option<usize> {
    let enforced = |at: &usize| route.limits[asked[*at]].limit.enforces();
    let all = (0..decision.verdicts.len()).filter(enforced);
    if decision.admitted {
        let share = |at: &usize, other: &usize| {
            let (a, b) = (decision.verdicts[*at].standing, decision.verdicts[*other].standing);
            // a.remaining / a.capacity against b's, without dividing
            let left = u128::from(a.remaining) * u128::from(b.capacity);
            left.cmp(&(u128::from(b.remaining) * u128::from(a.capacity)))
        };
        return all.min_by(share);
    }
    // Of equals the first: `max_by_key` would take the last.
    all.rev()
        .filter(|at| decision.verdicts[*at].answer.is_err())
        .max_by_key(|at| wait(&decision.verdicts[*at]))
}

/// How long a verdict refuses; for ever is longest.
fn wait(verdict: &Verdict) -> Span {
    match verdict.answer {
        Ok(_) => Span::ZERO,
        Err(Refusal::Until(span)) => span,
        Err(Refusal::Busy) => BUSY,
        Err(Refusal::Never) => Span::MAX,
    }
}

/// The wait that a refused client is told, or `None` if it need not come back with this request.
pub fn retry_after(verdict: &Verdict) -> Option<Span> {
    (verdict.answer != Err(Refusal::Never)).then(|| wait(verdict))
}

impl Told {
    /// What an admitted request is told.
    pub fn admitted(connection: &Connection, route: &Route, asked: &[usize], decision: &Decision) -> Self {
        Self::new(connection, route, asked, decision, None)
    }

    fn new(
        connection: &Connection,
        route: &Route,
        asked: &[usize],
        decision: &Decision,
        retry_after: Option<u64>,
    ) -> Self {
        let Some(at) = speaker(route, asked, decision) else { return Self::default() };
        let limit = &route.limits[asked[at]];
        let standing = decision.verdicts[at].standing;
        let scratch = &connection.worker.scratch;
        let reset = standing.reset.ceil_secs();
        let number = |number| scratch.value(|out| out.number(number));
        let families = route.headers;
        Self {
            x_ratelimit: families
                .x_ratelimit
                .then(|| [limit.shown.clone(), number(standing.remaining), number(reset)]),
            ietf: families.ietf.then(|| {
                scratch.value(|out| {
                    out.bytes(b"\"");
                    out.bytes(limit.limit.config.name.as_bytes());
                    out.bytes(b"\";r=");
                    out.number(standing.remaining);
                    out.bytes(b";t=");
                    // Not later than Retry-After, which wins where both are given.
                    out.number(retry_after.unwrap_or(reset));
                })
            }),
            policies: route.policies.clone().filter(|_| families.ietf),
            retry_after: retry_after.map(number),
            families: Some(families),
        }
    }

    /// Writes the headers over whatever the upstream says under the same names.
    pub fn write(self, headers: &mut HeaderMap) {
        if let Some([limit, remaining, reset]) = self.x_ratelimit {
            headers.insert(LIMIT, limit);
            headers.insert(REMAINING, remaining);
            headers.insert(RESET, reset);
        }
        if let Some(value) = self.ietf {
            headers.insert(RATELIMIT, value);
        }
        if let Some(policies) = self.policies {
            headers.insert(POLICY, policies);
        }
        if let (Some(seconds), Some(families)) = (self.retry_after, self.families) {
            if families.x_ratelimit {
                headers.insert(X_RETRY_AFTER, seconds.clone());
            }
            if families.retry_after {
                headers.insert(header::RETRY_AFTER, seconds);
            }
        }
    }
}

/// The answer to a refused request.
pub fn refusal(connection: &Connection, parts: &Parts, judged: &Judged<'_>) -> Response<Body> {
    let Judged { route, asked, decision, .. } = judged;
    let speaks = speaker(route, asked, decision);
    let wait = speaks.and_then(|at| retry_after(&decision.verdicts[at]));
    let seconds = wait.map(|wait| wait.ceil_secs().max(1));
    let id = connection.worker.request_id();
    let name = speaks.map_or("", |at| route.limits[asked[at]].limit.config.name.as_str());

    let mut response = if is_grpc(parts) {
        grpc(wait)
    } else if let Some(reject) = &route.reject {
        custom(reject, name, seconds, &id)
    } else {
        let violated = (0..decision.verdicts.len())
            .map(|at| (&route.limits[asked[at]].limit, &decision.verdicts[at]))
            .filter(|(limit, verdict)| limit.enforces() && verdict.answer.is_err())
            .map(|(limit, _)| limit.config.name.as_str());
        let refused = Refused { kind: QUOTA_EXCEEDED, policies: violated.collect(), retry_after: seconds };
        let detail = |out: &mut Writer<'_>| match seconds {
            Some(seconds) => {
                out.bytes(b"the quota is used up; try again in ");
                out.number(seconds);
                out.bytes(if seconds == 1 { b" second" } else { b" seconds" });
            }
            None => out.bytes(
                b"this request costs more than the quota can ever hold; it will not be admitted later",
            ),
        };
        problem(&connection.worker, StatusCode::TOO_MANY_REQUESTS, &detail, id.clone(), Some(&refused))
    };
    Told::new(connection, route, asked, decision, seconds).write(response.headers_mut());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(X_REQUEST_ID, id);
    response
}

fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.strip_prefix(b"application/grpc")
        .is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'+' | b';'))
}

/// A refused call gets its status without a message (gRPC over HTTP/2, "Trailers-Only"): an HTTP 429 would be
/// taken for UNAVAILABLE and tried again at once.
fn grpc(wait: Option<Span>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static("8"));
    headers.insert("grpc-message", HeaderValue::from_static("rate limit exceeded"));
    // Milliseconds, rounded up; -1 tells the client not to try again.
    let pushback =
        wait.map_or(HeaderValue::from_static("-1"), |wait| wait.ceil_micros().div_ceil(1_000).max(1).into());
    headers.insert("grpc-retry-pushback-ms", pushback);
    response
}

fn custom(reject: &Reject, limit: &str, seconds: Option<u64>, id: &HeaderValue) -> Response<Body> {
    let seconds = seconds.map_or_else(String::new, |seconds| seconds.to_string());
    let body = reject
        .body
        .replace("{limit}", limit)
        .replace("{retry_after}", &seconds)
        .replace("{request_id}", id.to_str().unwrap_or_default());
    fixed(reject.status, Bytes::from(body), reject.content_type.clone())
}
