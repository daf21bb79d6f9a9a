//! The key of a rule may be written in any form: it is stored in the one in which requests have it, or refused if no request can have it.
//! A rule that is accepted applies.

use serde_json::json;

use crate::harness::{Client, Gateway, Setup};

const FILE: &str = "rules: {file: rules.db}
client_ip: {trusted_proxies: [127.0.0.1/32]}
auth: {api_key: {header: x-api-key}}
limits:
  ip: {key: ip, rate: 5/366d}
  ip64: {key: ip/64, rate: 5/366d}
  ip24: {key: ip/24, rate: 5/366d}
  api_key: {key: api_key, rate: 5/366d}
  either: {key: api_key | ip, rate: 5/366d}
  global: {key: global, rate: 5/366d}
  host: {key: host, rate: 5/366d}
  method: {key: method, rate: 5/366d}
  path: {key: path, rate: 5/366d}
  exact: {key: path, rate: 5/366d}
  param: {key: 'path:id', rate: 5/366d}
  route: {key: route, rate: 5/366d}
  header: {key: 'header:X-Tenant', rate: 5/366d}
  query: {key: 'query:q', rate: 5/366d}
  cookie: {key: 'cookie:sid', rate: 5/366d}
  both: {key: [ip, path], rate: 5/366d}
routes:
  - {name: exact, match: {path: /exact/*, spelling: exact}, respond: {status: 200}, limits: [exact]}
  - {name: param, match: {path: '/param/{id}'}, respond: {status: 200}, limits: [param]}
";

/// The limits that have a route `/LIMIT/*` each.
const LIMITS: [&str; 14] = [
    "ip", "ip64", "ip24", "api_key", "either", "global", "host", "method", "path", "route", "header",
    "query", "cookie", "both",
];

/// What is sent besides the target: a method, the address of the client, and a header.
type Sent = (&'static str, &'static str, &'static str, (&'static str, &'static str));

const fn at(client: &'static str, target: &'static str) -> Sent {
    ("GET", client, target, ("x-none", "none"))
}

const fn with(target: &'static str, header: (&'static str, &'static str)) -> Sent {
    ("GET", "10.0.0.9", target, header)
}

/// A limit, the key as it is written, as it is stored (`None` if it is refused), and a request with that key.
const CASES: [(&str, &str, Option<&str>, Sent); 62] = [
    ("ip", "10.1.2.3", Some("10.1.2.3"), at("10.1.2.3", "/ip/")),
    ("ip", "ip:10.1.2.3", Some("ip:10.1.2.3"), at("10.1.2.3", "/ip/")),
    ("ip", "::ffff:10.1.2.3", Some("10.1.2.3"), at("10.1.2.3", "/ip/")),
    ("ip", "2001:db8::1", Some("2001:db8::"), at("2001:db8::77", "/ip/")),
    ("ip", "ip:2001:DB8:0::1", Some("ip:2001:db8::"), at("2001:db8::77", "/ip/")),
    ("ip", "10.1.0.0/16", Some("10.1.0.0/16"), at("10.1.2.3", "/ip/")),
    ("ip", "2001:db8::/48", Some("2001:db8::/48"), at("2001:db8:0:5::1", "/ip/")),
    ("ip", "2001:db8::/96", None, at("2001:db8::1", "/ip/")),
    ("ip", "10.1.*", Some("10.1.*"), at("10.1.2.3", "/ip/")),
    ("ip", "acme", None, at("10.1.2.3", "/ip/")),
    ("ip", "10.1.2.3:80", None, at("10.1.2.3", "/ip/")),
    ("ip64", "2001:db8::1", Some("2001:db8::"), at("2001:db8::2", "/ip64/")),
    ("ip24", "10.1.2.3", Some("10.1.2.0"), at("10.1.2.200", "/ip24/")),
    ("ip24", "10.1.2.0/24", Some("10.1.2.0/24"), at("10.1.2.200", "/ip24/")),
    ("ip24", "10.1.2.0/25", None, at("10.1.2.1", "/ip24/")),
    ("api_key", "k1", Some("k1"), with("/api_key/", ("x-api-key", "k1"))),
    ("api_key", "api_key:k1", Some("api_key:k1"), with("/api_key/", ("x-api-key", "k1"))),
    ("api_key", "k*", Some("k*"), with("/api_key/", ("x-api-key", "k1"))),
    ("api_key", "10.1.2.3", Some("10.1.2.3"), with("/api_key/", ("x-api-key", "10.1.2.3"))),
    ("either", "2001:db8::1", Some("2001:db8::"), at("2001:db8::3", "/either/")),
    ("either", "k1", Some("k1"), with("/either/", ("x-api-key", "k1"))),
    ("either", "ip:acme", None, at("10.1.2.3", "/either/")),
    ("global", "global", Some("global:"), at("10.1.2.3", "/global/")),
    ("global", "global:", Some("global:"), at("10.1.2.3", "/global/")),
    ("global", "acme", None, at("10.1.2.3", "/global/")),
    ("global", "global:acme", None, at("10.1.2.3", "/global/")),
    ("host", "Api.Example.com", Some("api.example.com"), with("/host/", ("host", "api.example.com"))),
    (
        "host",
        "host:API.example.com:8080",
        Some("host:api.example.com"),
        with("/host/", ("host", "api.example.com")),
    ),
    ("host", "*.Example.com", Some("*.example.com"), with("/host/", ("host", "api.example.com"))),
    ("host", "http://api.example.com", None, with("/host/", ("host", "api.example.com"))),
    ("method", "get", Some("GET"), at("10.1.2.3", "/method/")),
    ("method", "method:get", Some("method:GET"), at("10.1.2.3", "/method/")),
    ("method", "p*", Some("P*"), ("POST", "10.1.2.3", "/method/", ("content-length", "0"))),
    ("path", "/path/A", Some("/path/a"), at("10.1.2.3", "/path/A")),
    ("path", "/path/./b/../%61", Some("/path/a"), at("10.1.2.3", "/path/a")),
    ("path", "path:/path/A/", Some("path:/path/a"), at("10.1.2.3", "/path/a")),
    ("path", "/path/A*", Some("/path/a*"), at("10.1.2.3", "/path/Abc")),
    ("path", "path/a", None, at("10.1.2.3", "/path/a")),
    ("path", "a*", None, at("10.1.2.3", "/path/a")),
    ("path", "/path/%00", None, at("10.1.2.3", "/path/a")),
    ("exact", "/exact/A", Some("/exact/A"), at("10.1.2.3", "/exact/A")),
    ("exact", "/exact/./A", Some("/exact/A"), at("10.1.2.3", "/exact/A")),
    ("exact", "/exact/A*", Some("/exact/A*"), at("10.1.2.3", "/exact/Abc")),
    ("param", "ABC", Some("abc"), at("10.1.2.3", "/param/ABC")),
    ("param", "path:id:abc", Some("id:abc"), at("10.1.2.3", "/param/abc")),
    ("param", "id:abc", Some("id:abc"), at("10.1.2.3", "/param/abc")),
    ("route", "route", Some("route"), at("10.1.2.3", "/route/")),
    ("header", "acme", Some("acme"), with("/header/", ("x-tenant", "acme"))),
    ("header", "header:X-Tenant:acme", Some("x-tenant:acme"), with("/header/", ("x-tenant", "acme"))),
    ("header", "X-Tenant:acme", Some("x-tenant:acme"), with("/header/", ("x-tenant", "acme"))),
    ("header", "ac*", Some("ac*"), with("/header/", ("x-tenant", "acme"))),
    ("query", "query:q:x y", Some("q:x y"), at("10.1.2.3", "/query/?q=x%20y")),
    ("query", "x y", Some("x y"), at("10.1.2.3", "/query/?q=x+y")),
    ("cookie", "cookie:sid:7", Some("sid:7"), with("/cookie/", ("cookie", "sid=7"))),
    ("cookie", "7", Some("7"), with("/cookie/", ("cookie", "sid=7"))),
    ("both", "2001:db8::1,/both/A", Some("2001:db8::,/both/a"), at("2001:db8::9", "/both/a")),
    ("both", "ip:10.1.2.3,path:/both/b", Some("ip:10.1.2.3,path:/both/b"), at("10.1.2.3", "/both/b")),
    ("both", "10.1.0.0/16,*", Some("10.1.0.0/16,*"), at("10.1.2.3", "/both/b")),
    ("both", "*,/both/c*", Some("*,/both/c*"), at("10.1.2.3", "/both/cc")),
    ("both", "a*", None, at("10.1.2.3", "/both/b")),
    ("both", "10.1.2.3", None, at("10.1.2.3", "/both/b")),
    ("both", "acme,/both/b", None, at("10.1.2.3", "/both/b")),
];

#[test]
fn a_rule_that_is_accepted_applies() {
    let routes: String = LIMITS
        .iter()
        .map(|name| {
            format!("  - {{name: {name}, match: {{path: /{name}/*}}, respond: {{status: 200}}, limits: [{name}]}}\n")
        })
        .collect();
    let gateway: Gateway = Setup::default().start(&(FILE.to_owned() + &routes));
    for (limit, written, stored, (method, client, target, (name, value))) in CASES {
        let rule = json!({ "limit": limit, "key": written, "rate": "70/366d" }).to_string();
        let answer = gateway.admin_put("/rules/r", &rule);
        let Some(stored) = stored else {
            assert_eq!(answer.status, 422, "{limit}: {written} is accepted: {}", answer.text());
            assert!(answer.text().contains(written), "{}", answer.text());
            continue;
        };
        assert!(matches!(answer.status, 200 | 201), "{limit}: {written}: {}", answer.text());
        assert_eq!(answer.json()["key"], stored, "{limit}: {written}");
        let mut asked = Client::connect(gateway.edge);
        let mut headers = vec![("x-forwarded-for", client), (name, value)];
        if name != "host" {
            headers.push(("host", "a.test"));
        }
        asked.request(method, target, &headers);
        let answer = asked.response();
        assert_eq!(answer.status, 200, "{limit}: {written}");
        assert_eq!(answer.number("x-ratelimit-limit"), 70, "{limit}: {written} does not apply to {target}");
        assert_eq!(gateway.admin_change("DELETE", "/rules/r").status, 204);
    }
}

/// Changes that could be read in two ways are refused.
#[test]
fn doubtful_changes_are_refused() {
    let gateway = Gateway::start(
        "rules: {file: rules.db}\nlimits: {l: {key: api_key, rate: 5/day}, off: {key: api_key, rate: 5/day, mode: 'off'}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l, off]}]\n",
    );
    let rule = |limit: &str, more: &str| {
        format!("{{\"limit\": \"{limit}\", \"key\": \"k\", \"rate\": \"7/day\"{more}}}")
    };
    let put = |query: &str, body: &str| gateway.admin_put(&format!("/rules/r{query}"), body);
    for query in ["?dry_run=1", "?dry_run=true", "?dry_run="] {
        assert_eq!(put(query, &rule("l", "")).status, 200, "{query}");
        assert_eq!(gateway.admin_get("/rules/r").status, 404, "{query}");
    }
    assert_eq!(put("?dry_run=yes", &rule("l", "")).status, 400);
    assert_eq!(put("?dry_run=false", &rule("l", "")).status, 201);
    assert_eq!(put("?dry_run=0", &rule("l", "")).status, 200);
    assert_eq!(put("", &rule("off", ", \"mode\": \"enforce\"")).status, 422);
    assert_eq!(put("", &rule("off", "")).status, 200, "for when it is on again");
    let batch = |line: &str| gateway.admin_post("/rules:batch", line);
    let line = |more: &str| {
        format!("{{\"id\": \"r\", \"limit\": \"l\", \"key\": \"k\", \"rate\": \"7/day\"{more}}}\n")
    };
    for more in [", \"if_match\": 1.5", ", \"key\": \"other\"", ", \"if_match\": 1, \"if_match\": 2"] {
        let answer = batch(&line(more));
        assert_eq!(answer.status, 422, "{more}: {}", answer.text());
    }
    assert_eq!(batch("{\"delete\": \"a\", \"delete\": \"r\"}\n").status, 422);
    assert!(batch(&line("")).text().contains("\"changed\":true"));
    assert!(batch(&line("")).text().contains("\"changed\":false"));
    let listed = gateway.admin_get("/rules").json();
    assert_eq!(listed["versions"].as_array().map(Vec::len), Some(1));
    let etag = gateway.admin_get("/rules/r").header("etag").unwrap().to_owned();
    assert_eq!(format!("\"{}\"", listed["versions"][0]), etag);
}

/// Clients that wait for changes, without a token, leave room for everybody else.
#[test]
fn waiting_for_changes_takes_not_all_connections() {
    let gateway = Gateway::start(
        "rules: {file: rules.db}\nlimits: {l: {key: api_key, rate: 5/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let rule = r#"{"limit": "l", "key": "k", "rate": "7/day"}"#;
    assert_eq!(gateway.admin_put("/rules/r", rule).status, 201);
    let version = gateway.admin_get("/rules:changes").header("rules-version").unwrap().to_owned();
    let target = format!("/rules:changes?since={version}&wait=25");
    let waiting: Vec<Client> = (0..1_100)
        .map(|_| {
            let mut client = Client::connect(gateway.admin);
            client.request("GET", &target, &[("host", "localhost")]);
            client
        })
        .collect();
    // An open connection whose request was not read yet makes room for another one.
    crate::harness::sleep(std::time::Duration::from_secs(1));
    let answers = (0..5).map(|_| {
        let mut client = Client::connect(gateway.admin);
        client.request("GET", "/healthz", &[("host", "localhost")]);
        client.reader.response("GET").map(|answer| answer.status)
    });
    assert!(answers.into_iter().all(|answer| answer.is_ok_and(|status| status == 200)));
    drop(waiting);
}
