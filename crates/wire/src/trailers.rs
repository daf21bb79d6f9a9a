//! Which fields may be trailers, in requests and responses of every protocol.

use http::HeaderName;

/// Fields that frame, route or describe a message and so must not follow it (RFC 9110 §6.5.1).
const FORBIDDEN: [&str; 26] = [
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

/// Whether a field is allowed in a trailer section: none that frames, routes or authenticates the message, or says where
/// it comes from. Others are removed.
pub fn is_allowed_in_trailers(name: &HeaderName) -> bool {
    let name = name.as_str();
    !FORBIDDEN.contains(&name)
        && !name.starts_with("if-")
        && !name.starts_with("x-forwarded-")
        && !name.contains("api-key")
}
