//! Changes of headers and paths, and where clients are redirected.

use http::header::{self, HeaderName};
use regex::Regex;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::language::template::{Piece, Template, Variable, variables};

/// A change of one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderChange {
    /// Its name.
    pub name: HeaderName,
    /// The change.
    pub change: Change,
}

/// A change of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// All its lines are removed.
    Remove,
    /// It has this one line.
    Set(Template),
    /// It has one more line.
    Add(Template),
}

/// Changes of headers, serialized as the names of the headers. What they are set to may be a secret.
#[derive(Clone, Copy, Debug)]
pub struct HeaderChanges<'a>(pub &'a [HeaderChange]);

/// A change of the path before a request is forwarded.
#[derive(Clone, Debug, Default)]
pub enum PathChange {
    /// Nothing.
    #[default]
    Keep,
    /// This is taken from its front, at the border of a segment.
    Strip(String),
    /// It is another one.
    Template(UriTemplate),
    /// What matches is replaced.
    Regex {
        /// The pattern that is replaced.
        pattern: Regex,
        /// What stands there instead.
        to: Vec<RegexPiece>,
    },
}

/// A piece of what stands in the place of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegexPiece {
    /// What stands there.
    Text(String),
    /// What a group of the pattern matched.
    Group(usize),
}

/// A path or URL with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriTemplate {
    /// As the file writes it.
    pub text: String,
    /// Scheme and host; empty for a path alone.
    pub origin: Vec<Piece>,
    /// The path.
    pub path: Vec<Piece>,
    /// The query, without the question mark; `None` leaves the request's own.
    pub query: Option<Vec<Piece>>,
}

impl HeaderChange {
    /// The text that it writes, if it writes one.
    #[inline]
    pub const fn template(&self) -> Option<&Template> {
        match &self.change {
            Change::Remove => None,
            Change::Set(template) | Change::Add(template) => Some(template),
        }
    }

    /// Whether present values are removed. The host is always replaced, because a request has exactly one.
    #[inline]
    pub fn clears(&self) -> bool {
        !matches!(self.change, Change::Add(_)) && self.name != header::HOST
    }
}

impl PathChange {
    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let template = match self {
            Self::Template(template) => Some(template),
            _ => None,
        };
        template.into_iter().flat_map(UriTemplate::variables)
    }
}

impl UriTemplate {
    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let query = self.query.as_deref().unwrap_or_default();
        variables(&self.origin).chain(variables(&self.path)).chain(variables(query))
    }
}

/// As a route writes it, so that it can stand among the other fields of one.
impl Serialize for PathChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (field, value) = match self {
            Self::Keep => return serializer.collect_map([("", ""); 0]),
            Self::Strip(prefix) => ("strip_prefix", json!(prefix)),
            Self::Template(template) => ("rewrite", json!(template.text)),
            Self::Regex { pattern, .. } => ("rewrite", json!({ "match": pattern.as_str() })),
        };
        serializer.collect_map([(field, value)])
    }
}

impl Serialize for HeaderChanges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of = |wanted: fn(&Change) -> bool| {
            let all = self.0.iter().filter(|change| wanted(&change.change));
            all.map(|change| change.name.as_str()).collect::<Vec<_>>()
        };
        serializer.collect_map([
            ("remove", of(|change| matches!(change, Change::Remove))),
            ("set", of(|change| matches!(change, Change::Set(_)))),
            ("add", of(|change| matches!(change, Change::Add(_)))),
        ])
    }
}
