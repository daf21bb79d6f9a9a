//! What is checked in the head of a request before its route is known.

use http::{HeaderName, Method, header};

use super::early_reject::EarlyReject;
use sluicegate_wire::{Headers, RequestHead};

/// Checks a head. `reserved` are the headers that no `Connection` header may name.
///
/// # Errors
/// If the gateway does not serve the method or the transfer coding, or if a `Connection` header names what the request needs.
pub(super) fn check(head: &RequestHead, reserved: &[HeaderName]) -> Result<(), EarlyReject> {
    if !is_served(&head.method) {
        return Err(EarlyReject::Method);
    }
    if head.headers.contains_key(header::TRANSFER_ENCODING) && !is_chunked(&head.headers) {
        return Err(EarlyReject::Framing);
    }
    if sluicegate_upstream::nominates(&head.headers, reserved) {
        return Err(EarlyReject::Nominated);
    }
    Ok(())
}

/// Whether the gateway serves a method. TRACE and TRACK would return the headers that a proxy adds. A method with lower
/// case letters is rejected because methods are case-sensitive to routes but may not be to the upstream.
fn is_served(method: &Method) -> bool {
    match method.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => true,
        "CONNECT" | "TRACE" | "TRACK" => false,
        other => !other.bytes().any(|b| b.is_ascii_lowercase()),
    }
}

/// Whether the only transfer coding is `chunked`: the gateway decodes no other.
fn is_chunked(headers: &Headers) -> bool {
    let only = headers.only(header::TRANSFER_ENCODING);
    only.is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}
