//! Refusals of gRPC calls.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header;
use sluicegate_limiter::Span;

use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::number::write_decimal;

/// A gRPC status code and its message.
pub(super) type Status = (&'static str, &'static str);

/// The quota is used up.
pub(super) const RESOURCE_EXHAUSTED: Status = ("8", "rate limit exceeded");
/// Authentication is required. The message depends on the reason.
pub(super) const UNAUTHENTICATED: &str = "16";
/// The client is not admitted.
pub(super) const PERMISSION_DENIED: &str = "7";
/// The gateway cannot decide. The client is not the cause.
pub(super) const UNAVAILABLE: Status = ("14", "the gateway cannot count this call at the moment");

/// Whether a request is a gRPC call. Media types are case-insensitive (RFC 9110 §8.3.1).
pub fn is_grpc(head: &RequestHead) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let kind = head.headers.get(header::CONTENT_TYPE).unwrap_or_default();
    let Some((kind, rest)) = kind.split_at_checked(GRPC.len()) else { return false };
    kind.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
}

/// Sets the headers of a refusal, a response without a message (gRPC over HTTP/2, "Trailers-Only"). Clients would take an HTTP
/// 429 for UNAVAILABLE and retry at once.
pub(super) fn grpc(
    headers: &mut Headers,
    (status, message): Status,
    (reason, limit): (RefusalReason, Option<&str>),
    wait: Option<Span>,
) {
    headers.insert(header::CONTENT_TYPE, "application/grpc");
    headers.insert("grpc-status", status);
    headers.insert("grpc-message", message);
    let details = STANDARD_NO_PAD.encode(details((status, message), reason, limit));
    headers.insert("grpc-status-details-bin", details);
    // Milliseconds, rounded up; -1 tells the client not to try again.
    headers.insert_with("grpc-retry-pushback-ms", |out| match wait {
        Some(wait) => write_decimal(out, wait.ceil_micros().div_ceil(1_000).max(1)),
        None => out.extend_from_slice(b"-1"),
    });
}

/// A `google.rpc.Status` with a `google.rpc.ErrorInfo`, whose reason is in upper case by definition.
fn details((status, message): Status, reason: RefusalReason, limit: Option<&str>) -> Vec<u8> {
    let mut info = Vec::new();
    field(&mut info, 1, reason.name().to_ascii_uppercase().as_bytes());
    field(&mut info, 2, b"sluicegate");
    if let Some(limit) = limit {
        let mut entry = Vec::new();
        field(&mut entry, 1, b"limit");
        field(&mut entry, 2, limit.as_bytes());
        field(&mut info, 3, &entry);
    }
    let mut any = Vec::new();
    field(&mut any, 1, b"type.googleapis.com/google.rpc.ErrorInfo");
    field(&mut any, 2, &info);
    let mut out = vec![1 << 3, status.parse().unwrap_or_default()];
    field(&mut out, 2, message.as_bytes());
    field(&mut out, 3, &any);
    out
}

/// Appends a length-delimited protobuf field.
fn field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.push(number << 3 | 2);
    let mut length = value.len();
    while length >= 0x80 {
        out.push((length % 0x80) as u8 | 0x80);
        length /= 0x80;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_protobuf() {
        let expected = b"\x08\x08\x12\x13rate limit exceeded\x1a\x53\
            \x0a\x28type.googleapis.com/google.rpc.ErrorInfo\x12\x27\
            \x0a\x05LIMIT\x12\x0asluicegate\x1a\x12\x0a\x05limit\x12\x09per-calls";
        assert_eq!(details(RESOURCE_EXHAUSTED, RefusalReason::Limit, Some("per-calls")), expected);
        let mut long = Vec::new();
        field(&mut long, 2, &[b'x'; 300]);
        assert_eq!(long[..3], [0x12, 0xac, 0x02]);
    }

    #[test]
    fn media_types_of_grpc_are_recognised() {
        let is = |kind: &str| {
            let mut head = RequestHead::get("/".try_into().unwrap());
            head.headers.insert(header::CONTENT_TYPE, kind);
            is_grpc(&head)
        };
        for kind in
            ["application/grpc", "APPLICATION/GRPC", "application/grpc+proto", "Application/Grpc; x=1"]
        {
            assert!(is(kind), "{kind}");
        }
        for kind in ["", "application/grp", "application/grpc-web", "application/grpcx", "text/plain"] {
            assert!(!is(kind), "{kind}");
        }
    }
}
