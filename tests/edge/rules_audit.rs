//! Who may change rules, and what is recorded of it.

use serde_json::Value;

use crate::harness::{Client, Folder, Gateway, Response, Setup, TOKEN, until};

const RULES: &str = "admin: {address: \"{admin}\", token: test-token, reads: token, tokens: {deploy: {token: d-token, role: \
                     rules}, eyes: {token: e-token}}}\naccess_log: {path: \"{log}\"}\nrules: {file: \
                     rules.db}\nlimits: {per-key: {key: api_key, rate: 5/366d}}\nroutes: [{name: api, respond: {status: \
                     200}, limits: [per-key]}]\n";

/// A request with this token, if there is one.
#[track_caller]
fn ask(gateway: &Gateway, (method, path): (&str, &str), token: &str, body: &str) -> Response {
    let bearer = format!("Bearer {token}");
    let length = body.len().to_string();
    let mut headers = vec![("host", "localhost"), ("content-length", length.as_str())];
    if !token.is_empty() {
        headers.push(("authorization", bearer.as_str()));
    }
    let mut client = Client::connect(gateway.admin);
    client.request(method, path, &headers).send(body);
    client.response()
}

/// Each token allows what its role says, and no more.
#[test]
fn tokens_have_roles() {
    let gateway = Setup::default().value("log", "/dev/null").start(RULES);
    let rule = "{\"limit\": \"per-key\", \"key\": \"k\", \"rate\": \"9/366d\"}";
    for (token, read, write, reload) in [
        ("", 401, 401, 401),
        ("wrong", 401, 401, 401),
        ("e-token", 200, 403, 403),
        ("d-token", 200, 200, 403),
        (TOKEN, 200, 200, 200),
    ] {
        let status = |what, body| ask(&gateway, what, token, body).status;
        assert_eq!(status(("GET", "/rules"), ""), read, "{token}");
        assert_eq!(status(("GET", "/status"), ""), read, "{token}");
        let put = status(("PUT", "/rules/r"), rule);
        assert_eq!(if put == 201 { 200 } else { put }, write, "{token}");
        assert_eq!(status(("POST", "/reload"), ""), reload, "{token}");
        assert_eq!(status(("GET", "/healthz"), ""), 200, "health checks have no token");
    }
    let shown = ask(&gateway, ("GET", "/config"), TOKEN, "").text();
    assert!(!shown.contains("d-token") && shown.contains("\"role\": \"rules\""), "{shown}");
}

/// A change is recorded with who made it, from where, and the rule before and after; a dry run is not.
#[test]
fn changes_are_recorded() {
    let folder = Folder::with(&[]);
    let file = folder.path("access.log");
    let gateway = Setup::default().value("log", file.display()).start(RULES);
    let rule = |rate: &str| format!("{{\"limit\": \"per-key\", \"key\": \"k\", \"rate\": \"{rate}\"}}");
    ask(&gateway, ("PUT", "/rules/acme?dry_run=1"), TOKEN, &rule("1/366d"));
    ask(&gateway, ("PUT", "/rules/acme"), "d-token", &rule("9/366d"));
    ask(&gateway, ("PUT", "/rules/acme"), "d-token", &rule("9/366d")); // changes nothing
    ask(&gateway, ("PUT", "/rules/acme"), TOKEN, &rule("8/366d"));
    let lines = until("both are written", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= 2).then_some(lines)
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    let [made, changed] = [&lines[0], &lines[1]];
    assert_eq!(
        (&made["kind"], &made["actor"], &made["before"]),
        (&"rule".into(), &"deploy".into(), &Value::Null)
    );
    assert_eq!((&made["client"], &made["id"]), (&"127.0.0.1".into(), &"acme".into()));
    assert_eq!((&changed["actor"], &changed["version"]), (&"admin".into(), &2.into()));
    assert_eq!((&changed["before"]["rate"], &changed["after"]["rate"]), (&"9/366d".into(), &"8/366d".into()));
    assert!(gateway.times_logged("deploy (127.0.0.1) changed rule acme: version 1") > 0);
    let changes = ask(&gateway, ("GET", "/rules:changes"), "e-token", "").text();
    let last: Value = serde_json::from_str(changes.lines().last().unwrap()).unwrap();
    assert_eq!(last["actor"], "admin");
    // A replay of the log skips these lines.
    let request = "{\"time\": 1, \"client_ip\": \"10.0.0.1\", \"path\": \"/\"}\n";
    let log = std::fs::read_to_string(&file).unwrap() + request;
    std::fs::write(folder.path("past.log"), log).unwrap();
    std::fs::write(
        folder.path("gateway.yaml"),
        "listen: [\"127.0.0.1:0\"]\nroutes: [{respond: {status: 200}}]\n",
    )
    .unwrap();
    let seen = folder.run(&["replay", "past.log"]);
    assert_eq!(seen.status.code(), Some(0), "{}", crate::harness::folder::text(&seen));
}

/// So is a pardon, and its key is shown as logs show keys; one that found nothing changed nothing.
#[test]
fn pardons_are_recorded() {
    let folder = Folder::with(&[]);
    let file = folder.path("access.log");
    let gateway = Setup::default().value("log", file.display()).start(RULES);
    gateway.statuses(2, "/", &[("x-api-key", "k1")]);
    ask(&gateway, ("DELETE", "/limits/per-key/keys/k2"), TOKEN, "");
    assert_eq!(ask(&gateway, ("DELETE", "/limits/per-key/keys/k1"), "d-token", "").status, 403);
    let pardoned = ask(&gateway, ("DELETE", "/limits/per-key/keys/k1"), TOKEN, "").json();
    assert_eq!(pardoned["pardoned"], true);
    let line = until("it is written", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut pardons = lines.into_iter().filter(|line| line["kind"] == "pardon");
        let first = pardons.next();
        assert!(pardons.next().is_none());
        first
    });
    assert_eq!((&line["actor"], &line["client"]), (&"admin".into(), &"127.0.0.1".into()));
    assert_eq!(line["limit"], "per-key");
    assert_eq!(line["key"], "api_key:sha256:6ab9f1eb8f7d3388");
    assert!(line["time"].as_str().unwrap().starts_with("20"));
    let seen = "admin (127.0.0.1) pardoned the key api_key:sha256:6ab9f1eb8f7d3388 of limit per-key";
    assert_eq!(gateway.times_logged(seen), 1, "{}", gateway.log());
}
