//! Loose matches, compared with a search of all guards.

use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::fixture::{self, Request};
use super::super::{RouteQuery, RouteTable};
use super::*;
use sluicegate_config::{Config, Match};

type Found = Vec<(usize, String, Vec<(String, String)>)>;

/// In readable form.
fn parts_of(matches: LaxMatch<'_>) -> (usize, String, Vec<(String, String)>) {
    let params = matches.params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    (matches.route, matches.path, params.collect())
}

/// The routes before `found` that forward to one of its servers, or to what another proxy has behind it, and guard what the path
/// may be taken for.
fn slow(config: &Config, request: &Request, listener: usize, found: usize) -> Found {
    let Config { routes, upstreams, .. } = config;
    let servers = |route: &RouteConfig| match &route.action {
        Action::Forward { upstream, .. } => {
            upstreams[upstream.index].servers.iter().map(|one| &one.authority).collect()
        }
        _ => Vec::new(),
    };
    let is_behind_a_proxy = config.listeners[listener].served.is_some();
    let own = servers(&routes[found]);
    let parts = parts(&request.path);
    let all: Vec<&Part<'_>> = parts.iter().collect();
    let kept: Vec<&Part<'_>> = parts.iter().filter(|part| !part.droppable).collect();
    let guards = |route: &RouteConfig| {
        let Match { hosts, methods, exact_spelling, .. } = &route.matches;
        !route.limits.is_empty()
            && !exact_spelling
            && (is_behind_a_proxy || servers(route).iter().any(|server| own.contains(server)))
            && (hosts.is_empty() || hosts.iter().any(|host| host.matches(request.host)))
            && (methods.is_empty() || methods.contains(&request.method))
    };
    let cores = |parts: &[&Part<'_>]| parts.iter().flat_map(|part| ["/", &*part.core]).collect::<String>();
    let readings = Readings::of(&request.path, [cores(&all), cores(&kept)]);
    let fits = |(index, route): (usize, &RouteConfig)| {
        let paths = &route.matches.paths;
        let by_pattern = paths.patterns.iter().find_map(|path| {
            let guard = Guard::new(index, path);
            guard.matches(&all).or_else(|| guard.matches(&kept)).map(parts_of)
        });
        let by_regex = || Some((index, RegexGuard::new(index, paths)?.matches(&readings)?, Vec::new()));
        by_pattern.or_else(by_regex)
    };
    routes[..found].iter().enumerate().filter(|(_, route)| guards(route)).filter_map(fits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn all_loose_matches_are_found(
        routes in fixture::routes(),
        requests in vec(fixture::request(), 30),
    ) {
        let config = fixture::config(&routes);
        let table = RouteTable::new(&config);
        for request in &requests {
            let Request { host, method, path } = request;
            let headers = Default::default();
            for (found, listener) in (0..routes.len()).flat_map(|found| [(found, 0), (found, 1)]) {
                let query = RouteQuery { listener, host, method, path, headers: &headers, query: "" };
                let is_meant = |path: &PathPattern| path.is_literal() && path.matches(&request.path, &mut Params::new());
                let mut expected = slow(&config, request, listener, found);
                if config.routes[found].matches.paths.patterns.iter().any(is_meant) {
                    expected.clear();
                }
                let matches: Found = table.lax_matches(&query, found, false).into_iter().map(parts_of).collect();
                prop_assert_eq!(matches, expected, "{:?} on {}", request, found);
            }
        }
    }
}

#[test]
fn a_name_with_a_format_is_found_at_every_depth_and_a_long_one_costs_nothing() {
    let route = |path: &str, limits| format!("{{match: {{path: {path}}}, upstream: u0{limits}}}");
    let guarded = route("/v1/items", ", limits: [one]");
    let config = fixture::config(&[guarded, route("/*", "")]);
    let table = RouteTable::new(&config);
    let matches = |path: &str| {
        let headers = Default::default();
        let query =
            RouteQuery { listener: 0, host: "x", method: &Method::GET, path, headers: &headers, query: "" };
        table.lax_matches(&query, 1, false).len()
    };
    assert_eq!((matches("/V1/items.json"), matches("/v1/items.a.b"), matches("/v1.json/items")), (1, 1, 0));
    assert_eq!(matches(&format!("/v1/items{}", ".x".repeat(10_000))), 1);
    assert_eq!(matches(&format!("/v1/{}", "x.".repeat(10_000))), 0);
}
