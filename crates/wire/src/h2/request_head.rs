//! Heads and trailers of requests over HTTP/2. What RFC 9113 §8 calls malformed is a stream error; what cannot be expressed in
//! HTTP/1.1 is answered with an error.

use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use crate::headers::is_value;
use crate::headers::parse::{LowerName, lower_name};
use crate::number::read_decimal;
use crate::{HeadError, Headers, RequestHead, RequestTarget};

/// The overhead in bytes that each field adds to the size of a header list (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// Limits of the header lists of requests.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes, counted as RFC 9113 §6.5.2 defines them.
    pub bytes: usize,
    /// Header fields.
    pub fields: usize,
    /// Bytes of the request target.
    pub target: usize,
}

/// Why the head of a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is malformed: the stream is reset (RFC 9113 §8.1.1).
    #[error("the request is malformed")]
    Malformed,
    /// The header list is larger than [`HeadLimits::bytes`].
    #[error("the header list is too large")]
    TooLarge,
    /// It is answered with an error.
    #[error(transparent)]
    Refused(#[from] HeadError),
}

/// A request head, and the Content-Length if there is one.
pub(crate) type Request = (RequestHead, Option<u64>);

/// Builds a request head from its fields.
pub(super) struct RequestBuilder {
    limits: HeadLimits,
    size: usize,
    error: Option<RequestError>,
    method: Option<Method>,
    target: Option<RequestTarget>,
    /// Whether the scheme is http or https.
    scheme: Option<bool>,
    /// `:authority` was given; it is the first field then.
    has_authority: bool,
    /// Regular header fields.
    regular: usize,
    hosts: usize,
    length: Option<u64>,
    expects: bool,
    fields: Headers,
}

impl RequestBuilder {
    /// A head whose field block has `block` bytes.
    pub(super) fn new(limits: HeadLimits, block: usize) -> Self {
        Self {
            limits,
            size: 0,
            error: None,
            method: None,
            target: None,
            scheme: None,
            has_authority: false,
            regular: 0,
            hosts: 0,
            length: None,
            expects: false,
            fields: Headers::for_request(4 * block.min(limits.bytes / 4)),
        }
    }

    /// Whether the method is HEAD.
    pub(super) fn is_head(&self) -> bool {
        self.method == Some(Method::HEAD)
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) fn expects_continue(&self) -> bool {
        self.expects
    }

    /// The size of the header list so far, as RFC 9113 §6.5.2 defines it.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Adds the next field.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        if self.error.is_some() {
            return;
        }
        self.error = if self.size > self.limits.bytes {
            Some(RequestError::TooLarge)
        } else if name.first() == Some(&b':') {
            self.pseudo(name, value).err()
        } else {
            self.field(name, value).err()
        };
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), RequestError> {
        let is_invalid = match name {
            _ if self.regular > 0 => true,
            b":method" => {
                let method = Method::from_bytes(value).map_err(|_| RequestError::Malformed)?;
                self.method.replace(method).is_some()
            }
            b":path" => self.target.replace(target(value, self.limits.target)?).is_some(),
            b":scheme" => self.scheme.replace(matches!(value, b"http" | b"https")).is_some(),
            b":authority" => {
                if !is_value(value) {
                    return Err(RequestError::Malformed);
                }
                self.fields.append_unchecked(b"host", value);
                std::mem::replace(&mut self.has_authority, true)
            }
            _ => true,
        };
        if is_invalid { Err(RequestError::Malformed) } else { Ok(()) }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), RequestError> {
        self.regular += 1;
        if self.regular > self.limits.fields {
            return Err(RequestError::Refused(HeadError::TooLarge));
        }
        if !is_allowed(name, value) {
            return Err(RequestError::Malformed);
        }
        match lower_name(name) {
            LowerName::Plain => {}
            LowerName::Underscored => self.fields.note_underscore(),
            LowerName::Malformed => return Err(RequestError::Malformed),
        }
        match name {
            b"content-length" => {
                let length = read_decimal(value).ok_or(RequestError::Malformed)?;
                if self.length.replace(length).is_some_and(|other| other != length) {
                    return Err(RequestError::Malformed);
                }
            }
            b"expect" => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(RequestError::Refused(HeadError::Expectation));
                }
                self.expects = true;
            }
            b"host" => {
                self.hosts += 1;
                let same = |authority: &[u8]| authority.eq_ignore_ascii_case(value.trim_ascii());
                // A Host equal to :authority is redundant; a different one is a second host, which is refused later.
                if self.hosts == 1 && self.has_authority && self.fields.get(b"host").is_some_and(same) {
                    return Ok(());
                }
            }
            _ => {}
        }
        // HTTP/1.1 servers do not count blanks around a value as part of it.
        self.fields.append_unchecked(name, value.trim_ascii());
        Ok(())
    }

    /// The head, after its last field.
    pub(super) fn finish(self) -> Result<Request, RequestError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let method = self.method.ok_or(RequestError::Malformed)?;
        let (target, headers) = match (method == Method::CONNECT, self.scheme, self.target) {
            (false, Some(true), Some(target)) => (target, self.fields),
            (false, Some(false), Some(_)) => {
                return Err(RequestError::Refused(HeadError::Malformed(
                    "the scheme of a request is http or https",
                )));
            }
            // The target of CONNECT is its authority (RFC 9113 §8.5).
            (true, None, None) if self.has_authority => authority(self.fields)?,
            _ => return Err(RequestError::Malformed),
        };
        Ok((RequestHead { method, target, version: Version::HTTP_2, headers }, self.length))
    }
}

/// The request target in `:path`.
fn target(path: &[u8], most: usize) -> Result<RequestTarget, RequestError> {
    if path.len() > most {
        return Err(RequestError::Refused(HeadError::TargetTooLong));
    }
    if let Some(target) = RequestTarget::origin(path) {
        return Ok(target);
    }
    if !path.is_empty() && path[0] != b'/' && path != b"*" {
        let what = "the path of a request begins with a slash";
        return Err(RequestError::Refused(HeadError::Malformed(what)));
    }
    if path == b"*" {
        return Ok(RequestTarget::asterisk());
    }
    // The fragment is removed, but other servers refuse the request for what is in it.
    let (target, fragment) = path.split_at(path.iter().position(|b| *b == b'#').unwrap_or(path.len()));
    match RequestTarget::encoded(target).filter(|_| fragment.iter().all(u8::is_ascii_graphic)) {
        Some(target) => Ok(target),
        None if path.is_empty() => Err(RequestError::Malformed),
        None => {
            let what = "the request target has a character that must be percent-encoded";
            Err(RequestError::Refused(HeadError::Malformed(what)))
        }
    }
}

/// The target of CONNECT, and the fields without `host`.
fn authority(mut fields: Headers) -> Result<(RequestTarget, Headers), RequestError> {
    let uri = fields.get(b"host").and_then(|name| Uri::try_from(name).ok());
    let uri = uri
        .filter(|uri| uri.authority().is_some() && uri.scheme().is_none())
        .ok_or(RequestError::Malformed)?;
    fields.remove(b"host");
    Ok((uri.into(), fields))
}

/// Whether a field is specific to HTTP/1.1 connections and must not be sent over HTTP/2 (RFC 9113 §8.2.2).
#[inline]
pub(super) fn is_connection_specific(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade")
}

/// Whether a field is allowed in HTTP/2 (RFC 9113 §8.2). The name is not checked.
fn is_allowed(name: &[u8], value: &[u8]) -> bool {
    is_value(value) && !is_connection_specific(name) && (name != b"te" || value == b"trailers")
}

/// Builds trailers from their fields.
pub(super) struct TrailersBuilder {
    limits: HeadLimits,
    size: usize,
    /// `None` once a field was invalid or beyond the limits.
    fields: Option<HeaderMap>,
}

impl TrailersBuilder {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self { limits, size: 0, fields: Some(HeaderMap::new()) }
    }

    /// Adds the next field.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        let Some(fields) = &mut self.fields else { return };
        let line =
            (is_allowed(name, value) && self.size <= self.limits.bytes && fields.len() < self.limits.fields)
                .then(|| HeaderName::from_lowercase(name).ok().zip(HeaderValue::from_bytes(value).ok()))
                .flatten();
        match line {
            Some((name, value)) => _ = fields.append(name, value),
            None => self.fields = None,
        }
    }

    /// The trailers, after their last field; `None` if they are malformed.
    pub(super) fn finish(self) -> Option<HeaderMap> {
        self.fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_TARGET: usize = 8 << 10;
    const LIMITS: HeadLimits = HeadLimits { bytes: 32 << 10, fields: 3, target: MAX_TARGET };
    const USUAL: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/x?y")];

    fn read(lines: &[(&str, &str)]) -> Result<Request, RequestError> {
        let mut builder = RequestBuilder::new(LIMITS, 0);
        lines.iter().for_each(|(name, value)| builder.add(name.as_bytes(), value.as_bytes()));
        builder.finish()
    }

    fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [&USUAL[..], more].concat()
    }

    #[test]
    fn a_head_of_the_usual_form() {
        let (head, length) =
            read(&with(&[("x-key", " \tk1 "), ("x-in", "a b"), ("content-length", "7")])).unwrap();
        assert_eq!((head.method, head.target.path_and_query(), length), (Method::GET, "/x?y", Some(7)));
        let said: Vec<_> = head.headers.iter().collect();
        let wanted = [("host", "a.test"), ("x-key", "k1"), ("x-in", "a b"), ("content-length", "7")];
        assert_eq!(said, wanted.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    }

    #[test]
    fn host_is_not_repeated() {
        let hosts = |more: &[(&str, &str)]| {
            let (head, _) = read(&with(more)).unwrap();
            head.headers.get_all("host").count()
        };
        assert_eq!(hosts(&[]), 1);
        assert_eq!(hosts(&[("host", "A.test")]), 1, "the same");
        assert_eq!(hosts(&[("host", "b.test")]), 2, "which is refused later");
        assert_eq!(hosts(&[("host", "a.test"), ("host", "a.test")]), 2);
    }

    #[test]
    fn heads_that_http1_cannot_express_are_refused() {
        let long = format!("/{}", "x".repeat(MAX_TARGET));
        for (path, more) in [
            ("http://a/", &[][..]),
            ("x", &[]),
            (&long, &[]),
            ("/", &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]),
        ] {
            let lines = [&USUAL[..3], &[(":path", path)], more].concat();
            assert!(matches!(read(&lines), Err(RequestError::Refused(_))), "{path} {more:?}");
        }
        let scheme = [(":method", "GET"), (":scheme", "ftp"), (":path", "/")];
        assert!(matches!(read(&scheme), Err(RequestError::Refused(_))));
    }

    #[test]
    fn malformed_heads() {
        for more in [
            &[("X-A", "1")][..],
            &[("x\"a", "1")],
            &[("", "1")],
            &[("x", "a\rb")],
            &[("x", "a"), (":path", "/")],
            &[(":path", "/")],
            &[(":status", "200")],
            &[(":protocol", "websocket")],
            &[("content-length", "")],
            &[("content-length", "+1")],
            &[("content-length", "1, 1")],
            &[("content-length", " 1")],
            &[("content-length", "99999999999999999999")],
            &[("content-length", "1"), ("content-length", "2")],
            &[("te", "trailers, gzip")],
            &[("connection", "close")],
        ] {
            assert!(matches!(read(&with(more)), Err(RequestError::Malformed)), "{more:?}");
        }
        assert!(read(&with(&[("content-length", "1"), ("content-length", "1"), ("te", "trailers")])).is_ok());
        let path = |path| read(&[&USUAL[..3], &[(":path", path)]].concat());
        assert!(path("/a#b").is_ok_and(|(head, _)| head.target.path_and_query() == "/a"));
        for fragment in ["/a#\u{87}", "/a# b", "/a#\0"] {
            assert!(matches!(path(fragment), Err(RequestError::Refused(_))), "{fragment:?}");
        }
        for missing in [0, 1, 3] {
            let mut lines = USUAL.to_vec();
            lines.remove(missing);
            assert!(matches!(read(&lines), Err(RequestError::Malformed)), "without {}", USUAL[missing].0);
        }
        assert!(matches!(read(&with(&[("x", &"y".repeat(32 << 10))])), Err(RequestError::TooLarge)));
    }

    #[test]
    fn connect_has_an_authority_only() {
        let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
        let (head, _) = read(&connect).unwrap();
        assert_eq!((head.target.authority(), head.target.path()), (Some("a.test:443"), ""));
        for more in [[(":path", "/")], [(":scheme", "http")]] {
            assert!(read(&[&connect[..], &more].concat()).is_err());
        }
        assert!(read(&connect[..1]).is_err());
    }

    #[test]
    fn trailers_are_checked() {
        let trailers = |lines: &[(&str, &str)]| {
            let mut trailers = TrailersBuilder::new(LIMITS);
            lines.iter().for_each(|(name, value)| trailers.add(name.as_bytes(), value.as_bytes()));
            trailers.finish().map(|lines| lines.len())
        };
        assert_eq!(trailers(&[("x-sum", "1"), ("x-sum", "2")]), Some(2));
        for bad in [(":path", "/"), ("X-Sum", "1"), ("connection", "close"), ("x", "\0")] {
            assert_eq!(trailers(&[bad]), None, "{bad:?}");
        }
    }
}
