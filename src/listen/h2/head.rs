//! The head of a request over HTTP/2: what RFC 9113 §8 refuses and the library lets pass.

use http::request::Parts;

use crate::fields::Fields;
use crate::message::RequestHead;
use crate::respond::LocalError;

/// The longest target, as over HTTP/1.1.
const TARGET: usize = 8 << 10;

/// Refuses what HTTP/1.1 could not say, and takes away the blanks around values, which servers do not count.
pub(super) fn read(parts: Parts, max_headers: usize) -> Result<RequestHead, LocalError> {
    let Parts { method, uri, version, headers, .. } = parts;
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > TARGET {
        return Err(LocalError::TargetTooLong);
    }
    if !target.starts_with('/') && target != "*" && !target.is_empty() {
        return Err(LocalError::Malformed("the path of a request begins with a slash"));
    }
    if headers.len() > max_headers {
        return Err(LocalError::HeadTooLarge);
    }
    let mut fields = Fields::for_map(&headers);
    for (name, value) in &headers {
        let name = name.as_str().as_bytes();
        // The one character that the library takes for one of a name (RFC 9110 §5.6.2).
        if name.contains(&b'"') {
            return Err(LocalError::Malformed("what stands there is not a header name"));
        }
        let value = value.as_bytes().trim_ascii();
        if value.is_empty() && name == b"content-length" {
            return Err(LocalError::Malformed("a length is a number"));
        }
        fields.append(name, value);
    }
    Ok(RequestHead { method, target: uri.into(), version, headers: fields })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{HeaderName, HeaderValue, Request};

    use super::*;

    fn request(target: &str, headers: &[(&str, &'static str)]) -> Parts {
        let mut request = Request::builder().uri(target).body(()).unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_lowercase(name.as_bytes()).unwrap(); // as the library reads it
            request.headers_mut().append(name, HeaderValue::from_static(value));
        }
        request.into_parts().0
    }

    #[test]
    fn blanks_around_values_are_nothing() {
        let request = request("http://a/x", &[("x-key", " \tk1 "), ("x-empty", "  "), ("x-in", "a b")]);
        let head = read(request, 100).ok().unwrap();
        let said: Vec<_> = head.headers.iter().map(|(_, value)| value).collect();
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
            assert!(read(request(target, headers), 2).is_err(), "{target} {headers:?}");
        }
        assert!(read(request("http://a", &[]), 2).is_ok());
    }
}
