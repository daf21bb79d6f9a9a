//! The routes that are found, against a look at all of them.

use http::Method;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::fixture::{self, Request};
use super::*;
use regex::Regex;
use sluicegate_config::{HostPattern, PathPattern, PathRegex};

/// Whether a path matches, and its parameters: pattern and path, segment by segment as they are written.
fn slow_path<'a>(pattern: &str, path: &'a str) -> Option<Vec<(String, &'a str)>> {
    let (pattern, open) = match pattern.strip_suffix("/*") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut found = Vec::new();
    let mut segments = path.split('/');
    for wanted in pattern.split('/') {
        let segment = segments.next()?;
        match wanted.strip_prefix('{').and_then(|wanted| wanted.strip_suffix('}')) {
            Some(name) if !segment.is_empty() => found.push((name.to_owned(), segment)),
            None if wanted == segment => {}
            _ => return None,
        }
    }
    (open || segments.next().is_none()).then_some(found)
}

fn slow_regex(text: &str, wanted: &str) -> bool {
    Regex::new(&format!("^({text})$")).unwrap().is_match(wanted)
}

fn slow_host(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(below) => host.len() > below.len() && host.ends_with(below),
        None => pattern == host,
    }
}

/// The index of the first route that takes the request, and its parameters.
fn slow(configs: &[RouteConfig], request: &Request) -> Option<(usize, Vec<(String, String)>)> {
    configs.iter().enumerate().find_map(|(index, config)| {
        let Match { hosts, paths, methods, .. } = &config.matches;
        let is_host = |host: &HostPattern| match host {
            HostPattern::Regex(regex) => slow_regex(&regex.as_str().to_lowercase(), request.host),
            host => slow_host(&host.to_string(), request.host),
        };
        let is_path = |path: &PathPattern| slow_path(&path.to_string(), &request.path);
        let is_regex = |regex: &PathRegex| slow_regex(regex.as_str(), &request.path);
        let takes_path = paths.is_any() || paths.regexes.iter().any(is_regex);
        let params = paths.patterns.iter().find_map(is_path).or_else(|| takes_path.then(Vec::new));
        let takes = (hosts.is_empty() || hosts.iter().any(is_host))
            && (methods.is_empty() || methods.contains(&request.method));
        let params = params.filter(|_| takes)?.into_iter();
        Some((index, params.map(|(name, value)| (name, value.to_owned())).collect()))
    })
}

fn fast(table: &RouteTable, request: &Request) -> Option<(usize, Vec<(String, String)>)> {
    let Request { host, method, path } = request;
    let headers = Default::default();
    let found = table.find(&RouteQuery { listener: 0, host, method, path, headers: &headers, query: "" });
    found.map(|(index, params)| {
        (index, params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_first_route_that_matches_is_found(
        routes in fixture::routes(),
        requests in vec(fixture::request(), 50),
    ) {
        let config = fixture::config(&routes);
        let table = RouteTable::new(&config);
        for request in &requests {
            prop_assert_eq!(fast(&table, request), slow(&config.routes, request), "{:?}", request);
        }
    }
}

fn many(route: impl Fn(usize) -> String) -> RouteTable {
    let routes: Vec<String> = (0..40).map(route).collect();
    let config = fixture::config(&routes);
    RouteTable::new(&config)
}

fn index(table: &RouteTable, host: &'static str, path: &str) -> Option<usize> {
    let request = Request { host, method: Method::GET, path: path.to_owned() };
    fast(table, &request).map(|(index, _)| index)
}

#[test]
fn a_wide_route_above_a_narrow_one_wins_and_below_it_does_not() {
    let table = many(|n| {
        let path = if n == 20 { "/v1/*".to_owned() } else { format!("/v1/r{n}") };
        format!("{{match: {{path: {path}}}, respond: {{status: 200}}}}")
    });
    assert_eq!(index(&table, "x", "/v1/r7"), Some(7));
    assert_eq!(index(&table, "x", "/v1/r33"), Some(20));
    assert_eq!(index(&table, "x", "/v1"), Some(20));
    assert_eq!(index(&table, "x", "/v2/r7"), None);
}

#[test]
fn a_name_and_all_names_below_another_are_told_apart_among_many() {
    let table = many(|n| {
        let host = if n == 20 { "'*.a.b'".to_owned() } else { format!("h{n}.a.b") };
        format!("{{match: {{host: {host}}}, respond: {{status: 200}}}}")
    });
    assert_eq!(index(&table, "h7.a.b", "/"), Some(7));
    assert_eq!(index(&table, "h33.a.b", "/"), Some(20));
    assert_eq!(index(&table, "x.y.a.b", "/"), Some(20));
    assert_eq!(index(&table, "a.b", "/"), None);
}

#[test]
fn a_route_without_paths_has_no_parameters_of_another() {
    let config = fixture::config(&[
        "{match: {path: '/users/{id}', methods: POST}, respond: {status: 200}}".to_owned(),
        "{respond: {status: 200}}".to_owned(),
    ]);
    let table = RouteTable::new(&config);
    let request = Request { host: "x", method: Method::GET, path: "/users/7".to_owned() };
    assert_eq!(fast(&table, &request), Some((1, Vec::new())));
}

#[test]
fn expressions_are_asked_in_the_order_of_the_file() {
    let table = many(|n| match n {
        10 => "{match: {path: {regex: '/v[0-9]+/.*'}}, respond: {status: 200}}".to_owned(),
        20 => "{match: {path: [/v2/list, {regex: '/v.*'}]}, respond: {status: 200}}".to_owned(),
        30 => "{match: {path: /v1/items}, respond: {status: 200}}".to_owned(),
        n => format!("{{match: {{path: /v1/r{n}}}, respond: {{status: 200}}}}"),
    });
    for (path, expected) in [
        ("/v1/r7", Some(7)),
        ("/v1/r33", Some(10)),
        ("/v1/items", Some(10)),
        ("/v2/list", Some(10)),
        ("/vx/list", Some(20)),
        ("/v1", Some(20)),
        ("/w", None),
    ] {
        assert_eq!(index(&table, "x", path), expected, "{path}");
    }
}

#[test]
fn a_route_with_a_query_takes_only_requests_that_have_it() {
    let route =
        |query: &str| format!("{{match: {{path: /search, query: {query}}}, respond: {{status: 200}}}}");
    let mut routes =
        vec![route("{export: csv, all: '*'}"), route("{page: {regex: '[0-9]{1,3}'}}"), route("{q: ''}")];
    for fillers in [0, 20] {
        routes.extend((0..fillers).map(|n| format!("{{match: {{path: /r{n}}}, respond: {{status: 200}}}}")));
        let config = fixture::config(&routes);
        let table = RouteTable::new(&config);
        let headers = Default::default();
        for (query, expected) in [
            ("export=csv&all", Some(0)),
            ("all=1&export=pdf&export=csv", Some(0)),
            ("export=csv", None),
            ("page=12", Some(1)),
            ("page=1234", None),
            ("page=%31", Some(1)),
            ("q", Some(2)),
            ("q=x", None),
            ("", None),
        ] {
            let (host, method, path) = ("x", &Method::GET, "/search");
            let request = RouteQuery { listener: 0, host, method, path, headers: &headers, query };
            assert_eq!(table.find(&request).map(|(index, _)| index), expected, "{query}");
        }
    }
}
