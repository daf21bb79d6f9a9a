//! The head of a request over HTTP/2, and what stands behind its body: what RFC 9113 §8 refuses is none, and what
//! HTTP/1.1 could not say is refused.

use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use crate::fields::read::{LowerName, lower_name};
use crate::fields::{Fields, is_value};
use crate::message::RequestHead;
use crate::number::read_decimal;
use crate::respond::LocalError;
use crate::target::RequestTarget;

/// The longest target, as over HTTP/1.1.
const TARGET: usize = 8 << 10;
/// What a line counts for beyond its bytes (RFC 9113 §6.5.2).
const LINE: usize = 32;

/// What the heads of requests may come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Bytes, counted as RFC 9113 §6.5.2 has it.
    pub(super) bytes: usize,
    /// Fields.
    pub(super) lines: usize,
}

/// What is wrong with a head.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It is none: the stream is reset (RFC 9113 §8.1.1).
    Malformed,
    /// It is larger than may be.
    TooLarge,
    /// It is answered.
    Refused(LocalError),
}

/// A head that was read, and how long it says that its body is.
pub(super) type Read = (RequestHead, Option<u64>);

/// A head of which the lines are told one by one.
pub(super) struct Reader {
    most: Most,
    size: usize,
    wrong: Option<Wrong>,
    method: Option<Method>,
    target: Option<RequestTarget>,
    /// Whether it is one of HTTP.
    scheme: Option<bool>,
    /// The first of the fields, if it was told.
    has_authority: bool,
    /// Fields that are not pseudo-headers.
    lines: usize,
    hosts: usize,
    length: Option<u64>,
    expects: bool,
    fields: Fields,
}

impl Reader {
    /// A head of a block of so many bytes.
    pub(super) fn new(most: Most, block: usize) -> Self {
        Self {
            most,
            size: 0,
            wrong: None,
            method: None,
            target: None,
            scheme: None,
            has_authority: false,
            lines: 0,
            hosts: 0,
            length: None,
            expects: false,
            fields: Fields::with_room_for(4 * block.min(most.bytes / 4)),
        }
    }

    /// Whether the method is HEAD.
    pub(super) fn is_head(&self) -> bool {
        self.method == Some(Method::HEAD)
    }

    /// Whether the client waits for leave to send the body.
    pub(super) fn expects(&self) -> bool {
        self.expects
    }

    /// What its lines come to.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The next line.
    pub(super) fn line(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + LINE;
        if self.wrong.is_some() {
            return;
        }
        self.wrong = if self.size > self.most.bytes {
            Some(Wrong::TooLarge)
        } else if name.first() == Some(&b':') {
            self.pseudo(name, value).err()
        } else {
            self.field(name, value).err()
        };
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Wrong> {
        let again = match name {
            _ if self.lines > 0 => true,
            b":method" => {
                let method = Method::from_bytes(value).map_err(|_| Wrong::Malformed)?;
                self.method.replace(method).is_some()
            }
            b":path" => self.target.replace(target(value)?).is_some(),
            b":scheme" => self.scheme.replace(matches!(value, b"http" | b"https")).is_some(),
            b":authority" => {
                if !is_value(value) {
                    return Err(Wrong::Malformed);
                }
                self.fields.append_line(b"host", value);
                std::mem::replace(&mut self.has_authority, true)
            }
            _ => true,
        };
        if again { Err(Wrong::Malformed) } else { Ok(()) }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Wrong> {
        self.lines += 1;
        if self.lines > self.most.lines {
            return Err(Wrong::Refused(LocalError::HeadTooLarge));
        }
        if !is_line(name, value) {
            return Err(Wrong::Malformed);
        }
        match lower_name(name) {
            LowerName::Plain => {}
            LowerName::Underscored => self.fields.note_underscore(),
            LowerName::Malformed => return Err(Wrong::Malformed),
        }
        match name {
            b"content-length" => {
                let length = read_decimal(value).ok_or(Wrong::Malformed)?;
                if self.length.replace(length).is_some_and(|other| other != length) {
                    return Err(Wrong::Malformed);
                }
            }
            b"expect" => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Wrong::Refused(LocalError::Expectation));
                }
                self.expects = true;
            }
            b"host" => {
                self.hosts += 1;
                let same = |authority: &[u8]| authority.eq_ignore_ascii_case(value.trim_ascii());
                // The same once more says nothing; another is a second host, which no request has.
                if self.hosts == 1 && self.has_authority && self.fields.get(b"host").is_some_and(same) {
                    return Ok(());
                }
            }
            _ => {}
        }
        // Servers do not count the blanks around values.
        self.fields.append_line(name, value.trim_ascii());
        Ok(())
    }

    /// The head, all of whose lines were told.
    pub(super) fn finish(self) -> Result<Read, Wrong> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let method = self.method.ok_or(Wrong::Malformed)?;
        let (target, headers) = match (method == Method::CONNECT, self.scheme, self.target) {
            (false, Some(true), Some(target)) => (target, self.fields),
            (false, Some(false), Some(_)) => {
                return Err(Wrong::Refused(LocalError::Malformed(
                    "the scheme of a request is http or https",
                )));
            }
            // Its target is the authority (RFC 9113 §8.5).
            (true, None, None) if self.has_authority => authority(self.fields)?,
            _ => return Err(Wrong::Malformed),
        };
        Ok((RequestHead { method, target, version: Version::HTTP_2, headers }, self.length))
    }
}

/// The target that `:path` names.
fn target(path: &[u8]) -> Result<RequestTarget, Wrong> {
    if path.len() > TARGET {
        return Err(Wrong::Refused(LocalError::TargetTooLong));
    }
    if let Some(target) = RequestTarget::origin(path) {
        return Ok(target);
    }
    if !path.is_empty() && path[0] != b'/' && path != b"*" {
        let what = "the path of a request begins with a slash";
        return Err(Wrong::Refused(LocalError::Malformed(what)));
    }
    RequestTarget::unusual(path).filter(|_| !path.is_empty()).ok_or(Wrong::Malformed)
}

/// The target of CONNECT, and the fields without it.
fn authority(mut fields: Fields) -> Result<(RequestTarget, Fields), Wrong> {
    let uri = fields.get(b"host").and_then(|name| Uri::try_from(name).ok());
    let uri =
        uri.filter(|uri| uri.authority().is_some() && uri.scheme().is_none()).ok_or(Wrong::Malformed)?;
    fields.remove(b"host");
    Ok((uri.into(), fields))
}

/// Whether a field is about a connection of HTTP/1.1, and so none over HTTP/2 (RFC 9113 §8.2.2).
pub(super) fn is_of_connection(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade")
}

/// Whether a line with such a name can be one of a message over HTTP/2 (RFC 9113 §8.2).
fn is_line(name: &[u8], value: &[u8]) -> bool {
    is_value(value) && !is_of_connection(name) && (name != b"te" || value == b"trailers")
}

/// What stands behind a body, as its lines are told one by one.
pub(super) struct Trailers {
    most: Most,
    size: usize,
    /// `None` once a line was none, or one too many.
    lines: Option<HeaderMap>,
}

impl Trailers {
    pub(super) fn new(most: Most) -> Self {
        Self { most, size: 0, lines: Some(HeaderMap::new()) }
    }

    /// The next line.
    pub(super) fn line(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + LINE;
        let Some(lines) = &mut self.lines else { return };
        let line = (is_line(name, value) && self.size <= self.most.bytes && lines.len() < self.most.lines)
            .then(|| HeaderName::from_lowercase(name).ok().zip(HeaderValue::from_bytes(value).ok()))
            .flatten();
        match line {
            Some((name, value)) => _ = lines.append(name, value),
            None => self.lines = None,
        }
    }

    /// The lines, all of which were told; `None` if they cannot stand behind a body.
    pub(super) fn finish(self) -> Option<HeaderMap> {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MOST: Most = Most { bytes: 32 << 10, lines: 3 };
    const USUAL: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/x?y")];

    fn read(lines: &[(&str, &str)]) -> Result<Read, Wrong> {
        let mut reader = Reader::new(MOST, 0);
        lines.iter().for_each(|(name, value)| reader.line(name.as_bytes(), value.as_bytes()));
        reader.finish()
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
    fn a_host_is_said_once() {
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
    fn what_http1_cannot_say_is_refused() {
        let long = format!("/{}", "x".repeat(TARGET));
        for (path, more) in [
            ("http://a/", &[][..]),
            ("x", &[]),
            (&long, &[]),
            ("/", &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]),
        ] {
            let lines = [&USUAL[..3], &[(":path", path)], more].concat();
            assert!(matches!(read(&lines), Err(Wrong::Refused(_))), "{path} {more:?}");
        }
        let scheme = [(":method", "GET"), (":scheme", "ftp"), (":path", "/")];
        assert!(matches!(read(&scheme), Err(Wrong::Refused(_))));
    }

    #[test]
    fn what_is_no_head() {
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
            assert!(matches!(read(&with(more)), Err(Wrong::Malformed)), "{more:?}");
        }
        assert!(read(&with(&[("content-length", "1"), ("content-length", "1"), ("te", "trailers")])).is_ok());
        for missing in [0, 1, 3] {
            let mut lines = USUAL.to_vec();
            lines.remove(missing);
            assert!(matches!(read(&lines), Err(Wrong::Malformed)), "without {}", USUAL[missing].0);
        }
        assert!(matches!(read(&with(&[("x", &"y".repeat(32 << 10))])), Err(Wrong::TooLarge)));
    }

    #[test]
    fn connect_names_an_authority_alone() {
        let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
        let (head, _) = read(&connect).unwrap();
        assert_eq!((head.target.authority(), head.target.path()), (Some("a.test:443"), ""));
        for more in [[(":path", "/")], [(":scheme", "http")]] {
            assert!(read(&[&connect[..], &more].concat()).is_err());
        }
        assert!(read(&connect[..1]).is_err());
    }

    #[test]
    fn what_may_stand_behind_a_body() {
        let trailers = |lines: &[(&str, &str)]| {
            let mut trailers = Trailers::new(MOST);
            lines.iter().for_each(|(name, value)| trailers.line(name.as_bytes(), value.as_bytes()));
            trailers.finish().map(|lines| lines.len())
        };
        assert_eq!(trailers(&[("x-sum", "1"), ("x-sum", "2")]), Some(2));
        for bad in [(":path", "/"), ("X-Sum", "1"), ("connection", "close"), ("x", "\0")] {
            assert_eq!(trailers(&[bad]), None, "{bad:?}");
        }
    }
}
