//! Lists of addresses, in gateway.yaml and in watched files: whom routes admit and whom limits exempt; and CORS
//! preflight requests.

use crate::harness::{Fleet, Gateway, RedisServer, Response, Setup, Upstream, program, sleep, until};
use serde_json::{Value, json};

/// What the gateway is asked by a client with this address, behind a trusted proxy.
fn ask(gateway: &Gateway, target: &str, address: &str) -> Response {
    gateway.ask("GET", target, &[("x-forwarded-for", address)])
}

const PROXY: &str = "client_ip: {trusted_proxies: [127.0.0.1]}\n";

/// One route under a limit `l` of two a day by address, and the list `blocked`, which is a file.
const DENY: &str = "client_ip: {trusted_proxies: [127.0.0.1]}\nlists: {blocked: {file: blocked.txt}}\n\
                    limits: {l: {key: ip, rate: 2/day}}\n\
                    routes: [{name: all, respond: {status: 200}, limits: [l], deny: [blocked]}]\n";

fn lists(gateway: &Gateway) -> Value {
    gateway.admin_get("/status").json()["lists"].clone()
}

#[track_caller]
fn is_turned_away(answer: &Response) {
    assert_eq!((answer.status, answer.header("content-type")), (403, Some("application/problem+json")));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.problem();
    assert_eq!(body["status"], 403);
    assert!(answer.header("x-ratelimit-limit").is_none() && answer.header("ratelimit").is_none());
    assert!(!answer.text().contains("blocked") && !answer.text().contains("198.51"), "{}", answer.text());
}

/// Who is on a list of `deny` is answered 403 and costs no limit anything.
#[test]
fn denied_addresses_are_answered_403() {
    let list = "# the worst\n198.51.100.0/24\n\n2001:db8:bad::/48  # a whole site\n";
    let gateway = Setup::default().file("blocked.txt", list).start(DENY);
    for address in ["198.51.100.7", "::ffff:198.51.100.7", "[2001:db8:bad:1::1]:80"] {
        is_turned_away(&ask(&gateway, "/", address));
    }
    for address in ["198.51.101.7", "2001:db8:bae::1"] {
        assert_eq!([0; 3].map(|_| ask(&gateway, "/", address).status), [200, 200, 429]);
    }
    assert_eq!(gateway.remaining("l", "198.51.100.7"), 2);
    assert_eq!(gateway.metric("sluicegate_requests_total", &[("route", "all"), ("code", "403")]), 3.0);
    let call = [("content-type", "application/grpc"), ("x-forwarded-for", "198.51.100.7")];
    let call = gateway.ask("POST", "/s/M", &call);
    assert_eq!((call.status, call.header("grpc-status")), (200, Some("7")));

    // A client that is not believed is judged by its own address.
    let gateway = Setup::default().file("blocked.txt", "127.0.0.1").start(&DENY.replace(PROXY, ""));
    is_turned_away(&ask(&gateway, "/", "192.0.2.1"));
}

/// `deny` on top is for all routes, besides their own; `allow` of a route takes the place of that on top; who is on
/// both is not let in.
#[test]
fn global_lists_and_lists_of_routes() {
    let gateway = Gateway::start(&format!(
        "{PROXY}lists:\n  internal: [10.0.0.0/8]\n  office: [192.0.2.0/24, 2001:db8::1]\n  worst: [10.6.6.6]\n  \
         guests: [192.0.2.128/25]\n  all: [0.0.0.0/0, \"::/0\"]\ndeny: [worst]\nallow: internal\n\
         routes:\n  - {{match: {{path: /office}}, respond: {{status: 200}}, allow: [office], deny: guests}}\n  \
         - {{match: {{path: /either}}, respond: {{status: 200}}, allow: [office, internal]}}\n  \
         - {{match: {{path: /open}}, respond: {{status: 200}}, allow: [all]}}\n  - {{respond: {{status: 200}}}}\n"
    ));
    for (path, address, status) in [
        ("/", "10.1.1.1", 200),
        ("/", "10.6.6.6", 403),
        ("/", "192.0.2.1", 403),
        ("/office", "192.0.2.1", 200),
        ("/office", "2001:db8::1", 200),
        ("/office", "2001:db8::2", 403),
        ("/office", "192.0.2.200", 403),
        ("/office", "10.1.1.1", 403),
        ("/either", "10.1.1.1", 200),
        ("/either", "192.0.2.200", 200),
        ("/either", "10.6.6.6", 403),
        ("/open", "203.0.113.1", 200),
        ("/open", "2001:db9::1", 200),
        ("/open", "10.6.6.6", 403),
    ] {
        assert_eq!(ask(&gateway, path, address).status, status, "{path} from {address}");
    }
    let config = gateway.admin_get("/config").json();
    assert_eq!(config["routes"][0]["deny"], json!(["worst", "guests"]));
    assert_eq!(
        (&config["routes"][0]["allow"], &config["routes"][3]["allow"]),
        (&json!(["office"]), &json!(["internal"]))
    );
}

/// Whoever is denied learns nothing of keys: 403 comes before 401.
#[test]
fn denied_addresses_are_answered_before_authentication() {
    let zeros = "0".repeat(64);
    let setup = Setup::default()
        .file("blocked.txt", "198.51.100.7")
        .file("consumers.yaml", &format!("- {{name: a, key: sha256:{zeros}}}\n"));
    let gateway =
        setup.start(&format!("auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\n{DENY}"));
    is_turned_away(&ask(&gateway, "/", "198.51.100.7"));
    assert_eq!(ask(&gateway, "/", "198.51.100.8").status, 401);
}

/// A limit leaves alone who is on a list, and nobody else.
fn exempt(store: &str) {
    let setup = Setup::default().file("internal.txt", "10.0.0.0/8\n");
    let fleet = Fleet::of(
        vec![setup],
        &format!(
            "{PROXY}{store}lists: {{internal: {{file: internal.txt}}, office: [192.0.2.0/24]}}\n\
             limits: {{l: {{key: ip, rate: 1/day, exempt: [\"list:internal\", \"list:office\", 203.0.113.1]}}}}\n\
             routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
        ),
    );
    if !store.is_empty() {
        fleet.up();
    }
    let gateway = &fleet[0];
    let statuses = |address: &str| [0; 3].map(|_| ask(gateway, "/", address).status);
    for address in ["10.1.1.1", "192.0.2.7", "::ffff:192.0.2.7", "203.0.113.1"] {
        assert_eq!(statuses(address), [200; 3], "{address}");
    }
    assert_eq!(statuses("203.0.113.2"), [200, 429, 429]);
    let decisions = |outcome: &str| {
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", outcome)])
    };
    assert_eq!((decisions("exempt"), decisions("admitted"), decisions("refused")), (12.0, 1.0, 2.0));

    gateway.write_file("internal.txt", "203.0.113.2/32\n");
    until("the list is in force", || (ask(gateway, "/", "203.0.113.2").status == 200).then_some(()));
    assert_eq!(statuses("10.1.1.1"), [200, 429, 429]);
}

#[test]
fn a_limit_exempts_a_list() {
    exempt("");
}

#[test]
fn a_shared_limit_exempts_a_list() {
    let redis = RedisServer::start();
    exempt(&redis.store());
}

/// The file alone is enough; counters stay; a bad file changes nothing, and /status tells.
#[test]
fn a_list_is_loaded_while_serving() {
    let gateway = Setup::default().file("blocked.txt", "198.51.100.7\n").start(DENY);
    let status = |address: &str| ask(&gateway, "/", address).status;
    let successful = || gateway.metric("sluicegate_config_last_reload_successful", &[]);
    let error = || lists(&gateway)[0]["last_reload_error"].as_str().map(str::to_owned);
    assert_eq!((status("198.51.100.7"), status("198.51.100.8")), (403, 200));
    assert_eq!((&lists(&gateway)[0]["name"], &lists(&gateway)[0]["entries"]), (&json!("blocked"), &json!(1)));

    gateway.write_file("blocked.txt", "192.0.2.1\n192.0.2.2\n");
    until("the new list is in force", || (status("192.0.2.1") == 403).then_some(()));
    assert_eq!((status("198.51.100.7"), status("198.51.100.8"), status("198.51.100.8")), (200, 200, 429));
    assert_eq!(lists(&gateway)[0]["entries"], 2);

    gateway.write_file("blocked.txt", "198.51.100.9\n10.0.0/8\nexample.com\n");
    let shown = until("the mistakes are told", error);
    assert!(shown.contains("blocked.txt has 2 mistakes") && shown.contains("blocked.txt:2: "), "{shown}");
    assert_eq!((status("192.0.2.2"), status("198.51.100.9"), successful()), (403, 200, 0.0));
    sleep(std::time::Duration::from_millis(1_200)); // two looks
    assert_eq!(gateway.times_logged("has 2 mistakes"), 1, "{}", gateway.log());

    // One that is gone for a moment is being replaced.
    std::fs::remove_file(gateway.path("blocked.txt")).unwrap();
    sleep(std::time::Duration::from_millis(700));
    assert_eq!(status("192.0.2.2"), 403);
    gateway.write_file("blocked.txt", "# nobody\n");
    until("the good file is in force", || (status("192.0.2.2") == 200).then_some(()));
    assert_eq!((error(), successful()), (None, 1.0));
}

/// A reload of gateway.yaml that names another file, and one that waited for a list to be right.
#[test]
fn lists_change_with_the_configuration() {
    let setup = Setup::default().file("blocked.txt", "198.51.100.7").file("other.txt", "junk");
    let gateway = setup.start(DENY);
    let status = |address: &str| ask(&gateway, "/", address).status;
    let other = DENY.replace("blocked.txt", "other.txt");
    gateway.write(&other);
    until("the bad list is told", || {
        let error = gateway.admin_get("/status").json()["last_reload_error"].clone();
        error.as_str().is_some_and(|error| error.contains("other.txt:1: ")).then_some(())
    });
    assert_eq!((status("198.51.100.7"), status("192.0.2.1")), (403, 200));
    gateway.write_file("other.txt", "192.0.2.1");
    assert_eq!(gateway.admin_change("POST", "/reload").status, 200);
    assert_eq!((status("198.51.100.7"), status("192.0.2.1")), (200, 403));
    gateway.write_file("other.txt", "192.0.2.9");
    until("the other file is watched", || (status("192.0.2.9") == 403).then_some(()));
}

/// Many lines, of which every one counts and no other, and a file of as many in their place.
#[test]
fn a_long_list_is_searched() {
    const MANY: u32 = 200_000;
    let line = |n: u32| std::net::Ipv4Addr::from(0x0b00_0000 + n * 2);
    let text: String = (0..MANY).map(|n| format!("{}\n", line(n))).collect();
    let gateway = Setup::default().file("blocked.txt", &text).start(DENY);
    let status = |address: std::net::Ipv4Addr| ask(&gateway, "/", &address.to_string()).status;
    for n in (0..MANY).step_by(9_973).chain([MANY - 1]) {
        let beside = std::net::Ipv4Addr::from(u32::from(line(n)) + 1);
        assert_eq!((status(line(n)), status(beside)), (403, 200), "{n}");
    }
    assert_eq!(lists(&gateway)[0]["entries"], MANY);
}

/// A replay turns the same clients away.
#[test]
fn a_replay_knows_the_lists() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("gateway.yaml", &format!("listen: [127.0.0.1:8080]\n{DENY}"));
    write("blocked.txt", "198.51.100.7\n");
    let line = |address: &str| {
        format!(
            "{{\"time\": 1, \"client_ip\": \"{address}\", \"method\": \"GET\", \"host\": \"a\", \"path\": \"/\"}}\n"
        )
    };
    write("log", &(line("198.51.100.7") + &line("198.51.100.8")));
    let mut replay = program();
    replay.current_dir(folder.path()).args(["replay", "log", "--decisions", "out"]);
    assert!(replay.output().unwrap().status.success());
    let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
    let outcomes: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&outcomes[0]["outcome"], &outcomes[1]["outcome"]), (&json!("refused"), &json!("admitted")));
    assert_eq!((&outcomes[0]["route"], &outcomes[0]["limit"]), (&json!("all"), &Value::Null));
}

/// A preflight request: what a browser asks before it sends a POST from another site.
const PREFLIGHT: [(&str, &str); 2] =
    [("origin", "https://shop.example.com"), ("access-control-request-method", "POST")];

/// With `preflight: exempt` it is forwarded without a key and spends nothing; nothing else is.
fn preflights(store: &str) {
    let upstream = Upstream::answering("yes");
    let zeros = "0".repeat(64);
    let setup = Setup::default()
        .upstream(&upstream)
        .file("consumers.yaml", &format!("- {{name: a, key: sha256:{zeros}}}\n"));
    let fleet = Fleet::of(
        vec![setup],
        &format!(
            "{PROXY}{store}auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\n\
             lists: {{blocked: [198.51.100.7]}}\nlimits: {{l: {{key: ip, rate: 2/day}}}}\n\
             upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\nroutes:\n  \
             - {{name: post, match: {{path: /exempt, methods: POST}}, upstream: api, limits: [l], preflight: exempt, deny: blocked}}\n  \
             - {{name: counted, match: {{path: /counted}}, upstream: api, limits: [l]}}\n"
        ),
    );
    if !store.is_empty() {
        fleet.up();
    }
    let gateway = &fleet[0];
    let options = |target: &str, headers: &[(&str, &str)]| gateway.ask("OPTIONS", target, headers).status;
    for turn in 0..4 {
        assert_eq!(options("/exempt", &PREFLIGHT), 200, "{turn}");
    }
    let seen = upstream.last();
    assert_eq!(
        (seen.method.as_str(), seen.head.one("access-control-request-method")),
        ("OPTIONS", Some("POST"))
    );
    let decisions =
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "exempt")]);
    assert_eq!((decisions, upstream.seen().len()), (4.0, 4));

    let [origin, method] = PREFLIGHT;
    let other = ("access-control-request-method", "DELETE");
    for (headers, status) in [
        (&[origin][..], 404), // not a preflight request, and the route is for POST
        (&[method], 404),
        (&[origin, other], 404),
        (&[origin, method, other], 404),
        (&[origin, origin, method], 404),
        (&[("origin", ""), method], 404),
        (&[origin, method, ("x-forwarded-for", "198.51.100.7")], 403),
    ] {
        assert_eq!(options("/exempt", headers), status, "{headers:?}");
    }
    assert_eq!(gateway.ask("POST", "/exempt", &PREFLIGHT).status, 401, "what is asked for is not free");
    assert_eq!(options("/counted", &PREFLIGHT), 401, "unless it says so");
    assert_eq!(upstream.seen().len(), 4);
}

#[test]
fn preflight_requests_can_be_exempt() {
    preflights("");
}

#[test]
fn preflight_requests_can_be_exempt_from_shared_limits() {
    let redis = RedisServer::start();
    preflights(&redis.store());
}

/// Without the field they count like all others.
#[test]
fn preflight_requests_count_by_default() {
    let gateway = Gateway::start(
        "limits: {l: {key: ip, rate: 1/day}}\nroutes: [{respond: {status: 204}, limits: [l], preflight: counted}]\n",
    );
    let mut client = gateway.client();
    assert_eq!([0; 2].map(|_| client.ask("OPTIONS", "/", &PREFLIGHT).status), [204, 429]);
}
