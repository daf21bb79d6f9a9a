//! Refusals in the words of gRPC.

use http::header;
use sluicegate_limiter::Span;

use crate::fields::Fields;
use crate::message::RequestHead;
use crate::number::write_decimal;

/// A status of gRPC with what it is called.
pub(super) type Status = (&'static str, &'static str);

/// The quota is used up.
pub(super) const RESOURCE_EXHAUSTED: Status = ("8", "rate limit exceeded");
/// The call does not prove whose it is. What it is told depends on what it lacks.
pub(super) const UNAUTHENTICATED: &str = "16";
/// The caller is not let in.
pub(super) const PERMISSION_DENIED: &str = "7";
/// Nothing that the client did.
pub(super) const UNAVAILABLE: Status = ("14", "the gateway cannot count this call at the moment");

/// Whether a request is a gRPC call.
pub(super) fn is_grpc(parts: &RequestHead) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE).unwrap_or_default();
    kind.strip_prefix(b"application/grpc")
        .is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'+' | b';'))
}

/// A refused call gets its status without a message (gRPC over HTTP/2, "Trailers-Only"): an HTTP 429 would be
/// taken for UNAVAILABLE and tried again at once.
pub(super) fn grpc(headers: &mut Fields, (status, message): Status, wait: Option<Span>) {
    headers.insert(header::CONTENT_TYPE, "application/grpc");
    headers.insert("grpc-status", status);
    headers.insert("grpc-message", message);
    // Milliseconds, rounded up; -1 tells the client not to try again.
    headers.insert_with("grpc-retry-pushback-ms", |out| match wait {
        Some(wait) => write_decimal(out, wait.ceil_micros().div_ceil(1_000).max(1)),
        None => out.extend_from_slice(b"-1"),
    });
}
