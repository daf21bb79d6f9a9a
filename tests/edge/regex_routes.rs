//! Routes by regular expressions for paths and hosts, and by query parameters.

use serde_json::json;

use crate::harness::{Folder, Gateway, Upstream};

const FILE: &str = "limits: {one: {key: global, rate: 1/day}, path: {key: path, rate: 100/day}}\n\
    upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
    - {name: fixed, match: {path: /v1/fixed}, respond: {status: 204}}\n  \
    - {name: items, match: {path: {regex: \"^/v[0-9]+/items$\"}}, upstream: api, limits: [one]}\n  \
    - {name: late, match: {path: /v7/items}, respond: {status: 204}}\n  \
    - {name: shard, match: {host: {regex: \"shard-[0-9]+[.]test\"}}, respond: {status: 201}}\n  \
    - {name: export, match: {path: /search, query: {export: csv, all: \"*\"}}, respond: {status: 202}}\n  \
    - {name: page, match: {path: /search, query: {page: {regex: \"[0-9]+\"}}}, respond: {status: 203}}\n  \
    - {name: users, match: {path: {regex: \"/users/[^/]+\"}}, upstream: api, limits: [path]}\n  \
    - {name: rest, match: {path: /*}, upstream: api}\n";

/// The first route of the file that matches handles a request, whether it has patterns or expressions.
#[test]
fn requests_are_routed_by_expressions() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    for (path, host, status) in [
        ("/v1/fixed", "x", 204),
        ("/v7/items", "x", 200),
        ("/v7/items", "x", 429),
        ("/v12/items", "x", 429),
        ("/v12/items/7", "x", 200),
        ("/x/v12/items", "x", 200),
        ("/", "shard-12.test", 201),
        ("/", "SHARD-12.test:8080", 201),
        ("/", "shard-12.test.example", 200),
        ("/search?export=csv&all", "x", 202),
        ("/search?%65xport=%63sv&all=1", "x", 202),
        ("/search?export=csv", "x", 200),
        ("/search?q=1&page=12", "x", 203),
        ("/search?page=12x", "x", 200),
    ] {
        let answer = gateway.client().ask("GET", path, &[("host", host)]);
        assert_eq!(answer.status, status, "{path} {host}: {}", answer.text());
    }
}

/// Every way to write a path that an expression matches, also those that only lenient servers take for it, has its limits.
#[test]
fn no_spelling_evades_the_limits_of_an_expression() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    assert_eq!(gateway.get("/v1/items").status, 200);
    for path in [
        "/v1/items",
        "//v2/./items",
        "/v3/%69tems",
        "/v3/x/../items",
        "/V3/Items",
        "/v3/items/",
        "/v3/items;x=1",
        "/v3;a/items",
        "/v3/items.json",
        "/v3/items.",
        "/v3/items%20",
        "/v3/%2569tems",
        "/v3/%EF%BD%89tems",
        "/v3/~items",
        "/v3/items?x=1",
    ] {
        assert_eq!(gateway.get(path).status, 429, "{path}");
    }
    assert_eq!(gateway.get("/v3/items2").status, 200);
    for (path, left) in [("/users/ann", 99), ("/Users/Ann", 98), ("/users/ann/", 97), ("/users/%61nn;x", 96)]
    {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(gateway.remaining("path", "%2Fusers%2Fann"), left, "{path}");
    }
}

/// What is said of a configuration and of a request says it of expressions, too.
#[test]
fn expressions_are_shown() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    let routes = gateway.admin_get("/config").json()["routes"].clone();
    assert_eq!(routes[1]["match"]["path"], json!([{"regex": "^/v[0-9]+/items$"}]));
    assert_eq!(routes[3]["match"]["host"], json!([{"regex": "shard-[0-9]+[.]test"}]));
    assert_eq!(routes[4]["match"]["query"], json!({"export": "(redacted)", "all": "*"}));
    let explained = gateway.admin_get("/explain?url=/v9/items").json();
    assert_eq!((&explained["route"], &explained["outcome"]), (&json!("items"), &json!("admitted")));
    let why = |route: &str| {
        let all = gateway.admin_get("/explain?url=/search%3Fpage=x").json()["passed_over"].clone();
        let all = all.as_array().unwrap().iter().find(|one| one["route"] == route).cloned();
        all.unwrap()["why"].as_str().unwrap().to_owned()
    };
    assert_eq!(why("page"), "no match: query");
    assert_eq!(why("items"), "no match: path");
    assert_eq!(why("shard"), "no match: host");
}

/// A replay routes what a log has in the same way.
#[test]
fn a_replay_knows_expressions_and_queries() {
    let file = format!("listen: [127.0.0.1:8080]\n{}", FILE.replace("{upstream}", "127.0.0.1:9"));
    let line = |path: &str| {
        format!("192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] \"GET {path} HTTP/1.1\" 200 2 \"-\" \"x\"\n")
    };
    let log = ["/v1/items", "/v2/items", "/V3/Items", "/search?page=7"].map(line).concat();
    let rows = Folder::with(&[("gateway.yaml", &file), ("access.log", &log)]).decisions("access.log");
    let shown: Vec<_> =
        rows.iter().map(|row| (row["route"].as_str().unwrap(), row["outcome"].as_str().unwrap())).collect();
    let expected = [("items", "admitted"), ("items", "refused"), ("rest", "refused"), ("page", "admitted")];
    assert_eq!(shown, expected);
}
