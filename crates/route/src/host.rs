//! The host of a request.

use std::borrow::Cow;

use http::Version;
use http::uri::Scheme;

use sluicegate_config::host_name;
use sluicegate_wire::RequestHead;

/// The request does not name exactly one valid host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHost;

/// The host of a request in lower case, without port and trailing dot. Empty only if an HTTP/1.0 request has none.
///
/// # Errors
/// If the request does not name exactly one valid host, or if its scheme is neither http nor https.
pub fn host(head: &RequestHead) -> Result<Cow<'_, str>, NoHost> {
    let mut lines = head.headers.get_all("host");
    let line = lines.next();
    if lines.next().is_some() {
        return Err(NoHost);
    }
    if head.target.scheme().is_some_and(|scheme| ![Scheme::HTTP, Scheme::HTTPS].contains(scheme)) {
        return Err(NoHost);
    }
    named(line, head.target.authority(), head.version)
}

/// The host that a target in absolute form names is that of the request, whatever Host says (RFC 9112 §3.2.2): Host is replaced, unless it
/// is malformed itself.
#[inline]
pub fn prefer_target(head: &mut RequestHead) {
    if head.target.authority().is_some() && head.version != Version::HTTP_2 {
        replace_host(head);
    }
}

#[cold]
fn replace_host(head: &mut RequestHead) {
    let RequestHead { target, headers, .. } = head;
    let is_valid = |name: &[u8]| host_name(name).is_some();
    if let Some(authority) = target.authority().filter(|name| is_valid(name.as_bytes()))
        && headers.only(http::header::HOST).is_some_and(is_valid)
    {
        headers.insert(http::header::HOST, authority);
    }
}

/// The host according to the Host header and the authority of the target.
fn named<'a>(
    line: Option<&'a [u8]>,
    target: Option<&'a str>,
    version: Version,
) -> Result<Cow<'a, str>, NoHost> {
    let name = match (line, target) {
        (Some(line), Some(target)) if !line.eq_ignore_ascii_case(target.as_bytes()) => return Err(NoHost),
        (Some(line), _) => line,
        (None, Some(_)) if version == Version::HTTP_11 => return Err(NoHost), // RFC 9112 §3.2
        (None, Some(target)) => target.as_bytes(),
        (None, None) if version == Version::HTTP_10 => return Ok(Cow::Borrowed("")),
        (None, None) => return Err(NoHost),
    };
    host_name(name).ok_or(NoHost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_and_header_name_the_same_host() {
        let named = |line: Option<&'static str>, target, version| {
            named(line.map(str::as_bytes), target, version).map(Cow::into_owned)
        };
        let host = |name: &str| Ok(name.to_owned());
        assert_eq!(named(Some("a"), None, Version::HTTP_11), host("a"));
        assert_eq!(named(Some("A"), Some("a"), Version::HTTP_11), host("a"));
        assert_eq!(named(Some("a"), Some("b"), Version::HTTP_11), Err(NoHost));
        assert_eq!(named(None, Some("a"), Version::HTTP_11), Err(NoHost));
        assert_eq!(named(None, Some("a"), Version::HTTP_2), host("a"));
        assert_eq!(named(None, None, Version::HTTP_11), Err(NoHost));
        assert_eq!(named(None, None, Version::HTTP_10), host(""));
    }
}
