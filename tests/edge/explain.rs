//! What would happen to a request, and why one was refused: the same as what happens, and nothing is consumed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::folder::text;
use crate::harness::{Fleet, Folder, Gateway, RedisServer, Response, Stopwatch, Upstream, program, until};

const LIMITS: &str = "limits:\n  \
    bucket: {key: api_key, rate: 3/min}\n  \
    leaky: {key: api_key, algorithm: leaky_bucket, rate: 2/min, burst: 3, max_delay: 0s}\n  \
    fixed: {key: api_key, algorithm: fixed_window, rate: 3/day}\n  \
    log: {key: api_key, algorithm: sliding_log, rate: 3/day, count_rejected: true}\n  \
    window: {key: api_key, algorithm: sliding_window, rate: 3/day, slices: 4, strict: true}\n  \
    watched: {key: ip, rate: 1/day, mode: shadow}\n  \
    banned: {key: api_key, rate: 2/day, ban: {after: 2, within: 1h, for: 1h}}\n\
    routes:\n";

/// A route for each limit.
fn rules() -> String {
    let names = ["bucket", "leaky", "fixed", "log", "window", "banned"];
    let routes = names.map(|name| {
        format!("  - {{name: {name}, match: {{path: /{name}}}, respond: {{status: 200}}, limits: [{name}, watched]}}\n")
    });
    format!("{LIMITS}{}", routes.concat())
}

fn explained(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin_get(&format!("/explain?{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The headers that change while nothing is done, without the seconds.
fn comparable(name: &str) -> bool {
    !matches!(name, "x-request-id" | "date" | "content-length" | "connection" | "server")
}

/// The status and headers that are told are those of the next answer, for every algorithm, and asking changes nothing.
#[test]
fn what_is_told_is_what_happens() {
    let gateway = Gateway::start(&rules());
    let mut client = gateway.client();
    for path in ["bucket", "fixed", "log", "window", "banned"] {
        for turn in 0..6 {
            let query = format!("url=/{path}&header=X-Api-Key:%20k1&from=127.0.0.1");
            let watch = Stopwatch::start();
            let explanation = explained(&gateway, &query);
            assert_eq!(
                explanation["limits"][0]["remaining"],
                explained(&gateway, &query)["limits"][0]["remaining"]
            );
            let answer = client.ask("GET", &format!("/{path}"), &[("x-api-key", "k1")]);
            let seconds = 1 + watch.elapsed().as_secs();
            assert_eq!(explanation["status"], answer.status, "{path} {turn}: {explanation}");
            let outcome = if answer.status == 200 { "admitted" } else { "refused" };
            assert_eq!(
                (&explanation["outcome"], &explanation["route"], &explanation["limit"]),
                (&json!(outcome), &json!(path), &json!(path))
            );
            for (name, value) in
                explanation["headers"].as_object().unwrap().iter().filter(|(name, _)| comparable(name))
            {
                let actual = answer.header(name).unwrap_or_else(|| panic!("{path} {turn}: no {name}"));
                let numbers = |text: &str| {
                    text.split(|c: char| !c.is_ascii_digit())
                        .filter_map(|n| n.parse().ok())
                        .collect::<Vec<i64>>()
                };
                let (one, other) = (numbers(value.as_str().unwrap()), numbers(actual));
                let near = one.len() == other.len()
                    && one.iter().zip(&other).all(|(a, b)| a.abs_diff(*b) <= seconds);
                assert!(near, "{path} {turn}: {name}: {value} is told, {actual} is sent");
            }
        }
    }
}

/// Everything that the answer has: the route, others and why not, the client and who was trusted, keys without secrets.
#[test]
fn an_explanation_names_everything() {
    let folder = Folder::with(&[(
        "gateway.yaml",
        "listen: [127.0.0.1:18080]\nclient_ip: {trusted_proxies: [10.0.0.0/8]}\n\
         limits:\n  per-key: {key: api_key, rate: 5/min, exempt: [192.0.2.0/24]}\n  per-ip: {key: ip, rate: 100/s}\n\
         routes:\n  - {name: login, match: {path: /login, methods: [POST]}, respond: {status: 204}, limits: [per-ip]}\n  \
         - {name: api, match: {path: /v1/*}, respond: {status: 200}, limits: [per-key, per-ip]}\n  \
         - {name: rest, match: {path: /*}, respond: {status: 404}}\n",
    )]);
    let run = |args: &[&str]| {
        let output = folder.run(&[&["explain", "--json"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let explanation = run(&[
        "GET",
        "https://api.test/v1/x?y=1",
        "-H",
        "X-Api-Key: k1",
        "-H",
        "X-Forwarded-For: 203.0.113.9",
        "--from",
        "10.1.1.1",
    ]);
    assert_eq!(
        (&explanation["route"], &explanation["client"], &explanation["outcome"]),
        (&json!("api"), &json!("203.0.113.9"), &json!("admitted"))
    );
    assert!(explanation["client_why"].as_str().unwrap().contains("trusted proxy"), "{explanation}");
    assert_eq!(explanation["passed_over"][0], json!({"route": "login", "why": "no match: method, path"}));
    assert_eq!(explanation["passed_over"][1]["route"], "rest");
    assert!(
        explanation["limits"][0]["key"].as_str().unwrap().starts_with("api_key:sha256:"),
        "{explanation}"
    );
    assert_eq!(
        (&explanation["limits"][1]["key"], &explanation["limits"][1]["remaining"]),
        (&json!("ip:203.0.113.9"), &json!(100))
    );
    assert_eq!(explanation["headers"]["x-ratelimit-remaining"], "4");
    let exempt = run(&["GET", "/v1/x", "--from", "192.0.2.7"]);
    assert_eq!(exempt["limits"][1]["outcome"], "exempt", "{exempt}");
    let nowhere = folder.run(&["explain", "--json", "GET", "no path"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", text(&nowhere));
    let people = folder.run(&["explain", "GET", "/v1/x"]);
    assert!(text(&people).contains("route       api"), "{}", text(&people));
}

/// A consumer is explained without a credential: its name is the key, and it has its plan.
#[test]
fn a_consumer_needs_no_credential() {
    let folder = Folder::with(&[
        (
            "gateway.yaml",
            "listen: [127.0.0.1:18080]\nauth: {api_key: {consumers: consumers.yaml}}\n\
             limits: {all: {key: consumer, rate: 5/min, plans: {pro: {rate: 50/min}}}}\n\
             routes: [{name: api, respond: {status: 200}, limits: [all]}]\n",
        ),
        (
            "consumers.yaml",
            "- {name: acme, plan: pro, key: 'sha256:6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0'}\n\
             - {name: beta, key: 'sha256:015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e'}\n",
        ),
    ]);
    let run = |args: &[&str]| folder.run(&[&["explain", "--json", "GET", "/"], args].concat());
    for (consumer, key, digest, capacity) in
        [("acme", "k1", "6ab9f1eb8f7d3388", 50), ("beta", "k2", "015f7e6bc5aeaf48", 5)]
    {
        let by_name = run(&["--consumer", consumer]);
        assert_eq!(by_name.status.code(), Some(0), "{}", text(&by_name));
        let explanation = serde_json::from_slice::<Value>(&by_name.stdout).unwrap();
        assert_eq!(
            (&explanation["consumer"], &explanation["outcome"]),
            (&json!(consumer), &json!("admitted")),
            "{explanation}"
        );
        let limit = &explanation["limits"][0];
        assert_eq!(limit["key"], format!("consumer:{consumer}"), "{explanation}");
        assert_eq!(limit["remaining"], capacity, "{explanation}");
        let by_key = run(&["-H", &format!("X-Api-Key: {key}")]);
        assert_eq!(by_key.stdout, by_name.stdout, "as with the credential");
        for form in
            [format!("consumer:{consumer}"), format!("sha256:{digest}"), format!("api_key:sha256:{digest}")]
        {
            assert_eq!(
                run(&["--consumer", &form]).stdout,
                by_name.stdout,
                "{form}: as operators are shown it"
            );
        }
    }
    let unknown = run(&["--consumer", "gamma"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown).contains("there is no consumer called `gamma`"), "{}", text(&unknown));
}

/// The log lines of the refused requests by their ids.
fn logged(gateway: &Gateway, count: usize) -> BTreeMap<String, Value> {
    until("all requests are logged", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let refused = lines.filter(|line| line["status"] == 429);
        let all: BTreeMap<String, Value> =
            refused.map(|line| (line["request_id"].as_str().unwrap_or_default().to_owned(), line)).collect();
        (all.len() == count).then_some(all)
    })
}

/// Of a thousand refusals the explanation, the access log, the answer and the metrics name the same limit.
#[test]
fn everybody_names_the_same_limit() {
    let log = "access_log: {path: access.log, format: json}\n";
    let text = "limits:\n  a: {key: api_key, rate: 20/day}\n  b: {key: ip, algorithm: fixed_window, rate: 150/day}\n  \
                c: {key: 'header:x-tenant', algorithm: sliding_window, rate: 40/day}\n\
                routes:\n  - {name: ab, match: {path: /ab}, respond: {status: 200}, limits: [a, b]}\n  \
                - {name: ac, match: {path: /ac}, respond: {status: 200}, limits: [a, c]}\n  \
                - {name: bc, match: {path: /bc}, respond: {status: 200}, limits: [b, c]}\n";
    let gateway = Gateway::start(&format!("{log}{text}"));
    let mut client = gateway.client();
    let (mut refused, mut state) = (Vec::new(), 0x9e37_79b9_u64);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    while refused.len() < 1_000 {
        let path = ["/ab", "/ac", "/bc"][random(3) as usize];
        let (key, tenant) = (format!("k{}", random(9)), format!("t{}", random(5)));
        let answer: Response = client.ask("GET", path, &[("x-api-key", &key), ("x-tenant", &tenant)]);
        if answer.status == 429 {
            refused.push(answer);
        }
    }
    let logged = logged(&gateway, refused.len());
    let mut by_limit: BTreeMap<String, f64> = BTreeMap::new();
    for answer in &refused {
        let id = answer.header("x-request-id").unwrap();
        let explanation = explained(&gateway, &format!("request={id}"));
        let body = answer.json();
        assert_eq!(explanation["limit"], logged[id]["limit"], "{id}");
        assert_eq!(explanation["reason"], body["reason"], "{id}");
        let violated = body["violated-policies"].as_array().unwrap();
        assert!(violated.contains(&explanation["limit"]), "{id}: {explanation} {body}");
        let refusing: Vec<&Value> = explanation["limits"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|limit| limit["outcome"] == "refused")
            .map(|limit| &limit["name"])
            .collect();
        assert_eq!(refusing, violated.iter().collect::<Vec<_>>(), "{id}");
        assert_eq!(explanation["headers"]["retry-after"].as_str(), answer.header("retry-after"), "{id}");
        assert!(answer.header("ratelimit").unwrap().starts_with(&explanation["limit"].to_string()), "{id}");
        for limit in refusing {
            *by_limit.entry(limit.as_str().unwrap().to_owned()).or_default() += 1.0;
        }
    }
    for (limit, count) in by_limit {
        let counted =
            gateway.metric("sluicegate_limit_decisions_total", &[("limit", &limit), ("outcome", "refused")]);
        assert_eq!(counted, count, "{limit}");
    }
}

/// Requests that are refused before their limits are explained too; an id that nobody knows is 404.
#[test]
fn early_refusals_are_remembered() {
    let gateway = Gateway::start(
        "lists: {local: [\"127.0.0.0/8\"]}\nroutes: [{name: only, match: {path: /only}, deny: [local], respond: {status: 200}}]\n",
    );
    for (path, route, reason) in [("/only", json!("only"), "list"), ("/none", Value::Null, "no_route")] {
        let answer = gateway.get(path);
        let explanation = explained(&gateway, &format!("request={}", answer.header("x-request-id").unwrap()));
        assert_eq!(
            (&explanation["route"], &explanation["reason"], &explanation["status"]),
            (&route, &json!(reason), &json!(answer.status))
        );
    }
    let unknown = gateway.admin_get("/explain?request=nobody");
    assert_eq!((unknown.status, unknown.header("content-type")), (404, Some("application/problem+json")));
    for bad in [
        "/explain",
        "/explain?url=nowhere",
        "/explain?url=/&from=x",
        "/explain?url=/&header=x",
        "/explain?url=/&listener=no",
    ] {
        assert_eq!(gateway.admin_get(bad).status, 400, "{bad}");
    }
}

/// A running gateway is asked over its admin API.
#[test]
fn the_command_asks_a_gateway() {
    let upstream = Upstream::answering("hello");
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: ip, rate: 2/day}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: all, upstream: api, limits: [l]}]\n",
    );
    gateway.get("/");
    let admin = gateway.admin.to_string();
    let output = program().args(["explain", "GET", "/x", "--admin", &admin, "--json"]).output().unwrap();
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&explanation["limits"][0]["remaining"], &explanation["status"]),
        (&json!(1), &Value::Null),
        "{explanation}"
    );
    gateway.get("/");
    let refused = gateway.get("/");
    let id = refused.header("x-request-id").unwrap();
    let output = program().args(["explain", "--request", id, "--admin", &admin]).output().unwrap();
    assert!(text(&output).contains("outcome     refused (limit; l): 429"), "{}", text(&output));
}

/// Shared limits are explained by their state in the store, and a ban there refuses.
#[test]
fn shared_limits_are_explained_by_the_store() {
    let redis = RedisServer::start();
    let text = "limits: {l: {key: api_key, rate: 2/day, ban: 1h}}\n\
                routes: [{name: all, respond: {status: 200}, limits: [l]}]\n";
    let fleet = Fleet::start(2, &(redis.store() + text));
    let (one, two) = (&fleet[0], &fleet[1]);
    let key = [("x-api-key", "k")];
    assert_eq!(one.statuses(1, "/", &key), [200]);
    let query = "url=/&header=x-api-key:k";
    let explanation = explained(two, query);
    assert_eq!(
        (&explanation["outcome"], &explanation["limits"][0]["remaining"]),
        (&json!("admitted"), &json!(1)),
        "{explanation}"
    );
    assert_eq!(one.statuses(2, "/", &key), [200, 429]);
    let explanation = explained(two, query);
    assert_eq!(
        (&explanation["outcome"], &explanation["reason"]),
        (&json!("refused"), &json!("ban")),
        "{explanation}"
    );
    let refused = two.ask("GET", "/", &key);
    let explanation = explained(two, &format!("request={}", refused.header("x-request-id").unwrap()));
    assert!(
        explanation["limits"][0]["key"].as_str().unwrap().starts_with("api_key:sha256:"),
        "{explanation}"
    );
}
