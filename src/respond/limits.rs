//! Rate limit headers on responses to admitted requests, and the response to refused requests.

use bytes::Bytes;
use http::{StatusCode, header};
use sluicegate_limiter::{Refusal, Time, Usage};

use super::grpc::{RESOURCE_EXHAUSTED, grpc, is_grpc};
use super::problem::X_REQUEST_ID;
use super::static_headers::{POLICY, Policies, StaticHeaders};
use crate::limit::{Decided, DecidedLimit, Limit, SelectedLimit};
use crate::message::{LocalBody, LocalResponse, RequestId};
use crate::refusal_reason::RefusalReason;
use sluicegate_config::{Reject, UpstreamHeaders};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::number::write_decimal;

const LIMIT: &str = "x-ratelimit-limit";
const REMAINING: &str = "x-ratelimit-remaining";
const RESET: &str = "x-ratelimit-reset";
const X_RETRY_AFTER: &str = "x-ratelimit-retry-after";
const RATELIMIT: &str = "ratelimit";
const WARNING: &str = "x-ratelimit-warning";
const RETRY_AFTER: &str = "retry-after";

/// The decision of the limits of a request.
#[derive(Clone, Copy)]
pub struct LimitResults<'a, 's> {
    /// The limits with their verdicts.
    pub decided: Decided<'a, 's>,
    /// The headers that all responses to such requests share.
    pub static_headers: &'s StaticHeaders,
    /// The time of the decision.
    pub now: Time,
}

/// The rate limit headers of one response. They are taken from the decision, before the response is available.
pub struct RateLimitHeaders<'s> {
    limit: &'s Limit,
    static_headers: &'s StaticHeaders,
    remaining: u64,
    /// Seconds.
    reset: u64,
    now: Time,
    /// The limits that will soon refuse.
    warnings: Option<Box<[&'s Limit]>>,
}

impl<'s> RateLimitHeaders<'s> {
    /// The headers for this decision; `None` if no enforced limit applies.
    pub fn new(results: LimitResults<'_, 's>) -> Option<Self> {
        let reported = results.decided.at(results.decided.reported()?);
        let mut headers = Self::of_verdict(reported, results);
        if results.static_headers.warns {
            headers.warnings = warnings(results);
        }
        Some(headers)
    }

    /// The headers that report this verdict.
    fn of_verdict(reported: DecidedLimit<'_, 's>, results: LimitResults<'_, 's>) -> Self {
        let LimitResults { static_headers, now, .. } = results;
        let standing = reported.verdict.usage;
        let (remaining, reset) = (standing.remaining, standing.reset.ceil_secs());
        Self { limit: reported.selected.limit, static_headers, remaining, reset, now, warnings: None }
    }

    /// The headers of a response that spends nothing: they report the limit with the smallest remaining share.
    pub(super) fn of_usage(
        static_headers: &'s StaticHeaders,
        usage: &[(&SelectedLimit<'s>, Usage)],
        now: Time,
    ) -> Option<Self> {
        let left =
            |standing: &Usage, other: &Usage| u128::from(standing.remaining) * u128::from(other.capacity);
        let (selected, standing) = usage.iter().min_by(|(_, a), (_, b)| left(a, b).cmp(&left(b, a)))?;
        let (remaining, reset) = (standing.remaining, standing.reset.ceil_secs());
        Some(Self { limit: selected.limit, static_headers, remaining, reset, now, warnings: None })
    }

    /// Writes the headers of a response with this status, after those under the same names that the upstream sent were
    /// treated as the route says.
    pub fn write(&self, status: StatusCode, headers: &mut Headers) {
        let StaticHeaders { families, policies, .. } = self.static_headers;
        let upstream = match status {
            StatusCode::TOO_MANY_REQUESTS => UpstreamHeaders::Keep,
            _ => families.upstream,
        };
        if families.x_ratelimit && make_room(&[LIMIT, REMAINING, RESET], upstream, headers) {
            self.add_x_ratelimit(headers);
        }
        let has_policy = !matches!(policies, Policies::Fixed(None));
        let ietf: &[&str] = if has_policy { &[RATELIMIT, POLICY] } else { &[RATELIMIT] };
        if families.ietf && make_room(ietf, upstream, headers) {
            self.add_ietf(self.reset, headers);
            add_policies(policies, self.now, headers);
        }
        if self.static_headers.warns {
            headers.remove_all(&[WARNING]);
        }
        add_warnings(self.warnings.as_deref().unwrap_or_default(), headers);
    }

    /// Adds the headers that depend on the decision: what remains, and the seconds until there is more.
    fn add(&self, seconds: u64, headers: &mut Headers) {
        let families = self.static_headers.families;
        if families.x_ratelimit {
            self.add_x_ratelimit(headers);
        }
        if families.ietf {
            self.add_ietf(seconds, headers);
        }
    }

    fn add_x_ratelimit(&self, headers: &mut Headers) {
        headers.append_unchecked(LIMIT.as_bytes(), self.limit.shown.as_bytes());
        headers.append_number(REMAINING, self.remaining);
        headers.append_number(RESET, self.reset);
    }

    fn add_ietf(&self, seconds: u64, headers: &mut Headers) {
        headers.append_with(RATELIMIT, |out| {
            out.push(b'"');
            out.extend_from_slice(self.limit.config.name.as_bytes());
            out.extend_from_slice(b"\";r=");
            write_decimal(out, self.remaining);
            out.extend_from_slice(b";t=");
            write_decimal(out, seconds);
        });
    }

    /// Adds the headers of a refusal.
    fn add_refusal(&self, seconds: Option<u64>, headers: &mut Headers) {
        // Not later than Retry-After, which takes precedence if both are present.
        self.add(seconds.unwrap_or(self.reset), headers);
        let Some(seconds) = seconds else { return };
        let families = self.static_headers.families;
        if families.x_ratelimit {
            headers.append_number(X_RETRY_AFTER, seconds);
        }
        if families.retry_after {
            headers.append_number(RETRY_AFTER, seconds);
        }
    }
}

/// Treats the upstream's headers of one family as the route says. Returns whether the gateway's are added.
fn make_room(names: &[&str], upstream: UpstreamHeaders, headers: &mut Headers) -> bool {
    match upstream {
        UpstreamHeaders::Replace => headers.remove_all(names),
        UpstreamHeaders::Keep => return !names.iter().any(|name| headers.contains_key(name)),
        UpstreamHeaders::Rename => names.iter().for_each(|name| rename(name, headers)),
    }
    true
}

/// Gives the upstream's headers another name: `x-upstream-ratelimit-limit` for `x-ratelimit-limit`, `upstream-ratelimit` for `ratelimit`.
fn rename(name: &str, headers: &mut Headers) {
    let values: Vec<Vec<u8>> = headers.get_all(name).map(<[u8]>::to_vec).collect();
    headers.remove(name);
    let other = match name.strip_prefix("x-") {
        Some(rest) => format!("x-upstream-{rest}"),
        None => format!("upstream-{name}"),
    };
    headers.remove(&other);
    for value in values {
        headers.append(&other, value);
    }
}

/// The enforced limits that warn.
fn warnings<'s>(results: LimitResults<'_, 's>) -> Option<Box<[&'s Limit]>> {
    let warning = results.decided.iter().filter(|DecidedLimit { selected, verdict }| {
        !selected.candidate && selected.limit.enforces() && selected.limit.warns(verdict.usage)
    });
    let limits: Box<[&Limit]> = warning.map(|one| &**one.selected.limit).collect();
    (!limits.is_empty()).then_some(limits)
}

fn add_warnings(limits: &[&Limit], headers: &mut Headers) {
    for limit in limits {
        headers.append_unchecked(WARNING.as_bytes(), limit.config.name.as_bytes());
    }
}

fn add_policies(policies: &Policies, now: Time, headers: &mut Headers) {
    match policies {
        Policies::Fixed(None) => {}
        Policies::Fixed(Some(policies)) => headers.append_value(POLICY, policies),
        Policies::Calendar(policies) => headers.append_with(POLICY, |out| {
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

/// The response to a request that its limits refuse. `refused` is called with the reason, which is that of the reported
/// limit. `reject` is the configured response.
pub fn refusal(
    parts: &RequestHead,
    results: LimitResults<'_, '_>,
    reject: Option<&Reject>,
    id: &RequestId,
    refused: impl FnOnce(RefusalReason),
) -> LocalResponse {
    let LimitResults { decided, static_headers, now } = results;
    let reported = decided.reported().map(|at| decided.at(at));
    let wait = reported.and_then(DecidedLimit::retry_after);
    let seconds = wait.map(|wait| wait.ceil_secs().max(1));
    let banned = reported.is_some_and(|one| matches!(one.verdict.answer, Err(Refusal::Banned(_))));
    let reason = if banned { RefusalReason::Ban } else { RefusalReason::Limit };
    refused(reason);

    let mut response = LocalResponse::new(StatusCode::TOO_MANY_REQUESTS, LocalBody::Empty);
    let headers = &mut response.headers;
    headers.append_all(&static_headers.refusal);
    if static_headers.families.ietf && matches!(static_headers.policies, Policies::Calendar(_)) {
        add_policies(&static_headers.policies, now, headers);
    }
    headers.append_unchecked(X_REQUEST_ID.as_bytes(), id.as_bytes()); // valid by construction
    let limit = reported.map(|one| one.selected.limit.config.name.as_str());
    if let Some(reported) = reported {
        RateLimitHeaders::of_verdict(reported, results).add_refusal(seconds, headers);
    }
    if static_headers.warns {
        add_warnings(warnings(results).as_deref().unwrap_or_default(), headers);
    }
    if is_grpc(parts) {
        response.status = StatusCode::OK;
        grpc(headers, RESOURCE_EXHAUSTED, (reason, limit), wait);
    } else if let Some(reject) = reject {
        custom(&mut response, reject, (reason, limit.unwrap_or_default()), seconds, id);
    } else {
        response.body = LocalBody::Owned(problem(results, reason, seconds, id));
    }
    response
}

/// The default body of a refusal. It is written without a serializer because refusals are frequent under attack. Nothing
/// in it needs escaping: names of limits are validated, and the rest is constant.
fn problem(
    results: LimitResults<'_, '_>,
    reason: RefusalReason,
    seconds: Option<u64>,
    id: &RequestId,
) -> Vec<u8> {
    let violated = results
        .decided
        .iter()
        .filter(|DecidedLimit { selected, verdict }| selected.limit.enforces() && verdict.answer.is_err());
    // Few long pieces: each one costs a check of the room.
    let (start, wait, reason) = match reason {
        RefusalReason::Ban => (
            concat!(
                "{\"type\":\"https://iana.org/assignments/http-problem-types#abnormal-usage-detected\",",
                "\"title\":\"Too Many Requests\",\"status\":429,\"detail\":\""
            ),
            "temporarily banned after too many refused requests; try again in ",
            "\",\"reason\":\"ban\",\"request_id\":\"",
        ),
        _ => (
            concat!(
                "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",",
                "\"title\":\"Too Many Requests\",\"status\":429,\"detail\":\""
            ),
            "the quota is used up; try again in ",
            "\",\"reason\":\"limit\",\"request_id\":\"",
        ),
    };
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(start.as_bytes());
    match seconds {
        Some(seconds) => {
            out.extend_from_slice(wait.as_bytes());
            write_decimal(&mut out, seconds);
            out.extend_from_slice(if seconds == 1 { b" second" } else { b" seconds" });
        }
        None => out.extend_from_slice(
            b"this request costs more than the quota can ever hold; it will not be admitted later",
        ),
    }
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\",\"violated-policies\":[");
    let mut quote: &[u8] = b"\"";
    for DecidedLimit { selected, .. } in violated {
        out.extend_from_slice(quote);
        out.extend_from_slice(selected.limit.config.name.as_bytes());
        quote = b"\",\"";
    }
    let has_any = quote.len() > 1;
    match seconds {
        Some(seconds) => {
            out.extend_from_slice(if has_any { b"\"],\"retry_after\":" } else { b"],\"retry_after\":" });
            write_decimal(&mut out, seconds);
            out.extend_from_slice(b"}\n");
        }
        None => out.extend_from_slice(if has_any { b"\"]}\n" } else { b"]}\n" }),
    }
    out
}

fn custom(
    response: &mut LocalResponse,
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
    response.body = LocalBody::from(Bytes::from(body));
    response.headers.insert(header::CONTENT_TYPE, &reject.content_type);
}
