//! Listeners that decide for other proxies by HTTP: `serve: check`, and `serve: ext_authz_http`. The routes and limits of
//! the described request decide, never those of the question.

use serde_json::{Value, json};

use crate::harness::load::{Load, admitted};
use crate::harness::{Client, Fleet, Gateway, RedisServer, Response, Setup, Upstream, until};

const LISTEN: &str = "listen:\n- {name: edge, address: '{edge}'}\n- {name: check, address: '{edge2}', serve: check, callers: [127.0.0.1]}\n";

/// A client that is not on this machine.
const CLIENT: &str = "192.0.2.1";

fn start(rest: &str) -> Gateway {
    Gateway::start(&format!("{LISTEN}{rest}"))
}

/// The answer to a question with these headers, and the usual ones that are not among them.
fn question(gateway: &Gateway, headers: &[(&str, &str)]) -> Response {
    Client::connect(gateway.edge2).ask("GET", "/", &described(headers))
}

fn described<'h>(headers: &[(&'h str, &'h str)]) -> Vec<(&'h str, &'h str)> {
    let usual = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/items"),
        ("x-forwarded-host", "api.test"),
        ("x-forwarded-for", CLIENT),
    ];
    let is_own = |name: &str| headers.iter().any(|(own, _)| *own == name);
    usual.into_iter().filter(|(name, _)| !is_own(name)).chain(headers.iter().copied()).collect()
}

/// The answer to a question about a GET of this path.
fn about(gateway: &Gateway, path: &str) -> Response {
    question(gateway, &[("x-forwarded-uri", path)])
}

#[test]
fn a_described_request_has_its_own_counters() {
    let gateway = start(
        "limits: {one: {key: [ip, host, method, path, 'header:X-Tenant', api_key], rate: 1/day}}\nroutes: [{name: all, respond: \
         {status: 200}, limits: [one]}]\n",
    );
    let of_client = [("x-tenant", "a"), ("x-api-key", "k")];
    let others = [
        ("x-forwarded-for", "192.0.2.2"),
        ("x-forwarded-host", "other.test"),
        ("x-forwarded-method", "DELETE"),
        ("x-forwarded-uri", "/others"),
        ("x-tenant", "b"),
        ("x-api-key", "l"),
    ];
    let statuses = |headers: &[(&str, &str)]| [(); 2].map(|()| question(&gateway, headers).status);
    assert_eq!(statuses(&of_client), [200, 429]);
    for (name, value) in others {
        let mut headers: Vec<_> = of_client.into_iter().filter(|(own, _)| *own != name).collect();
        headers.push((name, value));
        assert_eq!(statuses(&headers), [200, 429], "{name}: {value}");
    }
    // The question itself has another method, path and host, and comes from another address.
    let mut caller = Client::connect(gateway.edge2);
    let headers = [&described(&of_client)[..], &[("host", "gateway.test")]].concat();
    assert_eq!(caller.ask("DELETE", "/others", &headers).status, 429);
    assert_eq!(caller.ask("GET", "http://other.test/others", &headers).status, 429);
    // Without X-Forwarded-Host the host is that of the question, as some proxies keep it.
    let headers: Vec<_> = headers.into_iter().filter(|(name, _)| *name != "x-forwarded-host").collect();
    assert_eq!([(); 2].map(|()| caller.ask("GET", "/", &headers).status), [200, 429]);
}

#[test]
fn the_client_is_the_last_address_that_is_not_a_trusted_proxy() {
    let gateway = start(
        "client_ip: {trusted_proxies: [10.0.0.0/8]}\nlimits: {one: {key: ip, rate: 1/day}}\nroutes: [{name: all, respond: \
         {status: 200}, limits: [one]}]\n",
    );
    let from = |addresses: &str| question(&gateway, &[("x-forwarded-for", addresses)]).status;
    assert_eq!([from(CLIENT), from(CLIENT)], [200, 429]);
    assert_eq!(from("198.51.100.9, 192.0.2.1"), 429, "what the client wrote before is not believed");
    assert_eq!(from("198.51.100.9, 192.0.2.1, 10.0.0.7"), 429, "a proxy before the caller");
    assert_eq!(from("192.0.2.1, 198.51.100.9"), 200);
}

#[test]
fn an_answer_has_all_headers_of_limits() {
    let gateway = start(
        "limits: {daily: {key: ip, rate: 2/day}, all: {key: global, rate: 1000/day}}\nroutes: [{name: all, respond: {status: \
         200}, limits: [daily, all]}]\n",
    );
    let answer = about(&gateway, "/");
    assert_eq!((answer.status, answer.text()), (200, String::new()));
    assert_eq!((answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining")), (2, 1));
    assert!(answer.number("x-ratelimit-reset") > 0);
    assert_eq!(answer.header("ratelimit-policy"), Some("\"daily\";q=2;w=86400, \"all\";q=1000;w=86400"));
    assert!(answer.header("ratelimit").is_some_and(|value| value.starts_with("\"daily\";r=1;t=")));
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(about(&gateway, "/").status, 200);
    let refused = about(&gateway, "/");
    assert_eq!(refused.status, 429);
    assert!(refused.number("retry-after") > 0 && refused.number("x-ratelimit-remaining") == 0);
    let problem = refused.problem();
    assert_eq!((&problem["reason"], &problem["violated-policies"]), (&json!("limit"), &json!(["daily"])));
    // Refusals are decided without a charge, and by the same counters as on other listeners.
    assert_eq!(gateway.remaining("all", "global"), 998);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.remaining("all", "global"), 997);
}

/// nginx passes only 401 and 403 of a refusal on.
#[test]
fn refusals_have_the_status_that_the_listener_gives_them() {
    // The SHA-256 of `k1`.
    let consumers =
        "- {name: acme, key: sha256:6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0}\n";
    let file = format!(
        "{}auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\nlimits: {{one: {{key: consumer, rate: 1/day}}}}\n\
         routes:\n- {{name: gone, match: {{path: /gone}}, respond: {{status: 451}}}}\n- {{name: items, match: {{path: /items}}, \
         respond: {{status: 200}}, limits: [one]}}\n",
        LISTEN.replace("serve: check", "serve: check, deny_status: 403")
    );
    let gateway = Setup::default().file("consumers.yaml", consumers).start(&file);
    let ask = |path: &str, key: &str| question(&gateway, &[("x-forwarded-uri", path), ("x-api-key", key)]);
    assert_eq!(ask("/items", "k1").status, 200);
    let refused = ask("/items", "k1");
    assert_eq!(refused.status, 403);
    assert!(refused.number("retry-after") > 0 && refused.json()["reason"] == "limit", "{refused:?}");
    assert_eq!(refused.json()["status"], 403);
    assert_eq!(ask("/gone", "k1").status, 403);
    let nowhere = ask("/nowhere", "k1");
    assert_eq!((nowhere.status, &nowhere.json()["status"]), (403, &json!(403)));
    let unknown = ask("/items", "k2");
    assert_eq!(unknown.status, 401, "it asks for credentials");
    assert!(unknown.header("www-authenticate").is_some());
    assert_eq!(question(&gateway, &[("x-forwarded-method", "")]).status, 400, "a mistake of the proxy");
}

#[test]
fn a_question_that_describes_no_request_is_refused() {
    let gateway = start("routes: [{name: all, respond: {status: 200}}]\n");
    let cases: [(&str, &[&str]); 3] = [
        ("x-forwarded-method", &["", "GE T", "GET,PUT"]),
        ("x-forwarded-uri", &["", "items", "*", "api.test:80", "http://api.test"]),
        ("x-forwarded-for", &["", "client", "192.0.2.1, unknown", "192.0.2.999"]),
    ];
    for (name, values) in cases {
        let written: Vec<_> = name.split('-').map(capitalized).collect();
        let what = match name {
            "x-forwarded-for" => "the header of the client address".to_owned(),
            _ => written.join("-"),
        };
        let assert_refused = |headers: &[(&str, &str)]| {
            let answer = Client::connect(gateway.edge2).ask("GET", "/", headers);
            assert_eq!(answer.status, 400, "{headers:?}");
            let problem = answer.problem();
            assert_eq!(problem["reason"], "malformed");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.starts_with(&what), "{headers:?}: {detail}");
        };
        for value in values {
            assert_refused(&described(&[(name, value)]));
        }
        assert_refused(&described(&[]).into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>());
        if name != "x-forwarded-for" {
            assert_refused(&[&described(&[])[..], &[(name, values[0])]].concat()); // twice
        }
    }
    let host = "x-forwarded-host";
    for headers in [&[(host, "api.test"), (host, "other.test")][..], &[(host, "")]] {
        let answer = question(&gateway, headers);
        assert_eq!(answer.status, 400);
        assert!(answer.problem()["detail"].as_str().unwrap().starts_with("X-Forwarded-Host "), "{answer:?}");
    }
    // The proxy may name the client, so there is nothing to say about trusted proxies.
    assert!(!gateway.log().contains("trusted_proxies"));
    assert_eq!(question(&gateway, &[("x-forwarded-host", "a b")]).status, 400);
}

fn capitalized(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// Otherwise any client could use up the limits of another, or escape its own.
#[test]
fn only_callers_may_ask() {
    let file = format!(
        "{}client_ip: {{trusted_proxies: [127.0.0.0/8]}}\nlimits: {{one: {{key: ip, rate: 1/day}}}}\nroutes: [{{name: all, respond: \
         {{status: 200}}, limits: [one]}}]\n",
        LISTEN.replace("callers: [127.0.0.1]", "callers: [10.0.0.0/8, '::1']")
    );
    let gateway = Gateway::start(&file);
    for headers in [&[][..], &[("forwarded", "for=10.0.0.1"), ("x-real-ip", "10.0.0.1")]] {
        let answer = question(&gateway, headers);
        assert_eq!((answer.status, &answer.problem()["reason"]), (403, &json!("list")));
    }
    assert_eq!(question(&gateway, &[("x-forwarded-for", "10.0.0.1")]).status, 403);
    assert_eq!(gateway.get("/").status, 200);
    gateway.reload(&file.replace("[10.0.0.0/8, '::1']", "[10.0.0.0/8, 127.0.0.0/8]"));
    assert_eq!([question(&gateway, &[]).status, question(&gateway, &[]).status], [200, 429]);
}

/// A service on another listener is not asked through this one, whatever path the question has.
#[test]
fn nothing_is_forwarded() {
    let upstream = Upstream::answering("ok");
    let file = format!(
        "{LISTEN}upstreams: {{api: {{servers: ['http://{{upstream}}']}}}}\nroutes: [{{name: api, upstream: api}}]\n"
    );
    let gateway = Gateway::before(&upstream, &file);
    let mut client = Client::connect(gateway.edge2);
    for (method, target) in [("GET", "/items"), ("CONNECT", "/"), ("OPTIONS", "*")] {
        let answer = client.ask(method, target, &described(&[]));
        assert!(answer.status < 500, "{method}: {answer:?}");
        if answer.status != 200 {
            client = Client::connect(gateway.edge2);
        }
    }
    assert_eq!(about(&gateway, "/items").text(), "");
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!((gateway.get("/items").status, upstream.seen().len()), (200, 1));
}

#[test]
fn answers_of_routes_are_decisions() {
    let gateway = start(
        "routes:\n- {name: gone, match: {path: /gone}, respond: {status: 451, body: no}}\n- {name: old, match: {path: /old/*}, \
         redirect: {to: '{scheme}://{host}/new/{rest}?{query}'}}\n- {name: own, match: {host: own.test, path: /own}, respond: \
         {status: 204}}\n",
    );
    assert_eq!(about(&gateway, "/gone").status, 451);
    let nowhere = about(&gateway, "/nowhere");
    assert_eq!((nowhere.status, &nowhere.problem()["reason"]), (404, &json!("no_route")));
    let moved = [("x-forwarded-uri", "/old/a?b=c"), ("x-forwarded-host", "shop.test:8443")];
    let location = |proto: &str| {
        let answer = question(&gateway, &[&moved[..], &[("x-forwarded-proto", proto)]].concat());
        assert_eq!(answer.status / 100, 3);
        answer.header("location").unwrap().to_owned()
    };
    assert_eq!(location("https"), "https://shop.test/new/a?b=c");
    assert_eq!(location("http"), "http://shop.test/new/a?b=c");
    assert_eq!(about(&gateway, "/own").status, 404);
    assert_eq!(
        question(&gateway, &[("x-forwarded-uri", "/own"), ("x-forwarded-host", "own.test")]).status,
        204
    );
}

/// A proxy asks with any method, some with a body.
#[test]
fn a_question_may_have_any_form() {
    let gateway = start(
        "limits: {one: {key: ip, rate: 3/day}}\nroutes: [{name: all, match: {methods: [GET]}, respond: {status: 200, body: \
         hello}, limits: [one]}]\n",
    );
    let mut client = Client::connect(gateway.edge2);
    let headers = described(&[]);
    let head = client.ask("HEAD", "/any", &headers);
    assert_eq!((head.status, head.number("x-ratelimit-remaining")), (200, 2));
    assert_eq!(client.post("/any", &headers, &[b'x'; 100_000]).number("x-ratelimit-remaining"), 1);
    let chunked = [&headers[..], &[("transfer-encoding", "chunked")]].concat();
    client.request("PUT", "/any", &chunked).send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.response().number("x-ratelimit-remaining"), 0);
    let refused = client.ask("HEAD", "/any", &headers);
    assert_eq!((refused.status, refused.body.len()), (429, 0));
    // A URL in place of a path, as some proxies send it; its host is not that of the request.
    let url = question(&gateway, &[("x-forwarded-uri", "https://elsewhere.test/items?x=1")]);
    assert_eq!(url.status, 429);
    assert_eq!(question(&gateway, &[("x-forwarded-method", "PUT")]).status, 404);
}

/// The proxy reads the status, so a refused call of gRPC has one.
#[test]
fn a_call_of_grpc_is_refused_with_a_status_of_http() {
    let gateway = start(
        "lists: {everybody: [0.0.0.0/0]}\nlimits: {one: {key: ip, rate: 1/day}}\nroutes:\n- {name: closed, match: {path: /closed/*}, deny: [everybody], respond: \
         {status: 200}}\n- {name: api, match: {path: /api/*}, respond: {status: 200}, limits: [one]}\n",
    );
    let call =
        |path: &str| question(&gateway, &[("x-forwarded-uri", path), ("content-type", "application/grpc")]);
    assert_eq!(call("/api/Method").status, 200);
    let refused = call("/api/Method");
    assert_eq!(refused.status, 429);
    assert!(refused.head.headers.iter().all(|(name, _)| !name.starts_with("grpc-")), "{refused:?}");
    assert!(refused.number("retry-after") > 0);
    assert_eq!(call("/closed/Method").status, 403);
}

/// Messages of the queue belong to those who can send requests, not to those who ask about them.
#[test]
fn the_queue_is_not_read_through_a_question() {
    let upstream = Upstream::answering("ok");
    let file = format!(
        "{LISTEN}limits: {{later: {{key: global, rate: 1/h, burst: 1, accept: 202, queue: {{file: queue.db}}}}}}\nupstreams: {{api: \
         {{servers: ['http://{{upstream}}']}}}}\nroutes:\n- {{name: later, match: {{path: /later, listener: edge}}, upstream: api, \
         limits: [later]}}\n- {{name: all, match: {{listener: check}}, respond: {{status: 200}}}}\n"
    );
    let gateway = Setup::default().upstream(&upstream).handover().start(&file);
    let post = || gateway.client().post("/later", &[], b"x");
    assert_eq!(post().status, 200);
    let later = post();
    assert_eq!(later.status, 202);
    let location = later.header("location").unwrap();
    assert!(location.starts_with("/.well-known/queue/"), "{location}");
    assert!(gateway.get(location).json()["state"].is_string());
    let answer = about(&gateway, location);
    assert_eq!((answer.status, answer.text()), (200, String::new()), "the answer of the route");
}

/// A path means the same to both: the route table, the normal form and loose matches are the same.
#[test]
fn no_spelling_of_a_path_evades_its_limits() {
    let upstream = Upstream::answering("ok");
    let file = |login: &str, all: &str| {
        format!(
            "{LISTEN}limits: {{logins: {{key: ip, rate: 1000/day}}, rest: {{key: ip, rate: 2000/day}}}}\nupstreams:\n  api: {{servers: \
             ['http://{{upstream}}']}}\n  other: {{servers: ['http://127.0.0.1:1']}}\nroutes:\n- {{name: login, match: {{path: \
             /login}}, {login}, limits: [logins]}}\n- {{name: all, {all}, limits: [rest]}}\n"
        )
    };
    // The proxy forwards to the same API whatever the routes say, so these decide alike.
    let others = [
        ("respond: {status: 200}", "respond: {status: 204}"),
        ("upstream: api", "respond: {status: 200}"),
        ("upstream: other", "upstream: api"),
        ("respond: {status: 403}", "upstream: api"),
    ];
    let others = others.map(|(login, all)| Gateway::before(&upstream, &file(login, all)));
    let gateway = Gateway::before(&upstream, &file("upstream: api", "upstream: api"));
    let of_login = [
        "/login",
        "/a/../login",
        "/a/%2e%2e/login",
        "/./login",
        "//login",
        "/%6Cogin",
        "/l%6fgin?x=1",
        "/..//login",
        "/LOGIN",
        "/login/",
        "/login;x=1",
        "/login.json",
        "/%256cogin",
    ];
    for path in of_login.into_iter().chain([
        "/other",
        "/a%2flogin",
        "/login%00",
        "/%zz",
        "/x\\..\\login",
        "/a/..;/login",
    ]) {
        let direct = gateway.get(path);
        let asked = about(&gateway, path);
        let policy = |answer: &Response| answer.header("ratelimit-policy").map(str::to_owned);
        assert_eq!((asked.status, policy(&asked)), (direct.status, policy(&direct)), "{path}");
        let is_counted =
            |answer: &Response| answer.header("ratelimit").is_some_and(|limit| limit.contains("logins"));
        for answer in others.iter().map(|other| about(other, path)).chain([asked]) {
            assert_eq!(is_counted(&answer), of_login.contains(&path), "{path}: {answer:?}");
        }
    }
}

#[test]
fn gateways_with_a_store_count_together() {
    let redis = RedisServer::start();
    let file = format!(
        "listen: [{{address: '{{edge}}', serve: check, callers: [127.0.0.1]}}]\n{}\nlimits: {{l: {{key: ip, rate: 300/day}}}}\n\
         routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n",
        redis.store()
    );
    let fleet = Fleet::start(2, &file);
    let mut load = Load::on(&fleet, 40);
    for (name, value) in described(&[]) {
        load = load.header(name, value);
    }
    assert_eq!(admitted(&load.send(1000)), 300);
    assert_eq!(fleet.decisions("l", "refused"), 700.0);
}

#[test]
fn operators_see_the_described_request() {
    let gateway = Setup::default().workers(1).start(&format!(
        "access_log: {{path: access.log, fields: [client_ip, peer, listener, method, path, host, route, status, reason, limit]}}\n{LISTEN}limits: {{one: {{key: ip, rate: 1/day}}}}\nroutes: [{{name: items, \
         match: {{path: /items/*}}, respond: {{status: 200}}, limits: [one]}}]\n"
    ));
    let request =
        [("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/items/7"), ("x-request-id", "abc-123")];
    assert_eq!([(); 2].map(|()| question(&gateway, &request).status), [200, 429]);
    let lines = until("the lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).ok()?;
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 2).then_some(lines)
    });
    for (line, status) in lines.iter().zip([200, 429]) {
        for (field, value) in [
            ("client_ip", json!(CLIENT)),
            ("peer", json!("127.0.0.1")),
            ("listener", json!("check")),
            ("method", json!("PUT")),
            ("path", json!("/items/7")),
            ("host", json!("api.test")),
            ("route", json!("items")),
            ("status", json!(status)),
        ] {
            assert_eq!(line[field], value, "{field} in {line}");
        }
    }
    assert_eq!((&lines[1]["reason"], &lines[1]["limit"]), (&json!("limit"), &json!("one")));
    for (code, count) in [("200", 1.0), ("429", 1.0)] {
        assert_eq!(gateway.metric("sluicegate_requests_total", &[("route", "items"), ("code", code)]), count);
    }
    assert_eq!(gateway.metric("sluicegate_refusals_total", &[("route", "items"), ("reason", "limit")]), 1.0);
    let explained = format!("/explain?method=PUT&url=http://api.test/items/7&from={CLIENT}");
    let explained = gateway.admin_get(&explained).json();
    assert_eq!((&explained["outcome"], &explained["limit"]), (&json!("refused"), &json!("one")));
}

/// Envoy sends the request itself, with its method and path.
#[test]
fn external_authorization_over_http_is_the_request_itself() {
    let file = format!(
        "{}limits: {{one: {{key: [ip, method, path, host], rate: 1/day}}}}\nroutes:\n- {{name: gone, match: {{path: /gone}}, respond: \
         {{status: 451}}}}\n- {{name: all, match: {{path: /*, methods: [GET, POST]}}, respond: {{status: 200}}, limits: [one]}}\n",
        LISTEN.replace("serve: check", "serve: ext_authz_http")
    );
    let gateway = Gateway::start(&file);
    let mut client = Client::connect(gateway.edge2);
    let from = [("x-forwarded-for", CLIENT), ("x-forwarded-uri", "/other"), ("x-forwarded-method", "PUT")];
    let mut ask = |method: &str, path: &str| client.ask(method, path, &from);
    let admitted = ask("GET", "/items?x=1");
    assert_eq!((admitted.status, admitted.number("x-ratelimit-limit")), (200, 1));
    let refused = ask("GET", "/items?x=2");
    assert_eq!((refused.status, &refused.problem()["violated-policies"]), (429, &json!(["one"])));
    assert!(refused.number("retry-after") > 0);
    assert_eq!(ask("GET", "/a/../items").status, 429);
    assert_eq!(
        [ask("GET", "/others").status, ask("HEAD", "/gone").status, ask("PUT", "/items").status],
        [200, 451, 404]
    );
    let headers = [("x-forwarded-for", CLIENT)];
    assert_eq!([(); 2].map(|()| client.post("/items", &headers, b"body").status), [200, 429]);
    let unnamed = client.ask("GET", "/items", &[]);
    assert_eq!((unnamed.status, &unnamed.problem()["reason"]), (400, &json!("malformed")));
}
