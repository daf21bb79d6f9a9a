//! The admin API: what operators can read and change, who is allowed to, and that it is never served on an address
//! for clients.

use crate::harness::{Client, Gateway, Response, Setup, TOKEN, patience};

const FILE: &str = "limits:\n  per-key: {key: api_key, rate: 2/day}\n  pair: {key: [ip, api_key | ip], rate: 5/day}\n  \
                    parallel: {key: ip, algorithm: concurrency, max: 8}\n\
                    upstreams: {api: {servers: [{url: \"http://127.0.0.1:9\", weight: 3}]}}\nroutes:\n  \
                    - {name: unused, match: {path: /up}, upstream: api}\n  \
                    - {name: all, respond: {status: 200}, limits: [per-key, pair, parallel]}\n";

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];

#[track_caller]
fn is_problem(answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json()["status"], status);
}

/// Health is about the process, readiness about serving, and both are for machines.
#[test]
fn health_and_readiness_can_be_asked_for() {
    let gateway = Gateway::start(FILE);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gateway.admin_get(path).status, 200, "{path}");
        let head = gateway.admin("HEAD", path, &[]);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
}

/// A body that does not arrive is given up, with an answer, before it holds a connection for ever.
#[test]
fn a_body_that_stalls_is_answered() {
    let gateway = Gateway::start(&format!("rules: {{file: rules.db}}\n{FILE}"));
    let (address, bearer) = (gateway.admin.to_string(), format!("Bearer {TOKEN}"));
    let headers = [("host", address.as_str()), ("authorization", bearer.as_str()), ("content-length", "20")];
    for (method, path) in [("PUT", "/upstreams/api/servers/127.0.0.1:9/state"), ("PUT", "/rules/r-1")] {
        let mut client = Client::connect(gateway.admin);
        client.reader.stream.set_read_timeout(Some(patience(30))).unwrap();
        client.request(method, path, &headers).send(r#"{"st"#);
        is_problem(&client.response(), 408);
    }
}

/// /status tells the version, since when it runs, and which configuration is in force.
#[test]
fn status_shows_the_configuration_in_force() {
    let gateway = Gateway::start(FILE);
    let status = gateway.admin_get("/status").json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["generation"], 1);
    assert!(
        status["uptime_seconds"].as_f64().is_some_and(|uptime| (0.0..60.0).contains(&uptime)),
        "{status}"
    );
    let loaded: jiff::Timestamp = status["loaded_at"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().as_second() - loaded.as_second();
    assert!((0..60).contains(&age), "{status}");
    assert!(status["last_reload_error"].is_null() && status["draining"] == false, "{status}");
}

/// /config is the configuration in force without its secrets, wherever they were written.
#[test]
fn config_is_shown_without_secrets() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "from-a-file\n").unwrap();
    let path = secret.path().display();
    for token in ["in-the-clear".to_owned(), "\"${GATEWAY_TOKEN}\"".to_owned(), format!("{{file: {path}}}")] {
        let file = format!("admin: {{address: \"{{admin}}\", token: {token}}}\n{FILE}");
        let gateway = Setup::default().env("GATEWAY_TOKEN", "from-the-environment").start(&file);
        let answer = gateway.admin_get("/config");
        for word in ["in-the-clear", "from-the-environment", "from-a-file"] {
            assert!(!answer.text().contains(word), "{word} is shown");
        }
        let config = answer.json();
        for word in ["per-key", "pair", "parallel", "127.0.0.1:9", "unused", "edge"] {
            assert!(answer.text().contains(word), "{word} is missing in {config:#}");
        }
        let right = if token.contains("file:") { "from-a-file" } else { "x" };
        let status =
            gateway.admin("POST", "/reload", &[("authorization", &format!("Bearer {right}"))]).status;
        assert_eq!(status, if right == "x" { 401 } else { 200 });
    }
}

/// /limits lists all limits with their quotas, modes and live keys.
#[test]
fn limits_are_listed() {
    let gateway = Gateway::start(FILE);
    gateway.ask("GET", "/", &KEY);
    gateway.ask("GET", "/", &[("x-api-key", "other")]);
    let limits = gateway.admin_get("/limits").json();
    let all = limits.as_array().unwrap();
    assert_eq!(all.len(), 3);
    let one = |name: &str| all.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!((&one("per-key")["algorithm"], &one("per-key")["keys"]), (&"token_bucket".into(), &2.into()));
    assert_eq!(one("per-key")["entries"], 2);
    assert_eq!(
        (&one("parallel")["algorithm"], &one("parallel")["capacity"]),
        (&"concurrency".into(), &8.into())
    );
    assert_eq!(one("pair")["mode"], "enforce");
}

/// The state of a key can be read, and reading it spends nothing.
#[test]
fn the_state_of_a_key_can_be_read() {
    let gateway = Gateway::start(FILE);
    for _ in 0..5 {
        let unknown = gateway.admin_get("/limits/per-key/keys/k").json();
        assert_eq!((&unknown["known"], &unknown["remaining"]), (&false.into(), &2.into()));
    }
    gateway.ask("GET", "/", &KEY);
    let state = gateway.admin_get("/limits/per-key/keys/k").json();
    assert_eq!(
        (&state["known"], &state["remaining"], &state["capacity"]),
        (&true.into(), &1.into(), &2.into())
    );
    let reset = state["reset"].as_f64().unwrap();
    assert!((43_000.0..=43_200.0).contains(&reset), "{state}");
    assert_eq!(gateway.remaining("pair", "127.0.0.1,k"), 4, "a composite key is its values joined by commas");
    assert_eq!(gateway.remaining("pair", "127.0.0.1,127.0.0.1"), 5);
    let odd = [("x-api-key", "a/b c%"), ("x-api-key-2", "")];
    gateway.ask("GET", "/", &odd);
    assert_eq!(gateway.remaining("per-key", "a%2Fb%20c%25"), 1, "any key can be written in a path");
}

/// Pardoning a key gives it its whole allowance back, and nobody else.
#[test]
fn a_key_can_be_pardoned() {
    let gateway = Gateway::start(FILE);
    let other = [("x-api-key", "other")];
    assert_eq!(gateway.statuses(3, "/", &KEY), [200, 200, 429]);
    assert_eq!(gateway.statuses(3, "/", &other), [200, 200, 429]);
    assert_eq!(gateway.admin_change("DELETE", "/limits/per-key/keys/k").status, 200);
    assert_eq!(gateway.remaining("per-key", "k"), 2);
    assert_eq!(gateway.ask("GET", "/", &KEY).status, 200);
    assert_eq!(gateway.ask("GET", "/", &other).status, 429);
    assert_eq!(
        gateway.admin_change("DELETE", "/limits/per-key/keys/never-seen").status,
        200,
        "there is nothing to do"
    );
}

/// Requests in flight are no debt that could be pardoned: a pardon does not let more in than the limit says.
#[test]
fn a_pardon_does_not_free_what_is_in_flight() {
    let (upstream, gate) = crate::harness::gated_upstream();
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: global, algorithm: concurrency, max: 2}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, upstream: api, limits: [l]}]\n",
    );
    let mut slow: Vec<Client> = (0..2).map(|_| gateway.client()).collect();
    slow.iter_mut().for_each(|client| _ = client.request("GET", "/slow", &[]));
    upstream.wait_for(2);
    assert_eq!(gateway.admin_change("DELETE", "/limits/l/keys/any").status, 200);
    assert_eq!(gateway.get("/").status, 429);
    gate.open();
    slow.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    crate::harness::until("all places are free", || (gateway.remaining("l", "any") == 2).then_some(()));
}

/// Without a token in the file nothing can be changed: 403. With one, only who has it may: 401.
#[test]
fn changes_need_the_token() {
    let changes = [("POST", "/reload"), ("DELETE", "/limits/per-key/keys/k")];
    for file in
        ["admin: {address: \"{admin}\"}\n", "admin: {address: \"{admin}\", token: \"${UNSET_TOKEN:-}\"}\n"]
    {
        let gateway = Gateway::start(&format!("{file}{FILE}"));
        for (method, path) in changes {
            for header in ["Bearer ", "Bearer x", "Bearer test-token"] {
                is_problem(&gateway.admin(method, path, &[("authorization", header)]), 403);
            }
            is_problem(&gateway.admin(method, path, &[]), 403);
        }
    }
    let gateway = Gateway::start(FILE);
    assert_eq!(gateway.statuses(2, "/", &KEY), [200, 200]);
    for (method, path) in changes {
        let right = format!("Bearer {TOKEN}");
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer wrong-size",
            "Bearer test-tokem",
            &right[..right.len() - 1],
            "Basic test-token",
            TOKEN,
        ] {
            let refused = gateway.admin(method, path, &[("authorization", header)]);
            is_problem(&refused, 401);
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"), "{header}");
        }
    }
    assert_eq!(
        (gateway.generation(), gateway.remaining("per-key", "k")),
        (1, 0),
        "none of them changed anything"
    );
}

/// The word Bearer has no case (RFC 9110 §11.1).
#[test]
fn the_scheme_of_the_token_has_no_case() {
    let gateway = Gateway::start(FILE);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let header = format!("{scheme} {TOKEN}");
        assert_eq!(gateway.admin("POST", "/reload", &[("authorization", &header)]).status, 200, "{scheme}");
    }
}

/// What is not there is 404, what cannot be done 405, a key that cannot be 400: all problems.
#[test]
fn errors_are_problems() {
    let gateway = Gateway::start(FILE);
    for path in
        ["/nothing", "/limits/unknown/keys/k", "/limits/per-key", "/limits/per-key/keys", "/metrics/x", "//"]
    {
        is_problem(&gateway.admin_get(path), 404);
    }
    let unban = gateway.admin_change("DELETE", "/limits/per-key/bans/k");
    is_problem(&unban, 404);
    assert!(unban.text().contains("DELETE /limits/{limit}/keys/{key}"), "{}", unban.text());
    for (method, path, allow) in [
        ("GET", "/reload", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
        ("DELETE", "/limits", "GET, HEAD"),
        ("PUT", "/limits/per-key/keys/k", "GET, HEAD, DELETE"),
    ] {
        let refused = gateway.admin(method, path, &[("authorization", &format!("Bearer {TOKEN}"))]);
        is_problem(&refused, 405);
        assert_eq!(refused.header("allow"), Some(allow), "{method} {path}");
    }
    for key in ["127.0.0.1", "a,b,c", "no-address,k"] {
        is_problem(&gateway.admin_get(&format!("/limits/pair/keys/{key}")), 400);
    }
    is_problem(&gateway.admin_change("DELETE", "/limits/unknown/keys/k"), 404);
}

/// People get a page.
#[test]
fn browsers_get_a_page() {
    let gateway = Gateway::start(FILE);
    let page = gateway.admin_get("/");
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    assert!(page.text().contains("Sluicegate"));
    assert!(page.text().contains("New rule"), "it has a form for rules");
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
}

/// Nothing of it is served to clients, and nothing of theirs to operators.
#[test]
fn clients_cannot_reach_it() {
    let gateway =
        Gateway::start(&FILE.replace("- {name: all, respond", "- {name: all, match: {path: /v1/*}, respond"));
    for path in ["/metrics", "/healthz", "/readyz", "/status", "/config", "/limits", "/reload", "/"] {
        assert_eq!(gateway.get(path).status, 404, "{path}");
    }
    assert_eq!(gateway.admin_get("/v1/x").status, 404);
}

/// A gateway without an `admin` section has no such address, and serves.
#[test]
fn it_can_be_disabled() {
    let gateway = Setup::default().without_admin().start("routes: [{name: all, respond: {status: 200}}]\n");
    assert_eq!(gateway.get("/").status, 200);
    crate::harness::client::refuses(gateway.admin);
}

/// Another site's name that leads here gets nothing (DNS rebinding); names that are listed do, from the reload on.
#[test]
fn it_answers_under_its_own_names_only() {
    let gateway = Gateway::start(FILE);
    let ask = |host: &str| {
        let mut client = Client::connect(gateway.admin);
        client.send(format!("GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        client.response()
    };
    for host in ["localhost", "127.0.0.1:9090", "[::1]", &gateway.admin.to_string()] {
        assert_eq!(ask(host).status, 200, "{host}");
    }
    for host in ["evil.example", "gateway.internal:9090", "192.0.2.1", ""] {
        is_problem(&ask(host), 421);
    }
    let admin = "admin: {address: \"{admin}\", token: test-token, hosts: [gateway.internal, 192.0.2.1]}";
    gateway.reload(&format!("{admin}\n{FILE}"));
    assert_eq!((ask("gateway.internal:9090").status, ask("192.0.2.1").status), (200, 200));
    is_problem(&ask("evil.example"), 421);
}

/// Silent connections take descriptors from no client and no operator, and end.
#[test]
fn silent_connections_do_not_block_others() {
    let gateway = Setup::default().descriptors(300).start(FILE);
    let mut silent: Vec<Client> = (0..320).map(|_| Client::connect(gateway.admin)).collect();
    for turn in 0..20 {
        assert_eq!(gateway.admin_get("/readyz").status, 200, "{turn}");
    }
    let mut clients: Vec<Client> = (0..50).map(|_| gateway.client()).collect();
    for client in &mut clients {
        assert!([200, 429].contains(&client.get("/").status));
    }
    let last = silent.pop().unwrap();
    assert!(gateway.open_descriptors() < 200, "{}", gateway.open_descriptors());
    let mut last = last.writer();
    last.set_read_timeout(Some(std::time::Duration::from_secs(15))).unwrap();
    assert_eq!(std::io::Read::read(&mut last, &mut [0]).unwrap(), 0, "a head may take 10 s");
}
