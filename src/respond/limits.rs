//! What clients are told of their limits: headers on admitted answers, and the refusal.

use bytes::Bytes;
use http::{StatusCode, header};
use sluicegate_limiter::{Refusal, Span, Standing, Time};

use super::grpc::{RESOURCE_EXHAUSTED, grpc, is_grpc};
use super::problem::{NO_STORE, PROBLEM_JSON, X_REQUEST_ID};
use crate::config::{HeaderFamilies, Reject};
use crate::limit::{Decision, Limit, Verdict};
use crate::message::{RequestId, Response};
use crate::refusal_reason::RefusalReason;
use crate::request::verdict::{AskedLimit, Judged};
use crate::snapshot::{Policies, Route, Said};
use crate::upstream::Body;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::number::write_decimal;

const LIMIT: &str = "x-ratelimit-limit";
const REMAINING: &str = "x-ratelimit-remaining";
const RESET: &str = "x-ratelimit-reset";
const X_RETRY_AFTER: &str = "x-ratelimit-retry-after";
const POLICY: &str = "ratelimit-policy";
const RATELIMIT: &str = "ratelimit";
const RETRY_AFTER: &str = "retry-after";

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
    now: Time,
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
    pub fn new(judged: &Judged<'s>) -> Option<Self> {
        Some(Self::by(speaker(&judged.asked, &judged.decision)?, judged))
    }

    /// What the limit at this place says.
    fn by(at: usize, judged: &Judged<'s>) -> Self {
        let standing = judged.decision.verdicts[at].standing;
        let (remaining, reset) = (standing.remaining, standing.reset.ceil_secs());
        Self { limit: judged.asked[at].limit, said: judged.said, remaining, reset, now: judged.now }
    }

    /// What a request is told that spends nothing, if any limit speaks: the one that is closest to its end.
    pub(super) fn of(said: &'s Said, usage: &[(AskedLimit<'s>, Standing)], now: Time) -> Option<Self> {
        let left = |standing: &Standing, other: &Standing| {
            u128::from(standing.remaining) * u128::from(other.capacity)
        };
        let (asked, standing) = usage.iter().min_by(|(_, a), (_, b)| left(a, b).cmp(&left(b, a)))?;
        let (remaining, reset) = (standing.remaining, standing.reset.ceil_secs());
        Some(Self { limit: asked.limit, said, remaining, reset, now })
    }

    /// Writes the headers over whatever the upstream says under the same names.
    pub fn write(self, route: &Route, headers: &mut Headers) {
        let families = route.headers;
        if families.x_ratelimit {
            headers.remove_all(&[LIMIT, REMAINING, RESET]);
        }
        if families.ietf {
            let with_policy = !matches!(self.said.policies, Policies::Fixed(None));
            headers.remove_all(if with_policy { &[RATELIMIT, POLICY] } else { &[RATELIMIT] });
        }
        self.add(families, self.reset, headers);
        if families.ietf {
            add_policies(&self.said.policies, self.now, headers);
        }
    }

    /// Adds the headers that change: what is left, and the seconds until there is more.
    fn add(self, families: HeaderFamilies, seconds: u64, headers: &mut Headers) {
        if families.x_ratelimit {
            headers.append_unchecked(LIMIT.as_bytes(), self.limit.shown.as_bytes());
            headers.append_number(REMAINING, self.remaining);
            headers.append_number(RESET, self.reset);
        }
        if families.ietf {
            headers.append_with(RATELIMIT, |out| {
                out.push(b'"');
                out.extend_from_slice(self.limit.config.name.as_bytes());
                out.extend_from_slice(b"\";r=");
                write_decimal(out, self.remaining);
                out.extend_from_slice(b";t=");
                write_decimal(out, seconds);
            });
        }
    }

    /// Adds the headers of a refusal.
    fn add_refusal(self, families: HeaderFamilies, seconds: Option<u64>, headers: &mut Headers) {
        // Not later than Retry-After, which wins where both are given.
        self.add(families, seconds.unwrap_or(self.reset), headers);
        let Some(seconds) = seconds else { return };
        if families.x_ratelimit {
            headers.append_number(X_RETRY_AFTER, seconds);
        }
        if families.retry_after {
            headers.append_number(RETRY_AFTER, seconds);
        }
    }
}

fn add_policies(policies: &Policies, now: Time, headers: &mut Headers) {
    match policies {
        Policies::Fixed(None) => {}
        Policies::Fixed(Some(policies)) => headers.append_value(POLICY, policies),
        Policies::Moving(policies) => headers.append_with(POLICY, |out| {
            for (at, (text, windows)) in policies.iter().enumerate() {
                out.extend_from_slice(if at == 0 { b"" } else { b", " });
                out.extend_from_slice(text.as_bytes());
                if let Some(windows) = windows {
                    write_decimal(out, windows.length(now).ceil_secs());
                }
            }
        }),
    }
}

/// What is the same in all refusals of a route.
pub fn refusal_headers(families: HeaderFamilies, policies: &Policies) -> Headers {
    let mut headers = Headers::new();
    if let Policies::Fixed(Some(policies)) = policies
        && families.ietf
    {
        headers.append_value(POLICY, policies);
    }
    headers.append("cache-control", NO_STORE);
    headers.append("content-type", PROBLEM_JSON);
    headers
}

/// The answer to a request that its limits refuse. `refused` is told the reason: that of the limit which the headers name.
pub fn refusal(
    parts: &RequestHead,
    judged: &Judged<'_>,
    id: &RequestId,
    refused: impl FnOnce(RefusalReason),
) -> Response {
    let Judged { route, said, asked, decision, .. } = judged;
    let speaks = speaker(asked, decision);
    let wait = speaks.and_then(|at| retry_after(&decision.verdicts[at]));
    let seconds = wait.map(|wait| wait.ceil_secs().max(1));
    let banned = speaks.is_some_and(|at| matches!(decision.verdicts[at].answer, Err(Refusal::Banned(_))));
    let reason = if banned { RefusalReason::Ban } else { RefusalReason::Limit };
    refused(reason);

    let mut response = Response::new(StatusCode::TOO_MANY_REQUESTS, Body::empty());
    let headers = &mut response.headers;
    headers.append_all(&said.refusal);
    if route.headers.ietf && matches!(said.policies, Policies::Moving(_)) {
        add_policies(&said.policies, judged.now, headers);
    }
    headers.append(X_REQUEST_ID, id);
    if let Some(at) = speaks {
        Told::by(at, judged).add_refusal(route.headers, seconds, headers);
    }
    if is_grpc(parts) {
        response.status = StatusCode::OK;
        let limit = speaks.map(|at| asked[at].limit.config.name.as_str());
        grpc(headers, RESOURCE_EXHAUSTED, (reason, limit), wait);
    } else if let Some(reject) = &route.reject {
        let name = speaks.map_or("", |at| asked[at].limit.config.name.as_str());
        custom(&mut response, reject, (reason, name), seconds, id);
    } else {
        response.body = Body::text(exceeded(judged, reason, seconds, id));
    }
    response
}

/// The usual body of a refusal, written by hand because it is written under attack. Nothing in it needs escaping:
/// names of limits are checked to be plain, the rest is our own.
fn exceeded(judged: &Judged<'_>, reason: RefusalReason, seconds: Option<u64>, id: &RequestId) -> Vec<u8> {
    let Judged { asked, decision, .. } = judged;
    let violated = (0..decision.verdicts.len())
        .map(|at| (asked[at].limit, &decision.verdicts[at]))
        .filter(|(limit, verdict)| limit.enforces() && verdict.answer.is_err());
    let banned = reason == RefusalReason::Ban;
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"type\":\"https://iana.org/assignments/http-problem-types#");
    out.extend_from_slice(if banned { b"abnormal-usage-detected" } else { b"quota-exceeded" });
    out.extend_from_slice(b"\",\"title\":\"Too Many Requests\",\"status\":429,\"detail\":\"");
    match seconds {
        Some(seconds) => {
            out.extend_from_slice(if banned {
                b"temporarily banned after too many refused requests; try again in "
            } else {
                b"the quota is used up; try again in "
            });
            write_decimal(&mut out, seconds);
            out.extend_from_slice(if seconds == 1 { b" second" } else { b" seconds" });
        }
        None => out.extend_from_slice(
            b"this request costs more than the quota can ever hold; it will not be admitted later",
        ),
    }
    // The names of the reasons, in one piece with what stands around them.
    out.extend_from_slice(match reason {
        RefusalReason::Ban => b"\",\"reason\":\"ban\",\"request_id\":\"",
        _ => b"\",\"reason\":\"limit\",\"request_id\":\"",
    });
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\",\"violated-policies\":[");
    for (at, (limit, _)) in violated.enumerate() {
        out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(limit.config.name.as_bytes());
        out.extend_from_slice(b"\"");
    }
    out.extend_from_slice(b"]");
    if let Some(seconds) = seconds {
        out.extend_from_slice(b",\"retry_after\":");
        write_decimal(&mut out, seconds);
    }
    out.extend_from_slice(b"}\n");
    out
}

fn custom(
    response: &mut Response,
    reject: &Reject,
    (reason, limit): (RefusalReason, &str),
    seconds: Option<u64>,
    id: &RequestId,
) {
    let seconds = seconds.map_or_else(String::new, |seconds| seconds.to_string());
    let body = reject
        .body
        .replace("{limit}", limit)
        .replace("{reason}", reason.name())
        .replace("{retry_after}", &seconds)
        .replace("{request_id}", id.as_str());
    response.status = reject.status;
    response.body = Body::full(Bytes::from(body));
    response.headers.insert(header::CONTENT_TYPE, &reject.content_type);
}
