//! Which fields may stand behind a body, in requests and answers of every protocol.

use http::HeaderName;

/// Trailers that would say something else of a message that has gone already (RFC 9110 §6.5.1): they are left out.
const NEVER_BEHIND: [&str; 26] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-real-ip",
    "x-request-id",
];

/// Whether a field may come behind a body: nothing that frames, routes or authenticates a message, or says where it
/// comes from.
pub(crate) fn may_come_behind(name: &HeaderName) -> bool {
    let name = name.as_str();
    !NEVER_BEHIND.contains(&name)
        && !name.starts_with("if-")
        && !name.starts_with("x-forwarded-")
        && !name.contains("api-key")
}
