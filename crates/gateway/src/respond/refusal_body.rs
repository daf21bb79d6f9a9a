//! The default body of a refusal (RFC 9457, draft-ietf-httpapi-ratelimit-headers).
//!
//! It is written without a serializer because refusals are frequent under attack. Nothing in it needs escaping: names of limits are
//! validated, and the rest is constant. Few long pieces: each one costs a check of the room.

use crate::limit::{Decided, DecidedLimit};
use sluicegate_base::message::RequestId;
use sluicegate_base::refusal_reason::RefusalReason;

const QUOTA_EXCEEDED: &[u8] =
    b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
    \"title\":\"Too Many Requests\",\"status\":429,\"detail\":\"the quota is used up; try again in ";
const BANNED: &[u8] =
    b"{\"type\":\"https://iana.org/assignments/http-problem-types#abnormal-usage-detected\",\
    \"title\":\"Too Many Requests\",\"status\":429,\
    \"detail\":\"temporarily banned after too many refused requests; try again in ";
const NEVER: &[u8] = b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
    \"title\":\"Too Many Requests\",\"status\":429,\
    \"detail\":\"this request costs more than the quota can ever hold; it will not be admitted later\",\
    \"reason\":\"limit\",\"request_id\":\"";

/// The body of the refusal of a request by its limits. It may be sent again in so many seconds; `None` if it will never be admitted.
pub(super) fn refusal_body(
    decided: Decided<'_, '_>,
    reason: RefusalReason,
    seconds: Option<&str>,
    id: &RequestId,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(512);
    let Some(seconds) = seconds.map(str::as_bytes) else {
        body.extend_from_slice(NEVER);
        body.extend_from_slice(id.as_bytes());
        add_violated(&mut body, decided);
        body.extend_from_slice(b"]}\n");
        return body;
    };
    let is_banned = reason == RefusalReason::Ban;
    body.extend_from_slice(if is_banned { BANNED } else { QUOTA_EXCEEDED });
    body.extend_from_slice(seconds);
    body.extend_from_slice(match (is_banned, seconds) {
        (true, b"1") => b" second\",\"reason\":\"ban\",\"request_id\":\"",
        (true, _) => b" seconds\",\"reason\":\"ban\",\"request_id\":\"",
        (false, b"1") => b" second\",\"reason\":\"limit\",\"request_id\":\"",
        (false, _) => b" seconds\",\"reason\":\"limit\",\"request_id\":\"",
    });
    body.extend_from_slice(id.as_bytes());
    add_violated(&mut body, decided);
    body.extend_from_slice(b"],\"retry_after\":");
    body.extend_from_slice(seconds);
    body.extend_from_slice(b"}\n");
    body
}

/// Adds the beginning of the list of the limits that refuse, and their names.
fn add_violated(body: &mut Vec<u8>, decided: Decided<'_, '_>) {
    body.extend_from_slice(b"\",\"violated-policies\":[");
    let mut quote: &[u8] = b"\"";
    for DecidedLimit { selected, verdict } in decided.iter() {
        if selected.limit.enforces() && verdict.answer.is_err() {
            body.extend_from_slice(quote);
            body.extend_from_slice(selected.limit.config.name.as_bytes());
            body.push(b'"');
            quote = b",\"";
        }
    }
}
