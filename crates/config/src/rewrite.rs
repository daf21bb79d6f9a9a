//! Changes of headers and paths, and where clients are redirected.

use http::header::{self, HeaderName};
use regex::Regex;

use super::template::{Piece, Template, Variable, variables};

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
