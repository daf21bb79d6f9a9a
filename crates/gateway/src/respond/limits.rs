//! Rate limit headers on responses to admitted requests, and the response to refused requests.

use bytes::Bytes;
use http::{StatusCode, header};
use sluicegate_limiter::{Refusal, Time, Usage};

use super::grpc::{RESOURCE_EXHAUSTED, grpc, is_grpc};
use super::problem::X_REQUEST_ID;
use super::refusal_body::refusal_body;
use super::static_headers::{POLICY, Policies, StaticHeaders};
use crate::limit::{Decided, DecidedLimit, Limit, SelectedLimit};
use sluicegate_base::message::{LocalBody, LocalResponse, RequestId};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::{Reject, UpstreamHeaders};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::headers::FieldName;
use sluicegate_wire::number::{Decimal, write_decimal};

const WARNING: &str = "x-ratelimit-warning";
const X_RATELIMIT: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
const RATELIMIT: &str = "ratelimit";

const LIMIT_LINE: FieldName = FieldName::new("x-ratelimit-limit: ");
const REMAINING_LINE: FieldName = FieldName::new("x-ratelimit-remaining: ");
const RESET_LINE: FieldName = FieldName::new("x-ratelimit-reset: ");
const X_RETRY_AFTER_LINE: FieldName = FieldName::new("x-ratelimit-retry-after: ");
const RETRY_AFTER_LINE: FieldName = FieldName::new("retry-after: ");
const RATELIMIT_LINE: FieldName = FieldName::new("ratelimit: ");

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
        let mut digits = Decimal::new();
        let remaining = digits.format(self.remaining);
        if families.x_ratelimit && make_room(&X_RATELIMIT, upstream, headers) {
            self.add_x_ratelimit(remaining, headers);
        }
        let has_policy = !matches!(policies, Policies::Fixed(None));
        let ietf: &[&str] = if has_policy { &[RATELIMIT, POLICY] } else { &[RATELIMIT] };
        if families.ietf && make_room(ietf, upstream, headers) {
            self.add_ietf(remaining, Decimal::new().format(self.reset), headers);
            add_policies(policies, self.now, headers);
        }
        if self.static_headers.warns {
            headers.remove_all(&[WARNING]);
        }
        add_warnings(self.warnings.as_deref().unwrap_or_default(), headers);
    }

    fn add_x_ratelimit(&self, remaining: &str, headers: &mut Headers) {
        headers.append_parts(LIMIT_LINE, [self.limit.shown.as_bytes()]);
        headers.append_parts(REMAINING_LINE, [remaining.as_bytes()]);
        headers.append_parts(RESET_LINE, [Decimal::new().format(self.reset).as_bytes()]);
    }

    /// Adds what remains, and the seconds until there is more. The name of a limit is validated.
    fn add_ietf(&self, remaining: &str, seconds: &str, headers: &mut Headers) {
        let name = self.limit.config.name.as_bytes();
        let parts = [b"\"", name, b"\";r=", remaining.as_bytes(), b";t=", seconds.as_bytes()];
        headers.append_parts(RATELIMIT_LINE, parts);
    }

    /// Adds the headers of a refusal, after which the client may try again in so many seconds.
    fn add_refusal(&self, seconds: Option<&str>, headers: &mut Headers) {
        let families = self.static_headers.families;
        let mut digits = Decimal::new();
        let remaining = digits.format(self.remaining);
        if families.x_ratelimit {
            self.add_x_ratelimit(remaining, headers);
        }
        if families.ietf {
            // Not later than Retry-After, which takes precedence if both are present.
            match seconds {
                Some(seconds) => self.add_ietf(remaining, seconds, headers),
                None => self.add_ietf(remaining, Decimal::new().format(self.reset), headers),
            }
        }
        let Some(seconds) = seconds else { return };
        if families.x_ratelimit {
            headers.append_parts(X_RETRY_AFTER_LINE, [seconds.as_bytes()]);
        }
        if families.retry_after {
            headers.append_parts(RETRY_AFTER_LINE, [seconds.as_bytes()]);
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
    head: &RequestHead,
    results: LimitResults<'_, '_>,
    reject: Option<&Reject>,
    id: &RequestId,
    refused: impl FnOnce(RefusalReason),
) -> LocalResponse {
    let LimitResults { decided, static_headers, now } = results;
    let reported = decided.reported().map(|at| decided.at(at));
    let wait = reported.and_then(DecidedLimit::retry_after);
    let mut digits = Decimal::new();
    let seconds = wait.map(|wait| digits.format(wait.ceil_secs().max(1)));
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
    if is_grpc(head) {
        response.status = StatusCode::OK;
        grpc(headers, RESOURCE_EXHAUSTED, (reason, limit), wait);
    } else if let Some(reject) = reject {
        custom(&mut response, reject, (reason, limit.unwrap_or_default()), seconds, id);
    } else {
        response.body = LocalBody::Owned(refusal_body(decided, reason, seconds, id));
    }
    response
}

fn custom(
    response: &mut LocalResponse,
    reject: &Reject,
    (reason, limit): (RefusalReason, &str),
    seconds: Option<&str>,
    id: &RequestId,
) {
    let body = reject
        .body
        .replace("{limit}", limit)
        .replace("{reason}", reason.name())
        .replace("{retry_after}", seconds.unwrap_or_default())
        .replace("{request_id}", id.as_str());
    response.status = reject.status;
    response.body = LocalBody::from(Bytes::from(body));
    response.headers.insert(header::CONTENT_TYPE, &reject.content_type);
}
