//! The description of the admin API is that of the API.

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, TOKEN};

const RULES: &str = "rules: {file: rules.db, wait: 1s}\nlimits: {per-key: {key: api_key, rate: 5/366d, ban: 1h}, q: {key: ip, rate: 1/h, queue: {file: queue.db}}}\nupstreams: {up: {servers: ['http://127.0.0.1:9']}}\nroutes: [{name: api, \
                     respond: {status: 200}, limits: [per-key, q]}]\n";

/// The path of the administrative state of a server.
const SERVER: &str = "/upstreams/{upstream}/servers/{server}/state";

/// Sends a request that may have a body; the status and the type of the answer.
#[track_caller]
fn ask(gateway: &Gateway, method: &str, path: &str, token: bool, body: &str) -> (u16, String) {
    let (bearer, length) = (format!("Bearer {TOKEN}"), body.len().to_string());
    let mut headers = vec![("host", "localhost"), ("content-length", length.as_str())];
    if token {
        headers.push(("authorization", &bearer));
    }
    let mut client = Client::connect(gateway.admin);
    client.request(method, path, &headers).send(body);
    let response = client.response();
    let kind = response.header("content-type").unwrap_or_default();
    (response.status, kind.split(';').next().unwrap_or_default().to_owned())
}

/// The answers of an operation, by status.
fn answers<'a>(document: &'a Value, path: &str, method: &str) -> &'a Value {
    let answers = &document["paths"][path][method]["responses"];
    assert!(answers.is_object(), "{method} {path} is not described");
    answers
}

/// Whatever the API answers is described, with its type; what is described as secured needs the token.
#[test]
fn every_answer_is_described() {
    let gateway = Gateway::start(RULES);
    let document = gateway.admin_get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let good = json!({"limit": "per-key", "key": "k", "rate": "9/366d"}).to_string();
    let line = json!({"id": "b", "limit": "per-key", "key": "b", "rate": "9/366d"}).to_string();
    let tries = [
        ("get", "/metrics", "/metrics", "", 200),
        ("get", "/healthz", "/healthz", "", 200),
        ("get", "/readyz", "/readyz", "", 200),
        ("get", "/status", "/status", "", 200),
        ("get", "/config", "/config", "", 200),
        ("get", "/openapi.json", "/openapi.json", "", 200),
        ("get", "/limits", "/limits", "", 200),
        ("get", "/live", "/live", "", 200),
        ("get", "/live", "/live?since=x", "", 400),
        ("get", "/explain", "/explain?url=/", "", 200),
        ("get", "/explain", "/explain", "", 400),
        ("get", "/explain", "/explain?request=none", "", 404),
        ("get", "/limits/{limit}/top", "/limits/per-key/top", "", 200),
        ("get", "/limits/{limit}/top", "/limits/per-key/top?by=x", "", 400),
        ("get", "/limits/{limit}/top", "/limits/none/top", "", 404),
        ("get", "/limits/{limit}/bans", "/limits/per-key/bans", "", 200),
        ("get", "/limits/{limit}/bans", "/limits/none/bans", "", 404),
        ("get", "/limits/{limit}/keys/{key}", "/limits/per-key/keys/k", "", 200),
        ("get", "/limits/{limit}/keys/{key}", "/limits/none/keys/k", "", 404),
        ("delete", "/limits/{limit}/keys/{key}", "/limits/per-key/keys/k", "", 200),
        ("get", SERVER, "/upstreams/up/servers/127.0.0.1:9/state", "", 200),
        ("get", SERVER, "/upstreams/none/servers/127.0.0.1:9/state", "", 404),
        ("put", SERVER, "/upstreams/up/servers/127.0.0.1:9/state", "{\"state\": \"drain\"}", 200),
        ("put", SERVER, "/upstreams/up/servers/127.0.0.1:9/state", "{\"state\": \"off\"}", 422),
        ("put", SERVER, "/upstreams/up/servers/127.0.0.1:9/state", "{", 400),
        ("put", SERVER, "/upstreams/up/servers/none/state", "{\"state\": \"drain\"}", 404),
        ("get", "/queues", "/queues", "", 200),
        ("get", "/queues/{limit}/requests", "/queues/q/requests?state=failed", "", 200),
        ("get", "/queues/{limit}/requests", "/queues/q/requests?state=x", "", 400),
        ("get", "/queues/{limit}/requests", "/queues/none/requests", "", 404),
        ("get", "/queues/{limit}/requests/{id}", "/queues/q/requests/x", "", 404),
        ("post", "/queues/{limit}/retry", "/queues/q/retry", "{\"all\": true}", 200),
        ("post", "/queues/{limit}/retry", "/queues/q/retry", "{}", 400),
        ("post", "/queues/{limit}/drop", "/queues/q/drop", "{\"id\": \"x\"}", 404),
        ("post", "/queues/{limit}/drop", "/queues/q/drop", "{\"all\": true}", 200),
        ("post", "/reload", "/reload", "", 200),
        ("put", "/rules/{id}", "/rules/a", &good, 201),
        ("put", "/rules/{id}", "/rules/a", &good, 200),
        ("put", "/rules/{id}", "/rules/a", "{", 400),
        ("put", "/rules/{id}", "/rules/a", "{\"limit\": \"none\"}", 422),
        ("patch", "/rules/{id}", "/rules/a", "{\"priority\": 1}", 200),
        ("patch", "/rules/{id}", "/rules/none", "{}", 404),
        ("get", "/rules", "/rules", "", 200),
        ("get", "/rules", "/rules?most=x", "", 400),
        ("get", "/rules/{id}", "/rules/a", "", 200),
        ("get", "/rules/{id}", "/rules/none", "", 404),
        ("get", "/rules:changes", "/rules:changes", "", 200),
        ("get", "/rules:changes", "/rules:changes?since=x", "", 400),
        ("get", "/rules:changes", "/rules:changes?since=999", "", 410),
        ("post", "/rules:batch", "/rules:batch", &line, 200),
        ("post", "/rules:batch", "/rules:batch", "{\"delete\": \"none\"}", 404),
        ("post", "/rules:batch", "/rules:batch", "{}", 422),
        ("delete", "/rules/{id}", "/rules/a", "", 204),
        ("delete", "/rules/{id}", "/rules/a", "", 404),
    ];
    let mut described: Vec<(String, String)> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "parameters") {
            described.push((method.clone(), path.clone()));
        }
    }
    for (method, path, target, body, expected) in tries {
        let (status, kind) = ask(&gateway, &method.to_uppercase(), target, true, body);
        assert_eq!(status, expected, "{method} {target} {body}");
        let answer = &answers(&document, path, method)[status.to_string()];
        assert!(answer.is_object(), "{method} {path}: {status} is not described");
        if status != 204 {
            let content = answer["content"].as_object();
            assert!(
                content.is_none_or(|content| content.contains_key(&kind)),
                "{method} {path}: {status} is {kind}"
            );
        }
        let secured = document["paths"][path][method]["security"].is_array();
        let without = ask(&gateway, &method.to_uppercase(), target, false, body).0;
        assert_eq!(without == 401, secured, "{method} {target}: {without} without a token");
        described.retain(|(m, p)| (m.as_str(), p.as_str()) != (method, path));
    }
    assert!(described.is_empty(), "not tried: {described:?}");
}

/// So is that of a gateway whose rules are elsewhere.
#[test]
fn rules_elsewhere_are_described() {
    let gateway =
        Gateway::start(&RULES.replace("{file: rules.db, wait: 1s}", "{url: \"http://127.0.0.1:9/rules\"}"));
    let document = gateway.admin_get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/rules"));
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "parameters") {
            let target = path.replace("{id}", "a");
            let (status, _) = ask(&gateway, &method.to_uppercase(), &target, true, "");
            assert_eq!(status, 501, "{method} {path}");
            assert!(answers(&document, path, method)["501"].is_object(), "{method} {path}");
        }
    }
}
