//! What clients are told of their limits: headers on admitted answers, and the refusal.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use sluicegate_limiter::{Refusal, Span, Standing};

use super::grpc::{RESOURCE_EXHAUSTED, grpc, is_grpc};
use super::problem::{NO_STORE, PROBLEM_JSON, X_REQUEST_ID};
use crate::config::{HeaderFamilies, Reject};
use crate::forward::Body;
use crate::limit::{Decision, Limit, Verdict};
use crate::listen::Connection;
use crate::pipeline::{AskedLimit, Judged};
use crate::snapshot::{Route, Said};
use crate::worker::Worker;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What a client is told to wait when nobody can foretell: a place becomes free when another request ends.
const BUSY: Span = Span::SECOND;

/// What the headers say: taken from the decision before the answer is there, written when it is.
#[derive(Clone, Copy)]
pub struct Told<'s> {
    limit: &'s Limit,
    said: &'s Said,
    remaining: u64,
    /// Seconds.
    reset: u64,
}

/// The verdict that headers speak of: that of the enforced limit which refuses longest, or else of the one
/// closest to its end.
pub fn speaker(asked: &[AskedLimit<'_>], decision: &Decision) -> Option<usize> {
    let enforced = |at: &usize| asked[*at].limit.enforces();
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
        Err(Refusal::Until(span) | Refusal::Banned(span)) => span,
        Err(Refusal::Busy) => BUSY,
        Err(Refusal::Never) => Span::MAX,
    }
}

/// The wait that a refused client is told, or `None` if it need not come back with this request.
pub fn retry_after(verdict: &Verdict) -> Option<Span> {
    (verdict.answer != Err(Refusal::Never)).then(|| wait(verdict))
}

impl<'s> Told<'s> {
    /// What a request is told, if any limit speaks.
    pub fn new(said: &'s Said, asked: &[AskedLimit<'s>], decision: &Decision) -> Option<Self> {
        let at = speaker(asked, decision)?;
        let standing = decision.verdicts[at].standing;
        let (remaining, reset) = (standing.remaining, standing.reset.ceil_secs());
        Some(Self { limit: asked[at].limit, said, remaining, reset })
    }

    /// What a request is told that spends nothing, if any limit speaks: the one that is closest to its end.
    pub(super) fn of(said: &'s Said, usage: &[(AskedLimit<'s>, Standing)]) -> Option<Self> {
        let left = |standing: &Standing, other: &Standing| {
            u128::from(standing.remaining) * u128::from(other.capacity)
        };
        let (asked, standing) = usage.iter().min_by(|(_, a), (_, b)| left(a, b).cmp(&left(b, a)))?;
        let (remaining, reset) = (standing.remaining, standing.reset.ceil_secs());
        Some(Self { limit: asked.limit, said, remaining, reset })
    }

    /// Writes the headers over whatever the upstream says under the same names.
    pub fn write(self, worker: &Worker, route: &Route, headers: &mut HeaderMap) {
        let scratch = &worker.scratch;
        if route.headers.x_ratelimit {
            headers.insert(LIMIT, scratch.number(self.limit.config.quota.shown()));
            headers.insert(REMAINING, scratch.number(self.remaining));
            headers.insert(RESET, scratch.number(self.reset));
        }
        if route.headers.ietf {
            headers.insert(RATELIMIT, self.ietf(worker, self.reset));
            if let Some(policies) = &self.said.policies {
                headers.insert(POLICY, policies.clone());
            }
        }
    }

    /// The value of RateLimit: what is left, and the seconds until there is more.
    fn ietf(self, worker: &Worker, seconds: u64) -> HeaderValue {
        worker.scratch.value(|out| {
            out.bytes(b"\"");
            out.bytes(self.limit.config.name.as_bytes());
            out.bytes(b"\";r=");
            out.number(self.remaining);
            out.bytes(b";t=");
            out.number(seconds);
        })
    }

    /// Writes the headers of a refusal: a copy of the route's, whose first values are those that change.
    fn write_refusal(
        self,
        worker: &Worker,
        route: &Route,
        seconds: Option<u64>,
        id: HeaderValue,
    ) -> HeaderMap {
        let mut headers = self.said.refusal.clone();
        let mut values = headers.values_mut();
        let mut set = |value| {
            if let Some(next) = values.next() {
                *next = value;
            }
        };
        let scratch = &worker.scratch;
        let wait = scratch.number(seconds.unwrap_or(0));
        set(id);
        if route.headers.x_ratelimit {
            set(scratch.number(self.limit.config.quota.shown()));
            set(scratch.number(self.remaining));
            set(scratch.number(self.reset));
            set(wait.clone());
        }
        if route.headers.ietf {
            // Not later than Retry-After, which wins where both are given.
            set(self.ietf(worker, seconds.unwrap_or(self.reset)));
        }
        if route.headers.retry_after {
            set(wait);
        }
        if seconds.is_none() {
            headers.remove(X_RETRY_AFTER);
            headers.remove(header::RETRY_AFTER);
        }
        headers
    }
}

/// The headers of every refusal of a route, made once: those that change come first, in the order in which they
/// are filled in.
pub fn refusal_headers(families: HeaderFamilies, policies: Option<&HeaderValue>) -> HeaderMap {
    let empty = HeaderValue::from_static("");
    let mut headers = HeaderMap::new();
    headers.insert(X_REQUEST_ID, empty.clone());
    if families.x_ratelimit {
        for name in [LIMIT, REMAINING, RESET, X_RETRY_AFTER] {
            headers.insert(name, empty.clone());
        }
    }
    if families.ietf {
        headers.insert(RATELIMIT, empty.clone());
    }
    if families.retry_after {
        headers.insert(header::RETRY_AFTER, empty);
    }
    if let Some(policies) = policies.filter(|_| families.ietf) {
        headers.insert(POLICY, policies.clone());
    }
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    headers
}

/// The answer to a refused request.
pub fn refusal(
    connection: &Connection,
    parts: &Parts,
    judged: &Judged<'_>,
    id: HeaderValue,
) -> Response<Body> {
    let Judged { route, said, asked, decision, .. } = judged;
    let worker = &connection.worker;
    let speaks = speaker(asked, decision);
    let wait = speaks.and_then(|at| retry_after(&decision.verdicts[at]));
    let seconds = wait.map(|wait| wait.ceil_secs().max(1));

    let mut response = Response::new(Body::empty());
    if let Some(told) = Told::new(said, asked, decision) {
        *response.headers_mut() = told.write_refusal(worker, route, seconds, id.clone());
    }
    if is_grpc(parts) {
        grpc(&mut response, RESOURCE_EXHAUSTED, wait);
    } else if let Some(reject) = &route.reject {
        let name = speaks.map_or("", |at| asked[at].limit.config.name.as_str());
        custom(&mut response, reject, name, seconds, &id);
    } else {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.body_mut() = Body::full(exceeded(worker, judged, seconds, &id));
    }
    response
}

/// The usual body of a refusal, written by hand because it is written under attack. Nothing in it needs escaping:
/// names of limits are checked to be plain, the rest is our own.
fn exceeded(worker: &Worker, judged: &Judged<'_>, seconds: Option<u64>, id: &HeaderValue) -> Bytes {
    let Judged { asked, decision, .. } = judged;
    let violated = (0..decision.verdicts.len())
        .map(|at| (asked[at].limit, &decision.verdicts[at]))
        .filter(|(limit, verdict)| limit.enforces() && verdict.answer.is_err());
    let banned = violated.clone().any(|(_, verdict)| matches!(verdict.answer, Err(Refusal::Banned(_))));
    worker.scratch.bytes(|out| {
        out.bytes(b"{\"type\":\"https://iana.org/assignments/http-problem-types#");
        out.bytes(if banned { b"abnormal-usage-detected" } else { b"quota-exceeded" });
        out.bytes(b"\",\"title\":\"Too Many Requests\",\"status\":429,\"detail\":\"");
        match seconds {
            Some(seconds) => {
                out.bytes(if banned {
                    b"too many requests were refused, and now all are for a while; try again in "
                } else {
                    b"the quota is used up; try again in "
                });
                out.number(seconds);
                out.bytes(if seconds == 1 { b" second" } else { b" seconds" });
            }
            None => out.bytes(
                b"this request costs more than the quota can ever hold; it will not be admitted later",
            ),
        }
        out.bytes(b"\",\"request_id\":\"");
        out.bytes(id.as_bytes());
        out.bytes(b"\",\"violated-policies\":[");
        for (at, (limit, _)) in violated.enumerate() {
            out.bytes(if at == 0 { b"\"" } else { b",\"" });
            out.bytes(limit.config.name.as_bytes());
            out.bytes(b"\"");
        }
        out.bytes(b"]");
        if let Some(seconds) = seconds {
            out.bytes(b",\"retry_after\":");
            out.number(seconds);
        }
        out.bytes(b"}\n");
    })
}

fn custom(
    response: &mut Response<Body>,
    reject: &Reject,
    limit: &str,
    seconds: Option<u64>,
    id: &HeaderValue,
) {
    let seconds = seconds.map_or_else(String::new, |seconds| seconds.to_string());
    let body = reject
        .body
        .replace("{limit}", limit)
        .replace("{retry_after}", &seconds)
        .replace("{request_id}", id.to_str().unwrap_or_default());
    *response.status_mut() = reject.status;
    *response.body_mut() = Body::full(Bytes::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, reject.content_type.clone());
}
