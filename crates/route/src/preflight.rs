//! CORS preflight requests.

use http::{HeaderName, Method, header};

use sluicegate_base::incoming::Routed;
use sluicegate_wire::Headers;

/// The method that a preflight request (Fetch standard) asks for; `None` if the request is not one. Repeated headers count as
/// absent.
pub fn preflight<'a>(method: &Method, headers: &'a Headers) -> Option<&'a [u8]> {
    if *method != Method::OPTIONS {
        return None;
    }
    only(headers, &header::ORIGIN)?;
    only(headers, &header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Whether the route forwards this request as a preflight request. Browsers send those without credentials, so they
/// need no authentication and are exempt from limits.
#[inline]
pub fn is_exempt_preflight(routed: &Routed<'_>) -> bool {
    let head = routed.request.head;
    routed.route().matches.preflight && preflight(&head.method, &head.headers).is_some()
}

/// The value of a header that occurs exactly once and is not empty.
fn only<'a>(headers: &'a Headers, name: &HeaderName) -> Option<&'a [u8]> {
    headers.only(name).filter(|value| !value.is_empty())
}
