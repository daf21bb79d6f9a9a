//! Why no route matches a request.

use super::query::RouteQuery;
use super::table::{at_listener, has_headers, has_query, takes_method};
use sluicegate_config::{Match, Params};

/// The parts of a request that a route does not match: one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misses(u8);

impl Misses {
    /// The names of the parts, in the order of the bits. Among routes with equally many mismatches, the one with mismatches in
    /// earlier parts is the nearest: logs often lack these.
    const NAMES: [&str; 6] = ["host", "listener", "headers", "query", "method", "path"];

    /// The mismatches of one route.
    pub fn of(route: &Match, query: &RouteQuery<'_>) -> Self {
        let mut params = Params::new();
        let matches = [
            route.hosts.is_empty() || route.hosts.iter().any(|host| host.matches(query.host)),
            at_listener(route, query),
            has_headers(route, query),
            has_query(route, query),
            takes_method(route, query),
            route.paths.match_patterns(query.path, &mut params) || route.paths.match_regexes(query.path),
        ];
        Self(matches.iter().rev().fold(0, |bits, matches| bits << 1 | u8::from(!matches)))
    }

    /// The mismatches of the route with the fewest; `None` if there is no route.
    pub fn of_nearest<'r>(routes: impl Iterator<Item = &'r Match>, query: &RouteQuery<'_>) -> Option<Self> {
        let all = routes.map(|route| Self::of(route, query));
        all.min_by_key(|misses| (misses.0.count_ones(), misses.0))
    }

    /// The names of the parts.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::fixture;
    use super::*;
    use sluicegate_wire::Headers;

    #[test]
    fn the_nearest_route_determines_the_mismatches() {
        let config = fixture::config(&[
            "{name: a, match: {host: a.test, path: /a/*}, respond: {status: 200}}".into(),
            "{name: b, match: {path: /b, methods: GET, headers: {x-b: '1'}}, respond: {status: 200}}".into(),
            "{name: c, match: {path: {regex: '/c[0-9]'}, query: {c: '1'}}, respond: {status: 200}}".into(),
        ]);
        let headers = Headers::default();
        for (host, path, method, missed) in [
            ("", "/a/x", Method::GET, &["host"][..]),
            ("a.test", "/d", Method::GET, &["path"]),
            ("", "/b", Method::GET, &["headers"]),
            ("", "/b", Method::POST, &["headers", "method"]),
            ("a.test", "/a/x", Method::GET, &[]),
            ("", "/c1", Method::GET, &["query"]),
        ] {
            let query = RouteQuery { listener: 0, host, method: &method, path, headers: &headers, query: "" };
            let misses = Misses::of_nearest(config.routes.iter().map(|route| &route.matches), &query);
            assert!(misses.unwrap().names().eq(missed.iter().copied()), "{host} {path} {misses:?}");
        }
    }
}
