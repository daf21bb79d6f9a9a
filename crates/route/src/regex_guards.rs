//! Routes with limits or lists whose paths are regular expressions, and the paths that match them loosely.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::path_variants::{folded, is_plain};
use sluicegate_config::{PathRegex, Paths};

/// A route whose limits or lists apply to paths that its expressions match loosely.
#[derive(Debug)]
pub(super) struct RegexGuard {
    pub(super) route: usize,
    regexes: Box<[PathRegex]>,
}

/// The forms in which lenient servers may read a path, in normal form: as it is, in the form of keys, and without what
/// surrounds the names of its segments, with and without segments that have no name.
pub(super) struct Readings<'a>(SmallVec<[Cow<'a, str>; 4]>);

impl RegexGuard {
    /// `None` for a route without expressions.
    pub(super) fn new(route: usize, paths: &Paths) -> Option<Self> {
        (!paths.regexes.is_empty()).then(|| Self { route, regexes: paths.regexes.as_slice().into() })
    }

    /// The front of a reading that one of the expressions matches.
    pub(super) fn matches(&self, readings: &Readings<'_>) -> Option<String> {
        let front = |path: &Cow<'_, str>| {
            self.regexes.iter().find_map(|regex| Some(regex.loose_match(path)?.to_owned()))
        };
        readings.0.iter().find_map(front)
    }
}

impl<'a> Readings<'a> {
    /// The readings of `path`. `cores` are the path made of the cores of its segments: of all, and of those that no server
    /// ignores.
    pub(super) fn of(path: &'a str, cores: [String; 2]) -> Self {
        let mut readings = Self(SmallVec::new());
        readings.0.push(Cow::Borrowed(path));
        if !is_plain(path) {
            for reading in [folded(path).into_owned()].into_iter().chain(cores) {
                let reading = encoded(if reading.is_empty() { "/" } else { &reading });
                if readings.0.iter().all(|known| **known != reading) {
                    readings.0.push(Cow::Owned(reading));
                }
            }
        }
        readings
    }
}

/// A decoded path with all characters percent-encoded that a path in normal form has encoded.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte.is_ascii_graphic() && !b"\"#%<>?[\\]^`{|}".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::Method;
    use sluicegate_wire::Headers;

    use super::super::{RouteQuery, RouteTable, fixture};

    fn table(regex: &str) -> RouteTable {
        let config = fixture::config(&[
            format!("{{match: {{path: {{regex: '{regex}'}}}}, upstream: u0, limits: [one]}}"),
            "{upstream: u0}".to_owned(),
        ]);
        RouteTable::new(&config)
    }

    #[test]
    fn another_spelling_of_a_path_that_an_expression_matches_has_its_limits() {
        let headers = Headers::default();
        for (regex, path, expected) in [
            ("^/log-?in$", "/login", None),
            ("^/log-?in$", "/Log-In", Some("/Log-In")),
            ("^/log-?in$", "/login/", Some("/login")),
            ("^/log-?in$", "/login;x=1", Some("/login")),
            ("^/log-?in$", "/log-in.json", Some("/log-in")),
            ("^/log-?in$", "/%256cogin", Some("/login")),
            ("^/log-?in$", "/login%20", Some("/login")),
            ("^/log-?in$", "/*login~", Some("/login")),
            ("^/log-?in$", "/%EF%BD%8Cogin", Some("/login")),
            ("^/log-?in$", "/-/login", Some("/login")),
            ("^/log-?in$", "/login2", None),
            ("^/LOGIN$", "/login", Some("/login")),
            ("/a%20b/[0-9]+", "/A%20b;x/7", Some("/a%20b/7")),
            ("/_internal/.*", "/_Internal;x/y", Some("/_internal/y")),
            ("/.*", "/Any/thing.json", None),
        ] {
            let table = table(regex);
            let query = RouteQuery {
                listener: 0,
                host: "x",
                method: &Method::GET,
                path,
                headers: &headers,
                query: "",
            };
            let (found, _) = table.find(&query).unwrap();
            let matches = table.lax_matches(&query, found, super::is_plain(path));
            let paths: Vec<&str> = matches.iter().map(|lax| lax.path.as_str()).collect();
            assert_eq!(paths, expected.into_iter().collect::<Vec<_>>(), "{regex} {path}");
        }
    }

    #[test]
    fn a_long_path_is_compared_in_bounded_time() {
        let table = table("^(/[a-z]+)+/items$");
        let path = format!("/A{}", ".x/y".repeat(2_000));
        let headers = Headers::default();
        let query = RouteQuery {
            listener: 0,
            host: "x",
            method: &Method::GET,
            path: &path,
            headers: &headers,
            query: "",
        };
        assert!(table.lax_matches(&query, 1, false).is_empty());
    }
}
