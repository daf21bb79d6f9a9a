//! Random routes and requests for tests.

use std::sync::Arc;

use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use sluicegate_config::{Config, normalize, parse_without_files};

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) host: &'static str,
    pub(super) method: Method,
    /// In normal form.
    pub(super) path: String,
}

/// A configuration of these routes, which may use the upstreams `u0` to `u3`: each has a server in common with the next. The
/// second listener decides for another proxy.
pub(super) fn config(routes: &[String]) -> Arc<Config> {
    let mut text = "listen: [127.0.0.1:8080, {address: 127.0.0.1:8081, serve: check, callers: [127.0.0.1]}]\nlimits: {one: {key: ip, rate: 1/s}}\nupstreams:\n".to_owned();
    for n in 0..4 {
        text += &format!("  u{n}: {{servers: ['http://h{n}:80', 'http://h{}:80']}}\n", n + 1);
    }
    text += "routes:\n";
    routes.iter().for_each(|route| text += &format!("  - {route}\n"));
    Arc::new(parse_without_files(&text).unwrap_or_else(|report| panic!("{report}")))
}

/// A path of a route.
fn pattern() -> impl Strategy<Value = String> {
    let segment = select(vec!["a", "b", "a.b", "A", "-", "c%3A", "{p", "{q"]);
    (vec(segment, 0..4), select(vec!["", "/", "/*"])).prop_map(|(segments, end)| {
        let named = segments.iter().enumerate().map(|(at, segment)| match segment.starts_with('{') {
            true => format!("/{segment}{at}}}"),
            false => format!("/{segment}"),
        });
        let path = named.collect::<String>() + end;
        if path.is_empty() { "/".to_owned() } else { path }
    })
}

/// An expression for paths.
fn path_regex() -> impl Strategy<Value = String> {
    let text = select(vec!["/[ab](/.*)?", "^/(A|b)/.+$", "/.*", "(/[a-c])+/?", "/a[.]b"]);
    text.prop_map(|text| format!("{{regex: '{text}'}}"))
}

fn quoted(text: &str) -> String {
    format!("'{text}'")
}

fn list(items: Vec<String>) -> String {
    format!("[{}]", items.join(", "))
}

/// A route as the file has it.
fn route() -> impl Strategy<Value = String> {
    let hosts = select(vec!["'a.b'", "'*.a.b'", "'*.b'", "'b'", "'c.a.b'", "{regex: '[a-c][.]A[.]b'}"]);
    let hosts = hosts.prop_map(str::to_owned);
    let hosts = prop_oneof![Just(vec![]), vec(hosts, 1..4)];
    let paths = prop_oneof![5 => pattern().prop_map(|path| quoted(&path)), 1 => path_regex()];
    let paths = prop_oneof![1 => Just(vec![]), 6 => vec(paths, 1..3)];
    let methods = select(vec!["", ", methods: GET", ", methods: [POST, PUT]", ", spelling: exact"]);
    let limits = select(vec!["", ", limits: [one]"]);
    let upstream = (0..4_u8).prop_map(|upstream| format!("upstream: u{upstream}"));
    let action = prop_oneof![6 => upstream, 1 => Just("respond: {status: 200}".to_owned())];
    (hosts, paths, methods, limits, action).prop_map(|(hosts, paths, more, limits, action)| {
        let of = |field: &str, items: Vec<String>| match items.is_empty() {
            true => String::new(),
            false => format!("{field}: {}, ", list(items)),
        };
        let matches = of("host", hosts) + &of("path", paths);
        let more =
            if matches.is_empty() { more.trim_start_matches(", ") } else { &more[more.len().min(2)..] };
        format!("{{match: {{{matches}{more}}}, {action}{limits}}}")
    })
}

/// Routes as the file has them: few, or so many that all kinds of an index are used.
pub(super) fn routes() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![vec(route(), 1..4), vec(route(), 1..80)]
}

/// A request that some of them are likely to match, or nearly.
pub(super) fn request() -> impl Strategy<Value = Request> {
    let segment = select(vec![
        "a", "b", "b", "a.b", "A", "-", "-.", "c%3A", "x", "a.json", "a.b.x", "a-.b", "B;x", "%20", "a~",
        ".json",
    ]);
    let path = (vec(segment, 0..5), any::<bool>()).prop_map(|(segments, slash)| {
        let path: String = segments.into_iter().flat_map(|segment| ["/", segment]).collect();
        let path = if slash || path.is_empty() { path + "/" } else { path };
        normalize(&path).unwrap().into_owned()
    });
    let host = select(vec!["a.b", "c.a.b", "x.a.b", "x.y.a.b", "x.b", "b", "x", ""]);
    let method = select(vec![Method::GET, Method::POST, Method::DELETE]);
    (host, method, path).prop_map(|(host, method, path)| Request { host, method, path })
}
