//! The kinds of a key are kept apart in what rules and exemptions match: a client that sends an API key which reads like an address takes
//! nothing of that address.

use serde_json::json;

use crate::harness::{Client, Gateway, TOKEN};

const FILE: &str = "rules: {file: rules.db}\nlimits: {l: {key: api_key | ip, rate: 5/366d, exempt: [\"ip:10.9.9.9\", \"api_key:free\"]}, \
                    both: {key: [\"api_key | ip\", path], rate: 5/366d}}\n\
                    routes: [{name: both, match: {path: /both}, respond: {status: 200}, limits: [both]}, \
                    {name: api, respond: {status: 200}, limits: [l]}]\n";

fn put(gateway: &Gateway, limit: &str, key: &str, rate: u64) {
    let bearer = format!("Bearer {TOKEN}");
    let body = json!({ "limit": limit, "key": key, "rate": format!("{rate}/366d") }).to_string();
    let length = body.len().to_string();
    let mut client = Client::connect(gateway.admin);
    let headers = [("host", "localhost"), ("authorization", &bearer), ("content-length", &length)];
    client.request("PUT", &format!("/rules/r{rate}"), &headers).send(&body);
    let response = client.response();
    assert_eq!(response.status, 201, "{}", response.text());
}

/// The limit of a request with this API key; 0 if it is exempt.
fn limit(gateway: &Gateway, target: &str, api_key: &str) -> u64 {
    let response = gateway.ask("GET", target, &[("x-api-key", api_key)]);
    assert_eq!(response.status, 200);
    response.header("x-ratelimit-limit").map_or(0, |_| response.number("x-ratelimit-limit"))
}

#[test]
fn an_api_key_takes_no_rule_of_an_address() {
    let gateway = Gateway::start(FILE);
    for (key, rate) in [
        ("ip:10.1.2.3", 11),
        ("10.4.5.6", 12),
        ("api_key:10.7.8.9", 13),
        ("api_key:ip:10.7.8.9", 14),
        ("usual", 15),
        ("ip:10.2.*", 16),
        ("api_key:ip:10.2.*", 17),
    ] {
        put(&gateway, "l", key, rate);
    }
    for (api_key, expected) in [
        ("ip:10.1.2.3", 5),
        ("10.1.2.3", 5),
        ("10.4.5.6", 5),
        ("ip:10.4.5.6", 5),
        ("10.7.8.9", 13),
        ("ip:10.7.8.9", 14),
        ("usual", 15),
        ("ip:10.2.3.4", 17),
        ("ip:10.9.9.9", 5),
        ("10.9.9.9", 5),
        ("free", 0),
    ] {
        assert_eq!(limit(&gateway, "/", api_key), expected, "{api_key}");
    }
    put(&gateway, "both", "10.1.2.3,/both", 21);
    put(&gateway, "both", "api_key:10.4.5.6,/both", 22);
    assert_eq!(limit(&gateway, "/both", "10.1.2.3"), 5);
    assert_eq!(limit(&gateway, "/both", "10.4.5.6"), 22);
}
