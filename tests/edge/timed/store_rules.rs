//! A rule that changes the rate of a shared limit: Retry-After holds from the first refusal under the new rate on.

use serde_json::json;

use crate::harness::{Client, Fleet, Gateway, RedisServer, Response, TOKEN, in_parallel, sleep, until};
use std::time::Duration;

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];

fn change(gateway: &Gateway, method: &str, body: &str) {
    let bearer = format!("Bearer {TOKEN}");
    let length = body.len().to_string();
    let mut client = Client::connect(gateway.admin);
    let headers = [("host", "localhost"), ("authorization", &bearer), ("content-length", &length)];
    client.request(method, "/rules/r", &headers).send(body);
    let response = client.response();
    assert!((200..300).contains(&response.status), "{}", response.text());
}

fn ask(gateway: &Gateway) -> Response {
    gateway.ask("GET", "/", &KEY)
}

/// A key is used up at five an hour. Its rate becomes one a second, by a rule or because a rule is removed: a client that comes back when
/// Retry-After says is admitted.
#[test]
fn retry_after_holds_when_a_rate_is_raised() {
    let cases = [("exact", true), ("exact", false), ("leased", true), ("leased", false)];
    in_parallel(cases.len(), |at| {
        let (sync, by_rule) = cases[at];
        let redis = RedisServer::start();
        let (limit, rule) = if by_rule { ("5/h", "60/min") } else { ("60/min", "5/h") };
        let gateway = Gateway::start(&format!(
            "{}rules: {{file: rules.db}}\nlimits: {{l: {{key: api_key, rate: {limit}, burst: 60, sync: {sync}}}}}\n\
             routes: [{{name: api, respond: {{status: 200}}, limits: [l]}}]\n",
            redis.store()
        ));
        Fleet::up_of(&gateway);
        let rule = json!({ "limit": "l", "key": "k", "rate": rule, "burst": 60 }).to_string();
        if !by_rule {
            change(&gateway, "PUT", &rule);
        }
        while ask(&gateway).status == 200 {}
        match by_rule {
            true => change(&gateway, "PUT", &rule),
            false => change(&gateway, "DELETE", ""),
        }
        let wait = until("the new rate is in force", || {
            let refused = ask(&gateway);
            assert_eq!(refused.status, 429, "{sync}, by a rule: {by_rule}");
            Some(refused.number("retry-after")).filter(|wait| *wait <= 2)
        });
        sleep(Duration::from_secs(wait));
        assert_eq!(ask(&gateway).status, 200, "{sync}, by a rule: {by_rule}");
    });
}
