//! The head of a request over HTTP/2: what RFC 9113 §8 refuses and the library lets pass.

use http::{HeaderValue, Request, header};

use crate::respond::LocalError;

/// The longest target, as over HTTP/1.1.
const TARGET: usize = 8 << 10;

/// Refuses what HTTP/1.1 could not say, and takes away the blanks around values, which servers do not count.
pub(super) fn tidy<T>(request: &mut Request<T>, max_headers: usize) -> Result<(), LocalError> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if target.len() > TARGET {
        return Err(LocalError::TargetTooLong);
    }
    if !target.starts_with('/') && target != "*" && !target.is_empty() {
        return Err(LocalError::Malformed("the path of a request begins with a slash"));
    }
    let headers = request.headers_mut();
    if headers.len() > max_headers {
        return Err(LocalError::HeadTooLarge);
    }
    for (name, value) in headers.iter_mut() {
        // The one character that the library takes for one of a name (RFC 9110 §5.6.2).
        if name.as_str().contains('"') {
            return Err(LocalError::Malformed("what stands there is not a header name"));
        }
        let bytes = value.as_bytes();
        let blank = |b: &u8| matches!(b, b' ' | b'\t');
        if (bytes.first().is_some_and(blank) || bytes.last().is_some_and(blank))
            && let Ok(trimmed) = HeaderValue::from_bytes(bytes.trim_ascii())
        {
            *value = trimmed;
        }
    }
    let empty = |value: &HeaderValue| value.is_empty();
    match headers.get_all(header::CONTENT_LENGTH).iter().any(empty) {
        true => Err(LocalError::Malformed("a length is a number")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderName;

    use super::*;

    fn request(target: &str, headers: &[(&str, &'static str)]) -> Request<()> {
        let mut request = Request::builder().uri(target).body(()).unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_lowercase(name.as_bytes()).unwrap(); // as the library reads it
            request.headers_mut().append(name, HeaderValue::from_static(value));
        }
        request
    }

    #[test]
    fn blanks_around_values_are_nothing() {
        let mut request = request("http://a/x", &[("x-key", " \tk1 "), ("x-empty", "  "), ("x-in", "a b")]);
        assert!(tidy(&mut request, 100).is_ok());
        let said: Vec<_> = request.headers().values().map(HeaderValue::as_bytes).collect();
        assert_eq!(said, [&b"k1"[..], b"", b"a b"]);
    }

    #[test]
    fn what_http1_cannot_say_is_refused() {
        let long = format!("http://a/{}", "x".repeat(TARGET));
        for (target, headers) in [
            ("http://a?q", &[][..]),
            (&long, &[]),
            ("http://a/", &[("x\"a", "1")]),
            ("http://a/", &[("content-length", "")]),
            ("http://a/", &[("a", "1"), ("b", "2"), ("c", "3")]),
        ] {
            assert!(tidy(&mut request(target, headers), 2).is_err(), "{target} {headers:?}");
        }
        assert!(tidy(&mut request("http://a", &[]), 2).is_ok());
    }
}
