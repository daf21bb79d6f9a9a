//! Query parameters that requests of a route must have.

use serde::Serializer;
use serde_json::{Value, json};

use crate::language::match_regex::MatchRegex;
use crate::language::percent::form_decode;

/// A parameter that the query must have. Names and values are compared decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryMatch {
    /// Its name.
    pub name: String,
    /// Its value; if the parameter is given several times, one of its values.
    pub value: QueryValue,
}

/// A value of a query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryValue {
    /// Any value, or none.
    Any,
    /// This value.
    Exact(String),
    /// A value that matches.
    Regex(MatchRegex),
}

impl QueryMatch {
    /// Whether a query has the parameter. `query` is as the client wrote it, without the question mark.
    pub fn matches(&self, query: &str) -> bool {
        query.split('&').filter(|pair| !pair.is_empty()).any(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            form_decode(name).as_ref() == self.name.as_bytes() && self.value.matches(value)
        })
    }
}

impl QueryValue {
    fn matches(&self, written: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(value) => form_decode(written).as_ref() == value.as_bytes(),
            Self::Regex(regex) => regex.matches(&form_decode(written)),
        }
    }
}

/// Values may be secrets, so they are not shown; `*` is any value.
pub(crate) fn serialize<S: Serializer>(query: &[QueryMatch], serializer: S) -> Result<S::Ok, S::Error> {
    let shown = |value: &QueryValue| -> Value {
        match value {
            QueryValue::Any => json!("*"),
            QueryValue::Exact(_) => json!("(redacted)"),
            QueryValue::Regex(_) => json!({ "regex": "(redacted)" }),
        }
    };
    serializer.collect_map(query.iter().map(|one| (&one.name, shown(&one.value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_compared_decoded() {
        let one = |name: &str, value: QueryValue| QueryMatch { name: name.to_owned(), value };
        let exact = |value: &str| QueryValue::Exact(value.to_owned());
        let regex = |text: &str| QueryValue::Regex(MatchRegex::new(text, false).unwrap());
        for (wanted, query, expected) in [
            (one("a", exact("1")), "a=1", true),
            (one("a", exact("1")), "%61=%31", true),
            (one("a", exact("1")), "b=1&a=2&a=1", true),
            (one("a", exact("1")), "a=12", false),
            (one("a", exact("1")), "A=1", false),
            (one("a", exact("x y")), "a=x+y", true),
            (one("a", exact("")), "a", true),
            (one("a", QueryValue::Any), "a", true),
            (one("a", QueryValue::Any), "a=", true),
            (one("a", QueryValue::Any), "", false),
            (one("a", regex("[0-9]+")), "a=%37", true),
            (one("a", regex("[0-9]+")), "a=7x", false),
            (one("é", exact("é")), "%C3%A9=%c3%a9", true),
        ] {
            assert_eq!(wanted.matches(query), expected, "{wanted:?} {query}");
        }
    }
}
