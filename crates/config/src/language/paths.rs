//! The paths of a route.

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::language::match_regex::PathRegex;
use crate::language::pattern::{Params, PathPattern};

/// Which paths a route takes: one of the patterns or expressions has to match. Without any, all paths match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Patterns.
    pub patterns: Vec<PathPattern>,
    /// Regular expressions.
    pub regexes: Vec<PathRegex>,
}

impl Paths {
    /// Whether all paths match because none is given.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.patterns.is_empty() && self.regexes.is_empty()
    }

    /// Whether `path` (in normal form) matches without a look at the expressions; the parameters of the pattern are then in
    /// `params`.
    #[inline]
    pub fn match_patterns<'a>(&'a self, path: &'a str, params: &mut Params<'a>) -> bool {
        self.is_any() || self.patterns.iter().any(|pattern| pattern.matches(path, params))
    }

    /// Whether `path` (in normal form) matches one of the expressions.
    #[inline]
    pub fn match_regexes(&self, path: &str) -> bool {
        self.regexes.iter().any(|regex| regex.matches(path))
    }

    /// Whether every path that matches has a parameter of this name.
    pub fn have_param(&self, name: &str) -> bool {
        !self.patterns.is_empty()
            && self.regexes.is_empty()
            && self.patterns.iter().all(|pattern| pattern.has_param(name))
    }

    /// Whether every path that `other` matches is matched by these, too, as far as the patterns tell.
    pub fn cover(&self, other: &Self) -> bool {
        let covered = |path: &PathPattern| self.patterns.iter().any(|own| own.covers(path));
        self.is_any()
            || self.patterns.iter().any(PathPattern::is_everything)
            || (!other.is_any()
                && other.patterns.iter().all(covered)
                && other.regexes.iter().all(|regex| self.regexes.contains(regex)))
    }
}

/// A list, as the file writes it: patterns as texts, expressions as `{regex: TEXT}`.
impl Serialize for Paths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let patterns = self.patterns.iter().map(|pattern| json!(pattern.to_string()));
        serializer.collect_seq(patterns.chain(self.regexes.iter().map(|regex| json!(regex))))
    }
}
