//! Whether the gateway accepts a part, so that nothing is written that `sluicegate check` refuses.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::yaml::{Node, list, map, text};

/// How many answers are remembered.
const REMEMBERED: usize = 4_096;

thread_local! {
    /// Answers by the text of the file: many routes have the same headers, paths and limits.
    static ANSWERS: RefCell<HashMap<String, Result<(), String>>> = RefCell::default();
}

/// Whether the gateway accepts a whole file.
///
/// # Errors
/// The first message of `sluicegate check`.
fn file(file: &Node) -> Result<(), String> {
    let text = file.file(&[]);
    if let Some(answer) = ANSWERS.with_borrow(|answers| answers.get(&text).cloned()) {
        return answer;
    }
    let answer = match sluicegate_config::parse_without_files(&text) {
        Ok(_) => Ok(()),
        Err(report) => {
            let first = report.lines().next().unwrap_or_default();
            Err(first.split_once("error: ").map_or(first, |(_, message)| message).to_owned())
        }
    };
    ANSWERS.with_borrow_mut(|answers| {
        if answers.len() >= REMEMBERED {
            answers.clear();
        }
        answers.insert(text, answer.clone());
    });
    answer
}

/// Whether the gateway accepts a `match`.
///
/// # Errors
/// The first message of `sluicegate check`.
pub(crate) fn matches(matches: &Node) -> Result<(), String> {
    field(None, "match", matches)
}

/// The parts of a `match` that the gateway accepts together, each in turn: all requests of the whole are among theirs. If it does not
/// accept the whole, also why.
pub(crate) fn widest(whole: Node) -> (Node, Option<String>) {
    let Err(why) = matches(&whole) else { return (whole, None) };
    let mut kept = map();
    for (field, value) in whole.into_entries() {
        let more = kept.clone().with(field, value);
        if matches(&more).is_ok() {
            kept = more;
        }
    }
    (kept, Some(why))
}

/// Whether the gateway accepts a field of a route for this path.
///
/// # Errors
/// The first message of `sluicegate check`.
pub(crate) fn field(path: Option<Node>, name: &str, node: &Node) -> Result<(), String> {
    let mut route = map();
    if let Some(path) = path {
        route.insert("match", map().with("path", path));
    }
    route.insert(name, node.clone());
    if !matches!(name, "respond" | "redirect" | "upstream") {
        route.insert("upstream", text("u"));
    }
    with_sections(map().with("u", upstream_of("http://127.0.0.1:1")), map(), route)
}

/// Whether the gateway accepts a field of an upstream.
///
/// # Errors
/// The first message of `sluicegate check`.
pub(crate) fn upstream_field(name: &str, node: &Node, tls: bool) -> Result<(), String> {
    let upstream = match name {
        "servers" => map(),
        _ if tls => upstream_of("https://127.0.0.1:1"),
        _ => upstream_of("http://127.0.0.1:1"),
    };
    with_sections(
        map().with("u", upstream.with(name, node.clone())),
        map(),
        map().with("upstream", text("u")),
    )
}

/// Whether the gateway accepts a limit.
///
/// # Errors
/// The first message of `sluicegate check`.
pub(crate) fn limit(limit: &Node) -> Result<(), String> {
    // A TLS listener with client certificates, for keys that need one.
    let route = map().with("limits", list([text("l")])).with("respond", map());
    with_sections(map(), map().with("l", limit.clone()), route)
}

/// Whether the gateway accepts a field at the top of the file.
///
/// # Errors
/// The first message of `sluicegate check`.
pub(crate) fn top_field(name: &str, node: &Node) -> Result<(), String> {
    route(map().with(name, node.clone()), map().with("respond", map().with("status", text(200))))
}

fn upstream_of(server: &str) -> Node {
    map().with("servers", list([text(server)]))
}

fn with_sections(upstreams: Node, limits: Node, with: Node) -> Result<(), String> {
    let tls = map()
        .with("certificates", map().with("cert", text("c")).with("key", text("k")))
        .with("client_ca", text("a"));
    let listener = map().with("address", text("127.0.0.1:443")).with("tls", tls);
    route(map().with("listen", list([listener])).with("limits", limits).with("upstreams", upstreams), with)
}

/// Whether the gateway accepts a route together with sections that it needs.
///
/// # Errors
/// The first message of `sluicegate check`.
pub(crate) fn route(sections: Node, route: Node) -> Result<(), String> {
    let mut whole = map().with("listen", list([text("127.0.0.1:80")]));
    for (key, value) in sections.into_entries() {
        whole.insert(key, value);
    }
    file(&whole.with("routes", list([route])))
}
