//! Numbers that are too small for a region: refused wherever they are named, because a region that enforced all of them would
//! admit as much as all regions together may.

use serde_json::{Value, json};

use crate::harness::{Gateway, RedisServer};

const LIMITS: &str = "
regions: {name: a, floors: {a: 20%, b: 20%, c: 20%, d: 20%, e: 20%}}
rules: {redis: true}
limits:
  rate: {key: api_key, rate: 100/min}
  bulk: {key: api_key, rate: 100/min, cost: 3}
  burst: {key: api_key, rate: 100/s, burst: 200}
  places: {key: api_key, algorithm: concurrency, max: 100}
  window: {key: api_key, rate: 100/min, algorithm: fixed_window}
  local: {key: api_key, rate: 100/min, scope: local}
routes: [{name: api, respond: {status: 200}, limits: [rate]}]
";

#[test]
fn rules_with_numbers_that_are_too_small_for_a_region_are_refused() {
    let store = RedisServer::start();
    let gateway = Gateway::start(&format!("{}{LIMITS}", store.store()));
    let put = |limit: &str, numbers: Value| {
        let mut rule = json!({ "limit": limit, "key": "acme" });
        rule.as_object_mut().unwrap().extend(numbers.as_object().unwrap().clone());
        gateway.admin_put(&format!("/rules/{limit}"), &rule.to_string())
    };
    let small = "too small to be divided: region a could never admit a request";
    for (limit, numbers, fits) in [
        ("rate", json!({ "rate": "4/min" }), false),
        ("rate", json!({ "rate": "5/min" }), true),
        ("bulk", json!({ "rate": "14/min" }), false),
        ("bulk", json!({ "rate": "15/min" }), true),
        ("burst", json!({ "burst": 4 }), false),
        ("burst", json!({ "rate": "50/s", "burst": 4 }), false),
        ("burst", json!({ "burst": 5 }), true),
        ("places", json!({ "max": 4 }), false),
        ("places", json!({ "max": 5 }), true),
        ("window", json!({ "rate": "4/min" }), false),
        ("window", json!({ "rate": "5/min" }), true),
        ("local", json!({ "rate": "4/min" }), true),
    ] {
        let answer = put(limit, numbers.clone());
        if fits {
            assert!(matches!(answer.status, 200 | 201), "{limit} {numbers}: {}", answer.text());
        } else {
            assert!(
                answer.status == 422 && answer.text().contains(small),
                "{limit} {numbers}: {}",
                answer.text()
            );
        }
    }
}
