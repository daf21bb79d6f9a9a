//! Listeners with `serve: limitador`: the limits files, the HTTP API and the gRPC services of limitador.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::harness::grpc::{calls, field, framed};
use crate::harness::h2::{self, End, H2};
use crate::harness::{Client, Fleet, Gateway, RedisServer, Response, Setup, in_parallel, sleep, until};

const LIMITS: &str = "\
---
- namespace: web
  max_value: 5
  seconds: 3600
  conditions:
  - descriptors[0]['req.method'] == 'POST'
  - descriptors[0].path != '/free'
  variables:
  - descriptors[0]['user']
- {namespace: web, max_value: 50, seconds: 3600, name: all posts, conditions: [\"descriptors[0]['req.method'] == 'POST'\"], variables: []}
- {namespace: closed, max_value: 0, seconds: 60, conditions:, variables:}
- {namespace: simple, id: s1, max_value: 3, seconds: 3600}
";

/// The gateway.yaml, with more fields of `limitador` and more sections.
fn file(fields: &str, more: &str) -> String {
    format!(
        "listen: [{{address: '{{edge}}', serve: limitador, callers: [127.0.0.1]}}]\n{more}\n\
         limitador: {{files: [limits.yaml], {fields}}}\n"
    )
}

fn setup() -> Setup {
    Setup::default().file("limits.yaml", LIMITS).workers(2)
}

fn start() -> Gateway {
    setup().start(&file("", ""))
}

#[track_caller]
fn post(client: &mut Client, path: &str, question: &Value) -> Response {
    client.post(path, &[("content-type", "application/json")], question.to_string().as_bytes())
}

fn question(namespace: &str, values: &[(&str, &str)], delta: u64) -> Value {
    let values: serde_json::Map<String, Value> =
        values.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    json!({"namespace": namespace, "values": values, "delta": delta})
}

/// The statuses of so many questions about a POST of a user.
#[track_caller]
fn statuses(gateway: &Gateway, path: &str, user: &str, count: usize) -> Vec<u16> {
    let mut client = gateway.client();
    let question = question("web", &[("req.method", "POST"), ("path", "/a"), ("user", user)], 1);
    (0..count).map(|_| post(&mut client, path, &question).status).collect()
}

#[test]
fn limits_of_a_file_are_in_force_as_they_are() {
    let gateway = start();
    assert_eq!(statuses(&gateway, "/check_and_report", "a", 6), [200, 200, 200, 200, 200, 429]);
    assert_eq!(
        statuses(&gateway, "/check_and_report", "b", 1),
        [200],
        "each value of a variable has a counter"
    );
    let mut client = gateway.client();
    for (values, why) in [
        (vec![("req.method", "GET"), ("path", "/a"), ("user", "a")], "another method"),
        (vec![("req.method", "POST"), ("path", "/free"), ("user", "a")], "the path that is exempt"),
        (vec![("req.method", "POST"), ("path", "/a")], "without the variable"),
        (vec![("req.method", "POST"), ("user", "a")], "without the key of a condition"),
    ] {
        assert_eq!(post(&mut client, "/check_and_report", &question("web", &values, 1)).status, 200, "{why}");
    }
    assert_eq!(post(&mut client, "/check_and_report", &question("unknown", &[], 1)).status, 200);
    assert_eq!(post(&mut client, "/check_and_report", &question("closed", &[], 1)).status, 429);
    assert_eq!(post(&mut client, "/check_and_report", &question("closed", &[], 0)).status, 200, "a look");

    let refused = post(&mut client, "/check_and_report", &question("closed", &[], 1));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry), "{retry}");
    let problem: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["closed"])));
    let metrics = gateway.admin_get("/metrics").text();
    let line = "sluicegate_limit_decisions_total{limit=\"limitador.simple.3600s\",outcome=\"admitted\"} 0\n";
    assert!(metrics.contains(line), "{metrics}");
}

/// The answers of each endpoint, step by step.
#[test]
fn endpoints_answer_as_those_of_limitador() {
    let gateway = start();
    let mut client = gateway.client();
    let steps = [
        ("/check", 3, 200, "asks only"),
        ("/check", 4, 429, "more than the limit has"),
        ("/check_and_report", 2, 200, "counts"),
        ("/check_and_report", 2, 429, "all or nothing"),
        ("/check", 1, 200, "one is left"),
        ("/report", 1, 200, "counts"),
        ("/check", 1, 429, "none is left"),
        ("/check", 0, 200, "not above the limit"),
        ("/report", 10, 200, "counts above the limit, too"),
        ("/check", 0, 429, "above the limit"),
        ("/check_and_report", 1, 429, "above the limit"),
    ];
    for (path, delta, status, why) in steps {
        let answer = post(&mut client, path, &question("simple", &[], delta));
        assert_eq!(answer.status, status, "{path} {delta}: {why}");
        if status == 200 {
            assert_eq!(
                (answer.text().as_str(), answer.header("content-type")),
                ("null", Some("application/json"))
            );
        }
    }
    let status = client.get("/status");
    assert_eq!((status.status, status.text().as_str()), (200, "null"));
    for (method, path) in [("GET", "/check"), ("POST", "/limits/web"), ("GET", "/"), ("GET", "/metrics")] {
        assert_eq!(client.ask(method, path, &[]).status, 404, "{method} {path}");
    }
}

#[test]
fn limits_and_counters_are_listed() {
    let gateway = start();
    let mut client = gateway.client();
    let list = |client: &mut Client, path: &str| -> (u16, Value) {
        let answer = client.get(path);
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::String(answer.text())))
    };
    let simple = json!({"id": "s1", "namespace": "simple", "max_value": 3, "seconds": 3600, "name": null,
        "conditions": [], "variables": []});
    assert_eq!(list(&mut client, "/limits/simple"), (200, json!([simple])));
    let (_, web) = list(&mut client, "/limits/w%65b");
    assert_eq!(
        web[0]["conditions"],
        json!(["descriptors[0].path != '/free'", "descriptors[0]['req.method'] == 'POST'"])
    );
    assert_eq!(
        (&web[0]["variables"], &web[1]["name"]),
        (&json!(["descriptors[0]['user']"]), &json!("all posts"))
    );
    assert_eq!(list(&mut client, "/limits/unknown"), (200, json!([])));

    assert_eq!(list(&mut client, "/counters/simple"), (200, json!([])), "nothing is counted yet");
    post(&mut client, "/report", &question("simple", &[], 2));
    let (status, counters) = list(&mut client, "/counters/simple");
    let expires = counters[0]["expires_in_seconds"].as_u64().unwrap();
    assert!((1..=3_600).contains(&expires), "{expires}");
    let counter =
        json!({"limit": simple, "set_variables": {}, "remaining": 1, "expires_in_seconds": expires});
    assert_eq!((status, counters), (200, json!([counter])));
    let (status, text) = list(&mut client, "/counters/web");
    assert!(
        status == 501 && text.to_string().contains("without the values of `descriptors[0]['user']`"),
        "{text}"
    );
}

#[test]
fn answers_have_headers_if_the_question_says_so() {
    let gateway = start();
    let mut client = gateway.client();
    let mut asked = question("web", &[("req.method", "POST"), ("path", "/a"), ("user", "a")], 2);
    let headers = |answer: &Response| {
        ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| answer.header(name).map(str::to_owned))
    };
    for plain in [Value::Null, json!("NONE")] {
        asked["response_headers"] = plain;
        assert_eq!(headers(&post(&mut client, "/check", &asked)), [None, None]);
    }
    asked["response_headers"] = json!("DraftVersion03");
    let limits = Some("5, 5;w=3600, 50;w=3600;name=\"all posts\"".to_owned());
    let steps = [
        ("/check", 200, "5"),
        ("/check_and_report", 200, "3"),
        ("/report", 200, "1"),
        ("/check_and_report", 429, "1"),
        ("/check", 429, "1"),
    ];
    for (path, status, left) in steps {
        let answer = post(&mut client, path, &asked);
        assert_eq!(
            (answer.status, headers(&answer)),
            (status, [limits.clone(), Some(left.to_owned())]),
            "{path}"
        );
        let reset: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert!((u64::from(left != "5")..=3_600).contains(&reset), "{reset}");
    }
}

#[test]
fn a_refusal_charges_no_other_limit() {
    let gateway = start();
    statuses(&gateway, "/check_and_report", "a", 20);
    let mut client = gateway.client();
    let mut asked = question("web", &[("req.method", "POST"), ("path", "/free")], 0);
    asked["response_headers"] = json!("DraftVersion03");
    assert_eq!(post(&mut client, "/check", &asked).header("x-ratelimit-remaining"), Some("45"));
}

const SHOULD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit";
const REPORT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Report";

/// A request about a domain with one descriptor, and so many hits.
fn request(domain: &str, entries: &[(&str, &str)], hits: u8) -> Bytes {
    let entries = entries
        .iter()
        .map(|(key, value)| field(1, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat()));
    let descriptor = field(2, &entries.collect::<Vec<_>>().concat());
    framed(&[field(1, domain.as_bytes()), descriptor, vec![0x18, hits]].concat())
}

/// The overall code of each answer: 1 is OK, 2 OVER_LIMIT; or the status of the call.
fn codes(answers: &[(Vec<u8>, String)]) -> Vec<String> {
    let code = |(message, status): &(Vec<u8>, String)| match status.as_str() {
        "0" => message[6].to_string(),
        other => format!("status {other}"),
    };
    answers.iter().map(code).collect()
}

#[test]
fn proxies_ask_by_grpc() {
    let gateway = start();
    let of = |path, domain, hits| (path, request(domain, &[("a", "b")], hits));
    let answers = calls(
        &gateway,
        &[
            of(CHECK, "simple", 100),
            of(SHOULD, "simple", 0),
            of(SHOULD, "simple", 2),
            of(CHECK, "simple", 0),
            of(SHOULD, "simple", 1),
            of(REPORT, "simple", 5),
            of(REPORT, "closed", 1),
            of(SHOULD, "closed", 1),
            of(SHOULD, "unknown", 1),
        ],
    );
    assert_eq!(codes(&answers), ["1", "1", "1", "2", "2", "1", "1", "2", "1"]);
    let text = String::from_utf8_lossy(&answers[4].0).into_owned();
    assert!(text.contains("retry-after") && text.contains("quota-exceeded"), "{text}");
    assert!(!text.contains("x-ratelimit"), "{text}");
    let left = post(&mut gateway.client(), "/check", &question("simple", &[], 0));
    assert_eq!(left.status, 429, "what is reported over gRPC is counted for HTTP");

    let second = |user| request("web", &[("req.method", "POST"), ("path", "/a"), ("user", user)], 5);
    let answers = calls(
        &gateway,
        &[
            (SHOULD, second("c")),
            (SHOULD, second("c")),
            (SHOULD, framed(&field(2, b""))),
            (SHOULD, framed(&field(1, b"simple"))),
            (SHOULD, framed(b"\x12\xff")),
            (SHOULD, framed(&[field(1, b"simple"), b"\x12\x00".repeat(101)].concat())),
            (
                "/grpc.health.v1.Health/Check",
                framed(&field(1, b"kuadrant.service.ratelimit.v1.RateLimitService")),
            ),
            ("/grpc.health.v1.Health/Check", framed(&field(1, b"envoy.service.auth.v3.Authorization"))),
            ("/kuadrant.service.ratelimit.v1.RateLimitService/Reserve", framed(b"")),
        ],
    );
    let expected = ["1", "2", "status 3", "status 3", "status 3", "status 8", "1", "status 5", "status 12"];
    assert_eq!(codes(&answers), expected);
}

#[test]
fn answers_over_grpc_have_headers_if_the_file_says_so() {
    let gateway = setup().start(&file("response_headers: draft_version_03", ""));
    let of = |path| (path, request("simple", &[("a", "b")], 2));
    let answers = calls(&gateway, &[of(SHOULD), of(CHECK)]);
    let text = |at: usize| String::from_utf8_lossy(&answers[at].0).into_owned();
    assert!(text(0).contains("x-ratelimit-limit") && text(0).contains("3, 3;w=3600"), "{}", text(0));
    assert!(!text(1).contains("x-ratelimit"), "limitador sends none with CheckRateLimit: {}", text(1));
}

#[test]
fn concurrent_requests_are_counted_exactly() {
    let redis = RedisServer::start();
    for shared in [false, true] {
        let store = if shared { redis.store_within("5s") } else { String::new() };
        let gateways: Vec<Gateway> =
            (0..1 + usize::from(shared)).map(|_| setup().start(&file("", &store))).collect();
        let admitted: usize = in_parallel(8, |thread| {
            let mut client = gateways[thread % gateways.len()].client();
            let user = format!("u{thread}");
            let asked = question("web", &[("req.method", "POST"), ("path", "/free"), ("user", &user)], 1);
            (0..50).filter(|_| post(&mut client, "/check_and_report", &asked).status == 200).count()
        })
        .into_iter()
        .sum();
        assert_eq!(admitted, 50, "shared: {shared}");
    }
}

/// Checks of a whole limit take nothing from it, not even for a moment: all of its hits are admitted beside them.
#[test]
fn checks_disturb_nobody() {
    let redis = RedisServer::start();
    for store in [String::new(), redis.store_within("5s")] {
        let gateway = setup().start(&file("", &store));
        let of = |delta| question("web", &[("req.method", "POST"), ("path", "/free")], delta);
        let statuses = in_parallel(4, |thread| {
            let mut client = gateway.client();
            let (path, delta, count) =
                if thread == 0 { ("/check_and_report", 1, 50) } else { ("/check", 50, 100) };
            (0..count).map(|_| post(&mut client, path, &of(delta)).status).collect::<Vec<_>>()
        });
        assert_eq!(statuses[0], [200; 50], "{store}");
        assert_eq!(post(&mut gateway.client(), "/check", &of(1)).status, 429, "{store}");
    }
}

/// The endpoints mean the same with counters in Redis.
#[test]
fn gateways_with_a_store_count_together() {
    let redis = RedisServer::start();
    let setups = (0..2).map(|_| setup()).collect();
    let fleet = Fleet::of(setups, &file("", &redis.store_within("5s")));
    let mut clients: Vec<Client> = fleet.iter().map(Gateway::client).collect();
    let mut ask = |gateway: usize, path: &str, delta| {
        post(&mut clients[gateway], path, &question("simple", &[], delta)).status
    };
    assert_eq!([ask(0, "/check", 3), ask(1, "/check_and_report", 2), ask(0, "/check", 2)], [200, 200, 429]);
    assert_eq!([ask(0, "/report", 5), ask(0, "/check_and_report", 1)], [200, 429]);
    until("the other gateway sees the report", || (ask(1, "/check", 0) == 429).then_some(()));
    let counters: Value = serde_json::from_slice(&clients[1].get("/counters/simple").body).unwrap();
    assert_eq!(counters[0]["remaining"], 0, "{counters}");
}

#[test]
fn without_its_store_it_decides_as_the_file_says() {
    for (policy, expected) in [("local", [429, 200, 200, 429, 429]), ("closed", [500; 5]), ("open", [200; 5])]
    {
        let mut redis = RedisServer::start();
        let gateway = setup().start(&file(&format!("on_store_failure: {policy}"), &redis.store()));
        let mut client = gateway.client();
        until("the store is used", || {
            post(&mut client, "/check_and_report", &question("simple", &[], 1));
            (!redis.keys().is_empty()).then_some(())
        });
        redis.kill();
        let user = [("req.method", "POST"), ("path", "/a"), ("user", "z")];
        let mut statuses = || {
            let steps = [
                ("/check", 6),
                ("/check", 5),
                ("/check_and_report", 5),
                ("/check_and_report", 1),
                ("/check", 1),
            ];
            steps.map(|(path, delta)| post(&mut client, path, &question("web", &user, delta)).status)
        };
        assert_eq!(statuses(), expected, "{policy}");
        let call = [(SHOULD, request("web", &user, 1))];
        let over = if policy == "closed" {
            "status 14"
        } else if policy == "open" {
            "1"
        } else {
            "2"
        };
        assert_eq!(codes(&calls(&gateway, &call)), [over], "{policy}");
        let report = post(&mut client, "/report", &question("web", &user, 1)).status;
        assert_eq!(report, if policy == "closed" { 500 } else { 200 }, "{policy}: a report");
        assert_eq!(client.get("/counters/simple").status, 500, "{policy}: what is counted is not known");
    }
}

#[test]
fn changed_files_come_into_force() {
    let limits = LIMITS.replace("max_value: 50,", "max_value: 1000000,");
    let gateway = Setup::default().file("limits.yaml", &limits).start(&file("", ""));
    assert_eq!(statuses(&gateway, "/check_and_report", "a", 3), [200; 3]);
    gateway.write_file("limits.yaml", &limits.replace("max_value: 5\n", "max_value: 4\n"));
    let mut others = (0..).map(|n| format!("other{n}"));
    until("the new maximum", || {
        let user = others.next()?;
        (statuses(&gateway, "/check_and_report", &user, 5) == [200, 200, 200, 200, 429]).then_some(())
    });
    assert_eq!(statuses(&gateway, "/check_and_report", "a", 2), [200, 429], "counters stay");

    gateway.write_file("limits.yaml", "- {namespace: web, max_value: 1, second: 60}\n");
    until("the mistake is reported", || {
        let log = gateway.log();
        (log.contains("limits.yaml cannot be used") && log.contains("did you mean `seconds`?")).then_some(())
    });
    assert_eq!(statuses(&gateway, "/check", "a", 1), [429], "the old limits stay in force");

    // As a program leaves it that opens it for writing, and fails or is slow.
    gateway.write_file("limits.yaml", "");
    until("the mistake is reported", || gateway.log().contains("the file is empty").then_some(()));
    assert_eq!(statuses(&gateway, "/check", "a", 1), [429], "an empty file removes no limit");

    gateway.write_file("limits.yaml", "- {namespace: web, max_value: 0, seconds: 60}\n");
    until("other limits", || (statuses(&gateway, "/check", "new", 1) == [429]).then_some(()));
}

/// A file is read when it is whole: a limit that is missing for a moment would lose its counters.
#[test]
fn a_file_that_is_written_slowly_is_read_once() {
    let (first, second) = LIMITS.split_at(LIMITS.find("- {namespace: web").unwrap());
    let gateway = start();
    assert_eq!(statuses(&gateway, "/check_and_report", "a", 5), [200; 5]);
    let simple = question("simple", &[], 3);
    assert_eq!(post(&mut gateway.client(), "/check_and_report", &simple).status, 200);
    gateway.write_file("limits.yaml", first);
    sleep(Duration::from_millis(70));
    gateway.write_file(
        "limits.yaml",
        &[first, second, "- {namespace: new, max_value: 0, seconds: 60}\n"].concat(),
    );
    let new = question("new", &[], 1);
    until("the new limit", || (post(&mut gateway.client(), "/check", &new).status == 429).then_some(()));
    assert_eq!(post(&mut gateway.client(), "/check", &simple).status, 429, "its counter is still there");
}

/// Over any protocol a proxy that stalls is answered within `timeouts.body`, and each mistake has its own status.
#[test]
fn bodies_that_do_not_arrive_are_refused() {
    let gateway = setup().start(&file("", "timeouts: {body: 1s}"));
    let head = |rest: &str| format!("POST /check HTTP/1.1\r\nHost: x\r\n{rest}\r\n\r\n");
    for (request, status) in
        [(head("Content-Length: 10") + "{", 408), (head("Transfer-Encoding: chunked") + "zz\r\n", 400)]
    {
        assert_eq!(gateway.client().send(&request).response().status, status, "{request}");
    }
    let mut client = H2::connect(gateway.edge);
    client.send(h2::post(1, "/check"));
    assert_eq!(client.end(1), End::Status(408));
    let call = [&h2::pseudo("POST", SHOULD)[..], &[("content-type", "application/grpc")]].concat();
    client.send(h2::frame(h2::HEADERS, h2::END_HEADERS, 3, &h2::block(&call)));
    assert_eq!(client.end(3), End::Status(200), "with a grpc-status");
}

#[test]
fn only_callers_may_ask() {
    let gateway = setup().start(&file("", "").replace("[127.0.0.1]", "[192.0.2.0/24]"));
    let forged = [("x-forwarded-for", "192.0.2.7"), ("forwarded", "for=192.0.2.7")];
    let mut client = gateway.client();
    assert_eq!(client.post("/check", &forged, question("simple", &[], 1).to_string().as_bytes()).status, 403);
    for path in ["/status", "/limits/web", "/counters/simple"] {
        assert_eq!(client.ask("GET", path, &forged).status, 403, "{path}");
    }
    let denied = calls(&gateway, &[(SHOULD, request("simple", &[], 1)), (REPORT, request("simple", &[], 1))]);
    assert_eq!(codes(&denied), ["status 7", "status 7"]);
}

#[test]
fn what_is_no_question_is_refused() {
    let gateway = start();
    let mut client = gateway.client();
    let many: Vec<String> = (0..101).map(|n| format!("k{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "v")).collect();
    for (body, expected) in [
        (String::new(), "the body is not a request in JSON"),
        (json!(["web", {}, 1, "NONE"]).to_string(), "expected an object, found a list"),
        ("{\"namespace\": \"web\", \"values\": {}}".to_owned(), "missing field `delta`"),
        ("{\"namespace\": \"web\", \"values\": {\"a\": 1}, \"delta\": 1}".to_owned(), "expected a string"),
        ("{\"namespace\": \"web\", \"values\": {}, \"delta\": -1}".to_owned(), "invalid value"),
        ("{\"namespace\": \"\", \"values\": {}, \"delta\": 1}".to_owned(), "`namespace` is empty"),
        (question("web", &many, 1).to_string(), "101 entries"),
        (question("web", &[("k", &"v".repeat(65_537))], 1).to_string(), "65537 bytes in a value"),
    ] {
        let answer = client.post("/check_and_report", &[], body.as_bytes());
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
    let long = gateway.client().post("/check_and_report", &[], &vec![b' '; (256 << 10) + 1]);
    assert_eq!(long.status, 413);
    let deep = [&b"["[..], &b"[".repeat(10_000)].concat();
    assert_eq!(gateway.client().post("/check", &[], &deep).status, 400);
    assert_eq!(statuses(&gateway, "/check_and_report", "a", 1), [200], "the gateway still decides");
}
