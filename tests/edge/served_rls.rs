//! Listeners with `serve: rls`: limits for other proxies, from files of envoyproxy/ratelimit.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::harness::grpc::{calls, field, framed};
use crate::harness::{Client, Gateway, RedisServer, Setup, in_parallel, until};

const WEB: &str = "\
domain: web
descriptors:
- key: client
  rate_limit: {unit: hour, requests_per_unit: 5}
- key: path
  rate_limit: {unit: hour, requests_per_unit: 50}
- key: path
  value: /login
  rate_limit: {unit: hour, requests_per_unit: 2}
- key: path
  value: /static/*
  rate_limit: {unlimited: true}
- key: tenant
  descriptors:
  - {key: plan, value: free, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, value: tried, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: nothing, rate_limit: {unit: hour, requests_per_unit: 0}}
";

fn file(rls: &str, store: &str) -> String {
    format!(
        "listen: [{{address: '{{edge}}', serve: rls, callers: [127.0.0.1]}}, '{{edge2}}']\n{store}\n\
         rls: {{files: ['limits/*.yaml'], {rls}}}\nroutes: [{{respond: {{status: 200}}}}]\n"
    )
}

#[track_caller]
fn start(rls: &str, store: &str) -> Gateway {
    // The folder of limits is that of the file itself: a pattern with a name that only these files have.
    let text = file(rls, store).replace("limits/*.yaml", "limits-*.yml");
    Setup::default().file("limits-web.yml", WEB).workers(2).start(&text)
}

fn descriptor(entries: &[(&str, &str)]) -> Value {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    json!({"entries": entries})
}

/// The status of the answer, and the answer.
#[track_caller]
fn post(client: &mut Client, question: &Value) -> (u16, Value) {
    let answer = client.post("/json", &[], question.to_string().as_bytes());
    let text = String::from_utf8(answer.body.clone()).unwrap();
    (answer.status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[track_caller]
fn ask(gateway: &Gateway, entries: &[(&str, &str)]) -> (u16, Value) {
    post(&mut gateway.client(), &json!({"domain": "web", "descriptors": [descriptor(entries)]}))
}

/// Asks with so many hits; a negative number gives hits back.
#[track_caller]
fn hit(gateway: &Gateway, entries: &[(&str, &str)], hits: i64) -> u16 {
    let mut one = descriptor(entries);
    one["hitsAddend"] = json!(hits.unsigned_abs());
    one["isNegativeHits"] = json!(hits < 0);
    post(&mut gateway.client(), &json!({"domain": "web", "descriptors": [one]})).0
}

/// The hits that are left.
#[track_caller]
fn left(gateway: &Gateway, entries: &[(&str, &str)]) -> u64 {
    let mut one = descriptor(entries);
    one["hitsAddend"] = json!(0);
    let (_, answer) = post(&mut gateway.client(), &json!({"domain": "web", "descriptors": [one]}));
    answer["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
}

#[test]
fn files_of_ratelimit_are_in_force_as_they_are() {
    let gateway = start("", "");
    let statuses =
        |entries: &[(&str, &str)], count| (0..count).map(|_| ask(&gateway, entries).0).collect::<Vec<_>>();
    assert_eq!(statuses(&[("client", "a")], 6), [200, 200, 200, 200, 200, 429]);
    assert_eq!(statuses(&[("client", "b")], 1), [200], "each value has a counter");
    assert_eq!(statuses(&[("path", "/login")], 3), [200, 200, 429], "the exact value comes first");
    assert_eq!(statuses(&[("path", "/static/a.css")], 100), [200; 100]);
    assert_eq!(statuses(&[("tenant", "t"), ("plan", "free")], 2), [200, 429]);
    assert_eq!(statuses(&[("tenant", "t"), ("plan", "tried")], 3), [200; 3], "shadow mode refuses nothing");
    assert_eq!(statuses(&[("tenant", "t")], 3), [200; 3], "the limit is one level deeper");
    assert_eq!(statuses(&[("nothing", "x")], 1), [429]);
    assert_eq!(statuses(&[("unknown", "x")], 1), [200]);

    let (_, refused) = ask(&gateway, &[("client", "a")]);
    let status = &refused["statuses"][0];
    assert_eq!(refused["overallCode"], "OVER_LIMIT");
    assert_eq!(status["currentLimit"], json!({"requestsPerUnit": 5, "unit": "HOUR"}));
    let reset: u64 = status["durationUntilReset"].as_str().unwrap().trim_end_matches('s').parse().unwrap();
    assert!((1..=3_600).contains(&reset), "{reset}");
    let headers = refused["responseHeadersToAdd"].as_array().unwrap();
    let retry = headers.iter().find(|header| header["key"] == "retry-after").unwrap();
    assert_eq!(retry["value"], reset.to_string());

    let metrics = gateway.admin_get("/metrics").text();
    assert!(
        metrics
            .contains("sluicegate_limit_decisions_total{limit=\"rls.web.client\",outcome=\"admitted\"} 6\n"),
        "{metrics}"
    );
    let (_, both) = post(
        &mut gateway.client(),
        &json!({"domain": "web", "descriptors": [descriptor(&[("client", "c")]), descriptor(&[("path", "/login")])]}),
    );
    let codes: Vec<_> = both["statuses"].as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
    assert_eq!(
        (codes, both["overallCode"].clone()),
        (vec![json!("OK"), json!("OVER_LIMIT")], json!("OVER_LIMIT"))
    );
}

/// What is counted of hits, for each algorithm, in the process and in Redis.
#[test]
fn hits_are_counted_as_they_are_asked_for() {
    let redis = RedisServer::start();
    let mut unlike = Vec::new();
    for store in [String::new(), redis.store()] {
        for algorithm in ["fixed_window", "token_bucket", "sliding_window"] {
            for over_limit in ["charge", "keep"] {
                redis.run::<()>(&["FLUSHALL"]);
                let gateway = start(&format!("algorithm: {algorithm}, over_limit: {over_limit}"), &store);
                let a = [("client", "a")];
                let mut seen = vec![hit(&gateway, &a, 0), hit(&gateway, &a, 3), hit(&gateway, &a, 3)];
                // What is charged above the limit may arrive in Redis after the answer.
                let charged = over_limit == "charge";
                if charged {
                    until(&format!("{algorithm}, {store}: the refused hits are charged"), || {
                        (hit(&gateway, &a, 0) == 429).then_some(())
                    });
                }
                seen.extend([hit(&gateway, &a, 1), hit(&gateway, &a, 1), hit(&gateway, &a, 1)]);
                let expected =
                    if charged { [200, 200, 429, 429, 429, 429] } else { [200, 200, 429, 200, 200, 429] };
                let name = format!("{algorithm}, {over_limit}, shared: {}", !store.is_empty());
                if seen != expected {
                    unlike.push(format!("{name}: {seen:?} instead of {expected:?}"));
                }
                // Given back, and not more than was used.
                let b = [("client", "b")];
                assert_eq!((hit(&gateway, &b, 5), hit(&gateway, &b, -2)), (200, 200), "{name}");
                until(&format!("{name}: two of five are given back"), || {
                    (left(&gateway, &b) == 2).then_some(())
                });
                let c = [("client", "c")];
                assert_eq!((hit(&gateway, &c, 1), hit(&gateway, &c, -100)), (200, 200), "{name}");
                until(&format!("{name}: all is given back"), || (left(&gateway, &c) == 5).then_some(()));
                assert_eq!(
                    (hit(&gateway, &c, 5), hit(&gateway, &c, 1)),
                    (200, 429),
                    "{name}: not more than was used"
                );
            }
        }
    }
    assert_eq!(unlike, Vec::<String>::new());
}

#[test]
fn with_keep_a_refusal_charges_no_other_limit() {
    let gateway = start("over_limit: keep", "");
    let both = json!({"domain": "web", "descriptors": [
        descriptor(&[("client", "a")]), descriptor(&[("path", "/login")])]});
    let mut client = gateway.client();
    let statuses: Vec<u16> = (0..6).map(|_| post(&mut client, &both).0).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
    let left: Vec<u16> = (0..4).map(|_| ask(&gateway, &[("client", "a")]).0).collect();
    assert_eq!(left, [200, 200, 200, 429]);
}

#[test]
fn a_request_can_carry_its_limit() {
    let gateway = start("", "");
    let with = |count: u64, unit: &str| {
        let mut one = descriptor(&[("anything", "x")]);
        one["limit"] = json!({"requestsPerUnit": count, "unit": unit});
        post(&mut gateway.client(), &json!({"domain": "web", "descriptors": [one]})).0
    };
    assert_eq!([with(2, "HOUR"), with(2, "HOUR"), with(2, "HOUR")], [200, 200, 429]);
    assert_eq!([with(1, "DAY"), with(1, "DAY")], [200, 429]);
    assert_eq!([with(0, "DAY"), with(4_000_000_000, "DAY"), with(1, "WEEK")], [429, 200, 200]);
}

/// Of many requests at once exactly as many pass as the limit has.
#[test]
fn concurrent_requests_are_counted_exactly() {
    let redis = RedisServer::start();
    for shared in [false, true] {
        let store = if shared { redis.store_within("5s") } else { String::new() };
        let gateways: Vec<Gateway> = (0..1 + usize::from(shared)).map(|_| start("", &store)).collect();
        let admitted: usize = in_parallel(8, |thread| {
            let mut client = gateways[thread % gateways.len()].client();
            let question = json!({"domain": "web", "descriptors": [descriptor(&[("path", "/many")])]});
            (0..50).filter(|_| post(&mut client, &question).0 == 200).count()
        })
        .into_iter()
        .sum();
        assert_eq!(admitted, 50, "shared: {shared}");
    }
}

#[test]
fn without_its_store_it_decides_at_once() {
    let mut redis = RedisServer::start();
    let gateway = start("", &redis.store());
    until("the store is used", || {
        ask(&gateway, &[("client", "first")]);
        (!redis.keys().is_empty()).then_some(())
    });
    redis.kill();
    let statuses: Vec<u16> = (0..7).map(|_| ask(&gateway, &[("client", "a")]).0).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}

#[test]
fn changed_files_come_into_force() {
    let gateway = start("", "");
    assert_eq!([ask(&gateway, &[("client", "a")]).0, ask(&gateway, &[("new", "a")]).0], [200, 200]);
    let with_new = format!("{WEB}- {{key: new, rate_limit: {{unit: hour, requests_per_unit: 0}}}}\n");
    gateway.write_file("limits-web.yml", &with_new);
    until("a new limit", || (ask(&gateway, &[("new", "a")]).0 == 429).then_some(()));
    let left: Vec<u16> = (0..5).map(|_| ask(&gateway, &[("client", "a")]).0).collect();
    assert_eq!(left, [200, 200, 200, 200, 429], "counters stay");

    gateway
        .write_file("limits-web.yml", "domain: web\ndescriptors:\n- {key: a, rate_limit: {unit: hours}}\n");
    until("the mistake is reported", || {
        let log = gateway.log();
        (log.contains("limits-web.yml cannot be used") && log.contains("`hours` is no unit")).then_some(())
    });
    assert_eq!(ask(&gateway, &[("new", "a")]).0, 429, "the old limits stay in force");

    gateway.write_file("limits-web.yml", WEB);
    gateway.write_file(
        "limits-other.yml",
        "domain: other\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 0}}]\n",
    );
    until("the limits of another file", || {
        let other = json!({"domain": "other", "descriptors": [descriptor(&[("a", "1")])]});
        (post(&mut gateway.client(), &other).0 == 429).then_some(())
    });
    assert_eq!(ask(&gateway, &[("new", "a")]).0, 200);
}

#[test]
fn envoy_asks_by_grpc() {
    const SHOULD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let gateway = start("", "");
    let entry = [field(1, b"path"), field(2, b"/login")].concat();
    let question = framed(&[field(1, b"web"), field(2, &field(1, &entry))].concat());
    let without_domain = framed(&field(2, &field(1, &entry)));
    let garbage = framed(b"\x12\xff");
    let compressed = Bytes::from([&b"\x01"[..], &question[1..]].concat());
    let answers = calls(
        &gateway,
        &[
            (SHOULD, question.clone()),
            (SHOULD, question.clone()),
            (SHOULD, question),
            (SHOULD, without_domain),
            (SHOULD, garbage),
            (SHOULD, compressed),
            (SHOULD, Bytes::new()),
            ("/grpc.health.v1.Health/Check", framed(b"")),
            ("/grpc.health.v1.Health/Check", framed(&field(1, b"other"))),
            ("/grpc.health.v1.Health/Watch", framed(b"")),
            ("/envoy.service.auth.v3.Authorization/Check", framed(b"")),
        ],
    );
    let codes: Vec<&str> = answers.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!(codes, ["0", "0", "0", "3", "3", "12", "3", "0", "5", "12", "12"]);
    // overall_code is the first field: 1 is OK, 2 OVER_LIMIT.
    let overall: Vec<&[u8]> = answers[..3].iter().map(|(message, _)| &message[5..7]).collect();
    assert_eq!(overall, [b"\x08\x01", b"\x08\x01", b"\x08\x02"]);
    assert_eq!(answers[7].0, framed(b"\x08\x01"), "serving");
}

#[test]
fn only_callers_may_ask() {
    let text = file("", "").replace("limits/*.yaml", "limits-*.yml").replace("[127.0.0.1]", "[192.0.2.0/24]");
    let gateway = Setup::default().file("limits-web.yml", WEB).start(&text);
    assert_eq!(ask(&gateway, &[("client", "a")]).0, 403);
    let denied = calls(&gateway, &[("/grpc.health.v1.Health/Check", framed(b""))]);
    assert_eq!(denied, [(Vec::new(), "7".to_owned())]);
}

#[test]
fn what_is_no_question_is_refused() {
    let gateway = start("", "");
    let mut client = gateway.client();
    for (body, expected) in [
        ("", "the body is not a request in JSON"),
        ("{\"domain\": \"web\"}", "the request has no descriptors"),
        ("{\"domain\": \"web\", \"descriptor\": []}", "unknown field"),
    ] {
        let answer = client.post("/json", &[], body.as_bytes());
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
    assert_eq!(client.get("/healthcheck").text(), "OK");
    assert_eq!(client.get("/").status, 404);
    let many: Vec<Value> = (0..101).map(|_| descriptor(&[("client", "a")])).collect();
    assert_eq!(post(&mut client, &json!({"domain": "web", "descriptors": many})).0, 400);
}
