//! The patterns of `match`: hosts and paths.

use std::fmt;

use serde::{Serialize, Serializer};
use smallvec::SmallVec;

use crate::language::match_regex::MatchRegex;
use crate::normalize;
use crate::read::report::Mistake;

/// The parameters of a path that matched: names from the pattern, values from the path.
pub type Params<'a> = SmallVec<[(&'a str, &'a str); 4]>;

/// `api.example.com`, `*.example.com` for every name below, or a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This name.
    Exact(String),
    /// Any name that ends in this, which begins with a dot.
    Below(String),
    /// Any name that matches, without regard to case.
    Regex(MatchRegex),
}

/// `/login`, `/v1/*`, `/users/{id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    segments: Vec<Segment>,
    /// Whether all below matches too.
    open: bool,
    /// Whether a path that is matched to its end has to end in a slash.
    directory: bool,
}

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This text.
    Literal(String),
    /// Any text; a parameter of this name takes it.
    Param(String),
}

/// Where a pattern ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    /// After its last segment.
    Closed,
    /// After the slash that follows its last segment.
    Directory,
    /// Nowhere: all paths below match.
    Open,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    /// The error.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

fn error(message: impl Into<String>, help: Option<String>) -> PatternError {
    PatternError { message: message.into(), help }
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is not a host name, or has a `*` elsewhere than as its first label.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let lower = text.trim_end_matches('.').to_ascii_lowercase();
        let (name, below) = match lower.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (lower.as_str(), false),
        };
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let is_address = name.starts_with('[') && name.ends_with(']');
        if !is_address && !name.split('.').all(is_label) {
            let help = "write a name such as api.example.com, or *.example.com for all names below it";
            return Err(error(format!("`{text}` is not a host name (without port)"), Some(help.into())));
        }
        Ok(if below { Self::Below(format!(".{name}")) } else { Self::Exact(name.to_owned()) })
    }

    /// Whether `host` (lower case, without port) matches.
    #[inline]
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Self::Regex(regex) => regex.matches(host.as_bytes()),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*{suffix}"),
            Self::Regex(regex) => f.write_str(regex.as_str()),
        }
    }
}

/// As the file writes it.
impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exact(_) | Self::Below(_) => serializer.collect_str(self),
            Self::Regex(regex) => regex.serialize(serializer),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(name) => write!(f, "/{name}")?,
                Segment::Param(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.open, self.directory) {
            (true, _) => f.write_str("/*"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is not an absolute path in normal form, or has `*` or braces where they mean nothing.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(error(
                format!("the path `{text}` does not begin with /"),
                Some(format!("write `/{text}`")),
            ));
        };
        let (closed, open) = match rest {
            "*" => ("", true),
            _ => match rest.strip_suffix("/*") {
                Some(closed) => (closed, true),
                None => (rest, false),
            },
        };
        let directory = !open && (closed.is_empty() || closed.ends_with('/'));
        let mut segments = Vec::new();
        for part in closed.strip_suffix('/').unwrap_or(closed).split('/').filter(|_| !closed.is_empty()) {
            segments.push(segment(text, part)?);
        }
        let names: Vec<&str> = segments.iter().filter_map(Segment::name).collect();
        if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(error(format!("the path `{text}` has the parameter {{{}}} twice", twice.1), None));
        }
        Ok(Self { segments, open, directory })
    }

    /// Whether the path has a parameter of this name.
    pub fn has_param(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| segment.name() == Some(name))
    }

    /// The names of its parameters.
    #[inline]
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::name)
    }

    /// Its segments.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Its segments, `None` for a parameter.
    #[inline]
    pub fn literals(&self) -> impl Iterator<Item = Option<&str>> {
        self.segments.iter().map(|segment| match segment {
            Segment::Literal(name) => Some(name.as_str()),
            Segment::Param(_) => None,
        })
    }

    /// Where it ends.
    #[inline]
    pub fn end(&self) -> PathEnd {
        match (self.open, self.directory) {
            (true, _) => PathEnd::Open,
            (false, true) => PathEnd::Directory,
            (false, false) => PathEnd::Closed,
        }
    }

    /// Whether it is every path.
    pub fn is_everything(&self) -> bool {
        self.open && self.segments.is_empty()
    }

    /// Whether it is one path, without parameters and `*`.
    pub fn is_literal(&self) -> bool {
        !self.open && self.segments.iter().all(|segment| segment.name().is_none())
    }

    /// The path that it stands for, with plain text for what is open.
    pub fn bare(&self) -> String {
        let names = self.segments.iter().map(|segment| match segment {
            Segment::Literal(name) => name.as_str(),
            Segment::Param(_) => "x",
        });
        let path: String = names.flat_map(|name| ["/", name]).collect();
        if self.directory || path.is_empty() { path + "/" } else { path }
    }

    /// Whether every path that `other` matches is matched by this one too, as far as the patterns tell.
    pub fn covers(&self, other: &Self) -> bool {
        let fits = self.segments.iter().zip(&other.segments).all(|pair| match pair {
            (Segment::Param(_), _) => true,
            (Segment::Literal(a), Segment::Literal(b)) => a == b,
            (Segment::Literal(_), Segment::Param(_)) => false,
        });
        let (own, others) = (self.segments.len(), other.segments.len());
        fits && if self.open {
            own <= others
        } else {
            own == others && !other.open && self.directory == other.directory
        }
    }

    /// What of a `path` that matches lies below the pattern, without the slash before it.
    #[inline]
    pub fn rest<'a>(&self, path: &'a str) -> &'a str {
        let mut rest = path;
        for _ in &self.segments {
            rest = rest.strip_prefix('/').and_then(|rest| Some(&rest[rest.find('/')?..])).unwrap_or_default();
        }
        rest.strip_prefix('/').unwrap_or(rest)
    }

    /// Whether `path` (in normal form) matches; its parameters are then added to `params`.
    #[inline]
    pub fn matches<'a>(&'a self, path: &'a str, params: &mut Params<'a>) -> bool {
        params.clear();
        let bytes = path.as_bytes();
        let mut at = 0;
        for segment in &self.segments {
            if bytes.get(at) != Some(&b'/') {
                return false;
            }
            let begin = at + 1;
            at = match segment {
                Segment::Literal(name) => begin + name.len(),
                Segment::Param(_) => bytes[begin..]
                    .iter()
                    .position(|b| *b == b'/')
                    .map_or(bytes.len(), |length| begin + length),
            };
            let Some(value) = bytes.get(begin..at).filter(|value| !value.is_empty()) else { return false };
            match segment {
                Segment::Literal(name) if name.as_bytes() != value => return false,
                Segment::Literal(_) => {}
                Segment::Param(name) => params.push((name, &path[begin..at])),
            }
            if bytes.get(at).is_some_and(|b| *b != b'/') {
                return false;
            }
        }
        // Not compared with an empty text, which some `memcmp` take ten times as long for as for any other.
        self.open || if self.directory { bytes[at..] == *b"/" } else { at == bytes.len() }
    }
}

fn segment(text: &str, part: &str) -> Result<Segment, PatternError> {
    if let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        let good =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        return if good {
            Ok(Segment::Param(name.to_owned()))
        } else {
            Err(error(format!("`{part}` in the path `{text}` is not a parameter name"), None))
        };
    }
    if part.contains(['{', '}']) {
        let help = "a parameter is a whole segment: /users/{id}".to_owned();
        return Err(error(format!("`{part}` in the path `{text}` mixes text and a parameter"), Some(help)));
    }
    if part.contains('*') {
        let help = "only the last segment may be *: /v1/* is /v1 and all below it".to_owned();
        return Err(error(format!("the path `{text}` has a * that is not its last segment"), Some(help)));
    }
    let absolute = format!("/{part}");
    match normalize(&absolute) {
        Ok(normal) if normal == absolute && !part.is_empty() && !part.contains(['?', '#']) => {
            Ok(Segment::Literal(part.to_owned()))
        }
        _ => {
            let help =
                "paths are matched without //, dot segments and needless escapes, and without the query";
            Err(error(format!("the path `{text}` is not in normal form"), Some(help.into())))
        }
    }
}

impl Segment {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Param(name) => Some(name),
            Self::Literal(_) => None,
        }
    }
}

impl From<PatternError> for Mistake {
    fn from(error: PatternError) -> Self {
        Self { message: error.message, help: error.help }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, path: &str) -> bool {
        PathPattern::parse(pattern).unwrap().matches(path, &mut Params::new())
    }

    #[test]
    fn exact_prefix_and_parameters() {
        assert!(
            matched("/login", "/login") && !matched("/login", "/login/") && !matched("/login", "/login2")
        );
        assert!(matched("/v1/*", "/v1/") && matched("/v1/*", "/v1/a/b") && matched("/v1/*", "/v1"));
        assert!(!matched("/v1/*", "/v10") && !matched("/v1/*", "/v"));
        assert!(matched("/*", "/") && matched("/*", "/a") && matched("/", "/") && !matched("/", "/a"));
        assert!(matched("/a/", "/a/") && !matched("/a/", "/a"));
        assert!(!matched("/users/{id}", "/users/") && !matched("/users/{id}", "/users/1/x"));
        let pattern = PathPattern::parse("/users/{id}/posts/{post}").unwrap();
        let mut params = Params::new();
        assert!(pattern.matches("/users/7/posts/x", &mut params));
        assert_eq!(params.as_slice(), [("id", "7"), ("post", "x")]);
        let rest = |pattern, path| PathPattern::parse(pattern).unwrap().rest(path);
        assert_eq!((rest("/v1/*", "/v1/a/b"), rest("/v1/*", "/v1"), rest("/v1/*", "/v1/")), ("a/b", "", ""));
        assert_eq!((rest("/*", "/a"), rest("/*", "/"), rest("/{a}/x/*", "/q/x/y/")), ("a", "", "y/"));
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for text in
            ["login", "/a/*/b", "/a*", "/{}", "/x{id}", "/a//b", "/a/../b", "/%61", "/{a}/{a}", "/a?b"]
        {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
        for text in ["", "a..b", "a b", "*", "a.*.b", "host:80"] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts() {
        let below = HostPattern::parse("*.Example.com").unwrap();
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches("badexample.com"));
    }

    #[test]
    fn a_wide_pattern_covers_a_narrow_one() {
        let covers = |a, b| PathPattern::parse(a).unwrap().covers(&PathPattern::parse(b).unwrap());
        assert!(covers("/*", "/v1/*") && covers("/v1/*", "/v1/x") && covers("/u/{id}", "/u/7"));
        assert!(!covers("/v1/x", "/v1/*") && !covers("/u/7", "/u/{id}") && !covers("/v1/*", "/*"));
    }
}
