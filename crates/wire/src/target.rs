//! The request target (RFC 9112 §3.2): path, query, and the host if it is in absolute form.

use std::fmt;

use http::uri::{Authority, PathAndQuery, Scheme, Uri};

/// The target of a request. All of it is visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTarget {
    /// Path and query.
    text: String,
    /// Where the path ends.
    path: usize,
    /// Scheme and authority of a target in absolute form.
    origin: Option<Box<(Option<Scheme>, Authority)>>,
}

/// The characters that the `http` crate accepts in paths (bit 0) and in queries (bit 1).
const CHARACTERS: [u8; 256] = {
    let mut characters = [0; 256];
    let mut at = 0x21;
    while at < 0x7f {
        let b = at as u8;
        let (query, path) = (
            matches!(b, 0x21 | 0x24..=0x3b | 0x3d | 0x3f..=0x7e),
            matches!(b, 0x21 | 0x24..=0x3b | 0x3d | 0x40..=0x5f | 0x61..=0x7a | 0x7c | 0x7e | b'"' | b'{' | b'}'),
        );
        characters[at] = path as u8 | (query as u8) << 1;
        at += 1;
    }
    characters
};

impl RequestTarget {
    /// Reads a target in origin form; `None` if it is in another form or is malformed.
    #[inline]
    pub fn origin(bytes: &[u8]) -> Option<Self> {
        if bytes.first() != Some(&b'/') {
            return None;
        }
        let path = bytes.iter().position(|b| *b == b'?').unwrap_or(bytes.len());
        let all = |part: &[u8], bit: u8| {
            part.iter().fold(u8::MAX, |good, b| good & CHARACTERS[usize::from(*b)]) & bit != 0
        };
        let good = all(&bytes[..path], 1) && all(bytes.get(path + 1..).unwrap_or_default(), 2);
        let text = String::from_utf8(bytes.to_vec()).ok().filter(|_| good)?;
        Some(Self { text, path, origin: None })
    }

    /// Reads a target in origin form with visible characters that have to be percent-encoded, such as `"` in the query: they are.
    /// `None` if it is in another form or has other characters.
    #[cold]
    pub fn encoded(bytes: &[u8]) -> Option<Self> {
        if !bytes.iter().all(|b| b.is_ascii_graphic() && *b != b'#') {
            return None;
        }
        let (mut encoded, mut allowed) = (Vec::with_capacity(bytes.len() + 16), 1);
        for b in bytes {
            match b {
                b'?' if allowed == 1 => {
                    allowed = 2;
                    encoded.push(b'?');
                }
                b if CHARACTERS[usize::from(*b)] & allowed != 0 => encoded.push(*b),
                b => encoded.extend(format!("%{b:02X}").bytes()),
            }
        }
        Self::origin(&encoded)
    }

    /// The target of OPTIONS for a whole server, `*`.
    pub fn asterisk() -> Self {
        Self::from(&PathAndQuery::from_static("*"))
    }

    /// Path and query as one text; `*` for a target in asterisk form.
    #[inline]
    pub fn path_and_query(&self) -> &str {
        &self.text
    }

    /// The path as it was sent; empty if the target is in authority form.
    #[inline]
    pub fn path(&self) -> &str {
        &self.text[..self.path]
    }

    /// The query as it was sent, without the question mark.
    #[inline]
    pub fn query(&self) -> Option<&str> {
        self.text.get(self.path + 1..)
    }

    /// The scheme of a target in absolute form.
    pub fn scheme(&self) -> Option<&Scheme> {
        self.origin.as_deref()?.0.as_ref()
    }

    /// Host and port of a target in absolute or authority form.
    pub fn authority(&self) -> Option<&str> {
        self.origin.as_deref().map(|(_, authority)| authority.as_str())
    }

    /// The same target without scheme and authority.
    pub fn in_origin_form(&self) -> Self {
        Self { origin: None, ..self.clone() }
    }

    /// The same target with another path and query.
    pub fn with(&self, target: &PathAndQuery) -> Self {
        Self { origin: self.origin.clone(), ..Self::from(target) }
    }
}

impl From<&PathAndQuery> for RequestTarget {
    fn from(target: &PathAndQuery) -> Self {
        let text = match target.as_str() {
            "*" => "*".to_owned(),
            text if text.starts_with('/') => text.to_owned(),
            text => format!("/{text}"), // http://a?x asks for /?x
        };
        Self { path: text.find('?').unwrap_or(text.len()), text, origin: None }
    }
}

impl From<Uri> for RequestTarget {
    fn from(uri: Uri) -> Self {
        let parts = uri.into_parts();
        let scheme = parts.scheme;
        let mut target = match parts.path_and_query {
            Some(target) => Self::from(&target),
            None if scheme.is_some() => Self::from(&PathAndQuery::from_static("/")),
            None => Self { text: String::new(), path: 0, origin: None }, // CONNECT
        };
        target.origin = parts.authority.map(|authority| Box::new((scheme, authority)));
        target
    }
}

impl From<&RequestTarget> for Uri {
    fn from(target: &RequestTarget) -> Self {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = target.text.parse().ok();
        if let Some((scheme, authority)) = target.origin.as_deref() {
            (parts.scheme, parts.authority) = (scheme.clone(), Some(authority.clone()));
        }
        // The parts came from a URI, so they form one.
        Self::from_parts(parts).unwrap_or_default()
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((scheme, authority)) = self.origin.as_deref() {
            match scheme {
                Some(scheme) => write!(f, "{scheme}://{authority}")?,
                None => write!(f, "{authority}")?,
            }
        }
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// A target in origin form is accepted exactly if the `http` crate accepts it, with the same parts.
        #[test]
        fn accepts_what_the_http_crate_accepts(bytes in prop::collection::vec(0x20_u8..0x80, 0..12), slash in any::<bool>()) {
            let bytes = if slash { [b"/", &bytes[..]].concat() } else { bytes };
            let other = Uri::try_from(&bytes[..]).ok().filter(|_| bytes.starts_with(b"/") && !bytes.contains(&b'#'));
            let target = RequestTarget::origin(&bytes);
            prop_assert_eq!(target.is_some(), other.is_some(), "{:?}", String::from_utf8_lossy(&bytes));
            if let (Some(target), Some(other)) = (target, other) {
                prop_assert_eq!((target.path(), target.query()), (other.path(), other.query()));
                prop_assert_eq!(target.path_and_query().as_bytes(), &bytes[..]);
                prop_assert_eq!(&RequestTarget::from(other.clone()), &target);
                prop_assert_eq!(Uri::from(&target), other);
            }
        }
    }

    #[test]
    fn absolute_forms() {
        let of = |text: &str| RequestTarget::from(text.parse::<Uri>().unwrap());
        let target = of("http://a.test:80/b?c");
        assert_eq!((target.path(), target.query(), target.authority()), ("/b", Some("c"), Some("a.test:80")));
        assert_eq!(target.to_string(), "http://a.test:80/b?c");
        assert_eq!(of("http://a?x").path_and_query(), "/?x");
        assert_eq!(of("http://a").path_and_query(), "/");
        assert_eq!((of("*").path(), of("a.test:443").path()), ("*", ""));
        assert_eq!(
            (of("a.test:443").authority(), of("a.test:443").to_string()),
            (Some("a.test:443"), "a.test:443".into())
        );
        assert_eq!(target.with(&PathAndQuery::from_static("/new")).to_string(), "http://a.test:80/new");
    }
}
