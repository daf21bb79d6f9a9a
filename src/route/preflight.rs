//! The question that a browser asks before it lets a page ask: CORS preflight requests.

use http::{HeaderMap, HeaderName, Method, header};

/// The method that a preflight request (Fetch standard) asks for; `None` if it is no such request. What is given twice
/// is not there.
pub fn preflight<'a>(method: &Method, headers: &'a HeaderMap) -> Option<&'a [u8]> {
    if *method != Method::OPTIONS {
        return None;
    }
    only(headers, &header::ORIGIN)?;
    only(headers, &header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The value of a header that is there once and not empty.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).iter();
    let value = lines.next()?.as_bytes();
    (lines.next().is_none() && !value.is_empty()).then_some(value)
}
