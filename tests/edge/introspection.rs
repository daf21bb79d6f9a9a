//! Tokens that their issuer is asked about (RFC 7662): what it says counts, as long as it may be remembered, and not a
//! moment longer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::issuers::over_tls;
use crate::harness::issuer::{Signer, jwks, soon};
use crate::harness::{
    Client, Exchange, Gate, Gateway, ReservedPort, Setup, Upstream, measure, patience, until,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const RULES: &str = "
auth: {introspection: {url: 'http://{issuer}/introspect', client_id: gw, client_secret: sesame, timeout: 9s, MORE}}
limits: {per-user: {key: user | ip, rate: 1000/h}}
upstreams: {api: {servers: ['http://{upstream}']}}
routes: [{name: api, upstream: api, limits: [per-user]}]
";

/// An issuer that does what it is told.
struct Issuer {
    server: Upstream,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// What it says of tokens; all others are not active.
    tokens: HashMap<String, Value>,
    way: Way,
}

#[derive(Clone, Default)]
enum Way {
    #[default]
    Well,
    /// This status with this body.
    Says(u16, &'static str),
    /// Not a word.
    Hangs,
    /// Nothing until the gate is opened.
    Waits(Gate),
}

impl Issuer {
    fn new(tokens: &[(&str, Value)]) -> Self {
        let tokens = tokens.iter().map(|(token, claims)| ((*token).to_owned(), claims.clone())).collect();
        let state = Arc::new(Mutex::new(State { tokens, way: Way::Well }));
        let found = Arc::clone(&state);
        let server = Upstream::scripted(move |exchange: &mut Exchange<'_>| {
            let body = String::from_utf8(exchange.body().unwrap()).unwrap();
            let way = found.lock().unwrap().way.clone();
            match way {
                Way::Says(status, body) => return exchange.answer(status, &[], body.as_bytes()),
                Way::Hangs => return exchange.silence(),
                Way::Waits(gate) => gate.wait(),
                Way::Well => {}
            }
            let token =
                body.strip_prefix("token=").and_then(|rest| rest.split_once('&')).map_or("", |(t, _)| t);
            let mut answer =
                found.lock().unwrap().tokens.get(token).cloned().unwrap_or(json!({ "active": false }));
            if answer.get("active").is_none() {
                answer["active"] = true.into();
            }
            exchange.answer(200, &[("content-type", "application/json")], answer.to_string().as_bytes());
        });
        Self { server, state }
    }

    fn now(&self, way: Way) {
        self.state.lock().unwrap().way = way;
    }

    fn says(&self, token: &str, claims: Value) {
        self.state.lock().unwrap().tokens.insert(token.to_owned(), claims);
    }

    fn calls(&self) -> usize {
        self.server.seen().len()
    }
}

fn rules(more: &str) -> String {
    RULES.replace(", MORE", more)
}

fn start(upstream: &Upstream, issuer: &Issuer, more: &str) -> Gateway {
    Setup::default().upstream(upstream).value("issuer", issuer.server.address).start(&rules(more))
}

fn ask(gateway: &Gateway, token: &str) -> u16 {
    gateway.ask("GET", "/", &[("authorization", &format!("Bearer {token}"))]).status
}

fn ada() -> (&'static str, Value) {
    ("good", json!({ "sub": "ada" }))
}

#[test]
fn an_active_token_is_asked_about_once() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, "");
    for _ in 0..5 {
        assert_eq!(ask(&gateway, "good"), 200);
    }
    assert_eq!(issuer.calls(), 1);
    let call = issuer.server.last();
    assert_eq!((call.method.as_str(), call.target.as_str()), ("POST", "/introspect"));
    assert_eq!(call.body, b"token=good&token_type_hint=access_token");
    assert_eq!(call.head.one("content-type"), Some("application/x-www-form-urlencoded"));
    let basic = format!("Basic {}", STANDARD.encode("gw:sesame"));
    assert_eq!(call.head.one("authorization"), Some(basic.as_str()));
    assert_eq!(call.head.one("host"), Some(issuer.server.address.to_string().as_str()));
    assert_eq!(gateway.get("/").status, 200, "none is required");
    assert_eq!(gateway.ask("GET", "/", &[("authorization", "Basic YTpi")]).status, 200);
    assert_eq!(issuer.calls(), 1);
}

#[test]
fn an_inactive_token_is_answered_401_and_remembered() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[]));
    let gateway = start(&upstream, &issuer, "");
    for _ in 0..3 {
        let answer = gateway.ask("GET", "/", &[("authorization", "Bearer bad")]);
        assert_eq!(answer.status, 401);
        assert_eq!(answer.problem()["detail"], "the token is not active");
        assert_eq!(answer.problem()["reason"], "forbidden");
        let challenge = "Bearer realm=\"sluicegate\", error=\"invalid_token\", error_description=\"the token is not active\"";
        assert_eq!(answer.header("www-authenticate"), Some(challenge));
    }
    assert_eq!(issuer.calls(), 1);
    assert_eq!(ask(&gateway, "b%20d"), 401, "no token has a %");
    assert_eq!(issuer.calls(), 1);
    assert_eq!(upstream.seen().len(), 0);
}

#[test]
fn an_inactive_token_is_asked_about_again_when_it_is_forgotten() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[]));
    let gateway = start(&upstream, &issuer, ", negative_ttl: 0s");
    assert_eq!([ask(&gateway, "x"), ask(&gateway, "x")], [401, 401]);
    assert_eq!(issuer.calls(), 2);
    issuer.says("x", json!({ "sub": "ada" }));
    assert_eq!(ask(&gateway, "x"), 200);
}

#[test]
fn a_revoked_token_is_refused_when_it_is_forgotten() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, ", ttl: 1s");
    assert_eq!(ask(&gateway, "good"), 200);
    issuer.says("good", json!({ "active": false }));
    until("it is asked about again", || (ask(&gateway, "good") == 401).then_some(()));
}

#[test]
fn what_was_revoked_is_not_used_while_the_issuer_is_away() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, ", ttl: 0s, negative_ttl: 0s, stale: 1h");
    assert_eq!(ask(&gateway, "good"), 200);
    issuer.now(Way::Says(500, ""));
    assert_eq!(ask(&gateway, "good"), 200);
    issuer.now(Way::Well);
    issuer.says("good", json!({ "active": false }));
    assert_eq!(ask(&gateway, "good"), 401);
    issuer.now(Way::Says(500, ""));
    assert_eq!(ask(&gateway, "good"), 503);
}

#[test]
fn claims_that_do_not_hold_are_answered_401() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[]));
    let gateway = start(&upstream, &issuer, "");
    for (token, claims, detail) in [
        ("old", json!({ "exp": soon() - 1200 }), "the token has expired"),
        ("early", json!({ "nbf": soon() }), "the token is not valid yet"),
        ("odd", json!({ "exp": "tomorrow" }), "the token is malformed"),
    ] {
        issuer.says(token, claims);
        let answer = gateway.ask("GET", "/", &[("authorization", &format!("Bearer {token}"))]);
        assert_eq!((answer.status, answer.problem()["detail"].as_str()), (401, Some(detail)), "{token}");
    }
}

#[test]
fn a_token_is_never_used_after_its_end() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[]));
    let gateway = start(&upstream, &issuer, ", on_failure: stale, stale: 1h, ttl: 1h");
    issuer.says("short", json!({ "sub": "ada", "exp": soon() - 600 + 7 }));
    assert_eq!(ask(&gateway, "short"), 200);
    issuer.now(Way::Says(500, ""));
    until("it ends", || (ask(&gateway, "short") == 401).then_some(()));
    assert_eq!(issuer.calls(), 1, "an end needs no question");
}

/// Bytes that clients have sent and the gateway has not read.
fn unread(gateway: &Gateway) -> usize {
    let (edge, established) = (format!("0100007F:{:04X}", gateway.edge.port()), "01");
    let table = std::fs::read_to_string(gateway.proc("net/tcp")).unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let open = fields.filter(|fields| fields[1] == edge && fields[3] == established);
    open.map(|fields| usize::from_str_radix(fields[4].split_once(':').unwrap().1, 16).unwrap()).sum()
}

/// Twenty requests on both workers ask once.
#[test]
fn requests_wait_for_one_call() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gate = Gate::default();
    issuer.now(Way::Waits(gate.clone()));
    let setup = Setup::default().workers(2).upstream(&upstream).value("issuer", issuer.server.address);
    let gateway = setup.start(&rules(""));
    let mut clients: Vec<Client> = (0..20).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.request("GET", "/", &[("authorization", "Bearer good")]);
    }
    issuer.server.wait_for(1);
    until("all requests wait", || (unread(&gateway) == 0).then_some(()));
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert_eq!(issuer.calls(), 1);
}

#[test]
fn connections_to_the_issuer_are_kept() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[]));
    let gateway = start(&upstream, &issuer, "");
    for token in 0..10 {
        assert_eq!(ask(&gateway, &format!("t{token}")), 401);
    }
    assert_eq!((issuer.calls(), issuer.server.connections()), (10, 1));
}

#[test]
fn an_issuer_that_is_away_refuses_by_default() {
    let upstream = Upstream::answering("ok");
    for more in ["", ", on_failure: refuse", ", on_failure: stale"] {
        let port = ReservedPort::new();
        let setup = Setup::default().upstream(&upstream).value("issuer", port.address);
        let gateway = setup.start(&rules(more));
        let answer = gateway.ask("GET", "/", &[("authorization", "Bearer good")]);
        assert_eq!(answer.status, 503, "{more}");
        assert_eq!(answer.problem()["reason"], "auth_unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(gateway.get("/").status, 200, "who has no token needs no issuer");
        let grpc = [("authorization", "Bearer good"), ("content-type", "application/grpc")];
        assert_eq!(gateway.ask("POST", "/", &grpc).header("grpc-status"), Some("14"));
        let trouble = gateway.admin_get("/status").json()["introspection"]["trouble"].clone();
        assert!(trouble.as_str().unwrap().starts_with("cannot connect"), "{trouble}");
        assert_eq!(gateway.times_logged("does not say who asks"), 1);
    }
}

#[test]
fn an_issuer_that_is_away_makes_requests_anonymous_where_configured() {
    let upstream = Upstream::answering("ok");
    let issuer = Issuer::new(&[ada()]);
    let gateway = start(&upstream, &issuer, ", on_failure: anonymous, ttl: 0s, forward: {X-User: sub}");
    for way in [Way::Says(500, "{}"), Way::Says(302, ""), Way::Says(200, "<html>"), Way::Says(200, "{}")] {
        issuer.now(way);
        assert_eq!(ask(&gateway, "good"), 200);
        assert_eq!(upstream.last().head.one("x-user"), None);
    }
    issuer.now(Way::Well);
    assert_eq!(ask(&gateway, "good"), 200);
    assert_eq!(upstream.last().head.one("x-user"), Some("ada"));
}

#[test]
fn a_silent_issuer_delays_no_request_for_long() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    issuer.now(Way::Hangs);
    let rules = rules("").replace("timeout: 9s", "timeout: 100ms");
    let setup = Setup::default().upstream(&upstream).value("issuer", issuer.server.address);
    let gateway = setup.start(&rules);
    let (status, time) = measure(|| ask(&gateway, "good"));
    assert_eq!(status, 503);
    assert!(time < patience(5), "{time:?}");
    // After some failures in a row it is left alone for a moment.
    until("it is left alone", || {
        assert_eq!(ask(&gateway, "good"), 503);
        let skipped = [("service", "introspection"), ("outcome", "skipped")];
        (gateway.metric("sluicegate_auth_calls_total", &skipped) > 0.0).then_some(())
    });
    issuer.now(Way::Well);
    until("it is asked again", || (ask(&gateway, "good") == 200).then_some(()));
}

#[test]
fn what_is_remembered_is_used_while_the_issuer_is_away() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    for more in [", ttl: 0s", ", ttl: 0s, stale: 1h, on_failure: refuse"] {
        issuer.now(Way::Well);
        let gateway = start(&upstream, &issuer, more);
        assert_eq!([ask(&gateway, "good"), ask(&gateway, "good")], [200, 200]);
        let calls = issuer.calls();
        issuer.now(Way::Says(503, ""));
        assert_eq!([ask(&gateway, "good"), ask(&gateway, "other")], [200, 503], "{more}");
        assert!(issuer.calls() > calls);
    }
    issuer.now(Way::Well);
    let gateway = start(&upstream, &issuer, ", ttl: 0s, on_failure: refuse");
    assert_eq!(ask(&gateway, "good"), 200);
    issuer.now(Way::Says(503, ""));
    assert_eq!(ask(&gateway, "good"), 503, "nothing is stale here");
    issuer.now(Way::Well);
    let gateway = start(&upstream, &issuer, ", ttl: 0s");
    issuer.says("short", json!({ "sub": "eve", "exp": soon() - 600 + 7 }));
    assert_eq!(ask(&gateway, "short"), 200);
    issuer.now(Way::Says(503, ""));
    until("it ends", || (ask(&gateway, "short") == 401).then_some(()));
}

#[test]
fn answers_are_keys_and_plans() {
    let upstream = Upstream::answering("ok");
    let of = |sub: &str, org: u32, plan: &str| json!({ "sub": sub, "org": { "id": org }, "level": plan });
    let issuer = Issuer::new(&[
        ("a1", of("ada", 7, "free")),
        ("a2", of("ada", 7, "free")),
        ("e", of("eve", 7, "free")),
        ("p", of("pro", 8, "pro")),
    ]);
    let rules = rules(", plan_claim: level, forward: {X-User: sub, X-Org: org.id}").replace(
        "{per-user: {key: user | ip, rate: 1000/h}}",
        "{per-user: {key: user, rate: 2/day, plans: {pro: 4/day}}, per-org: {key: 'jwt:org.id', rate: 5/day}}",
    );
    let rules = rules.replace("[per-user]", "[per-user, per-org]");
    let setup = Setup::default().upstream(&upstream).value("issuer", issuer.server.address);
    let gateway = setup.start(&rules);
    assert_eq!(
        ["a1", "a2", "a1", "e", "e", "e"].map(|token| ask(&gateway, token)),
        [200, 200, 429, 200, 200, 429]
    );
    assert_eq!(["p"; 5].map(|token| ask(&gateway, token)), [200, 200, 200, 200, 429]);
    let forged = [("authorization", "Bearer e"), ("x-user", "root"), ("X_User", "root"), ("x-org", "1")];
    assert_eq!(gateway.remaining("per-org", "7"), 1);
    let head = upstream.last().head;
    assert_eq!((head.all("x-user"), head.all("x-org")), (vec!["pro"], vec!["8"]));
    gateway.ask("GET", "/", &forged[1..]);
    let head = upstream.last().head;
    assert_eq!((head.all("x-user"), head.all("x_user"), head.all("x-org")), (vec![], vec![], vec![]));
}

#[test]
fn a_required_token_is_missed() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, ", required: true");
    let answer = gateway.get("/");
    assert_eq!(
        (answer.status, answer.header("www-authenticate")),
        (401, Some("Bearer realm=\"sluicegate\""))
    );
    assert_eq!(ask(&gateway, "good"), 200);
}

#[test]
fn tokens_of_the_known_issuer_are_verified_and_others_are_asked_about() {
    let signer = Signer::ed25519("k");
    let upstream = Upstream::answering("ok");
    let claims = |iss: &str| json!({ "iss": iss, "aud": "api", "sub": "jo", "exp": soon() });
    let (own, other) =
        (signer.token(&claims("https://id")), Signer::ed25519("x").token(&claims("https://other")));
    let forged = Signer::ed25519("k").token(&claims("https://id"));
    let issuer = Issuer::new(&[ada(), (&other, json!({ "sub": "oz" }))]);
    let rules = rules(", forward: {X-User: sub}").replace(
        "auth: {",
        "auth: {jwt: {issuer: 'https://id', audience: api, jwks: {file: jwks.json}, required: true, \
         forward: {X-User: sub}}, ",
    );
    let setup = Setup::default().upstream(&upstream).value("issuer", issuer.server.address);
    let gateway = setup.file("jwks.json", &jwks(&[&signer])).start(&rules);
    for (token, user, calls) in [(own.as_str(), "jo", 0), ("good", "ada", 1), (&other, "oz", 2)] {
        assert_eq!(ask(&gateway, token), 200, "{user}");
        assert_eq!(upstream.last().head.all("x-user"), [user]);
        assert_eq!(issuer.calls(), calls, "{user}");
    }
    assert_eq!(ask(&gateway, &forged), 401);
    assert_eq!(issuer.calls(), 2, "what calls itself the known issuer's is verified here");
    assert_eq!(ask(&gateway, "eyJ.eyJ.x"), 401);
    assert_eq!(gateway.get("/").status, 401);
}

#[test]
fn a_flood_of_made_up_tokens_is_refused_without_calls() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let rules = rules("").replace("limits: {", "limits: {per-address: {key: ip, rate: 10/day}, ");
    let rules = rules.replace("[per-user]", "[per-address, per-user]");
    let setup = Setup::default().upstream(&upstream).value("issuer", issuer.server.address);
    let gateway = setup.start(&rules);
    let statuses: Vec<u16> = (0..50).map(|token| ask(&gateway, &format!("t{token}"))).collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 40]);
    assert_eq!(issuer.calls(), 10);
}

#[test]
fn made_up_tokens_displace_no_good_ones() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, ", max_cached: 16");
    assert_eq!(ask(&gateway, "good"), 200);
    let mut client = gateway.client();
    for token in 0..300 {
        let bearer = format!("Bearer t{token}");
        assert_eq!(client.ask("GET", "/", &[("authorization", &bearer)]).status, 401);
    }
    assert_eq!(ask(&gateway, "good"), 200);
    assert_eq!(issuer.calls(), 301);
}

#[test]
fn the_certificate_of_the_issuer_is_verified() {
    let upstream = Upstream::answering("ok");
    let (address, ca) = over_tls(json!({ "active": true, "sub": "ada" }).to_string());
    let rules = rules(", ca: ca.pem").replace("http://{issuer}", "https://{issuer}");
    let setup = || Setup::default().upstream(&upstream).value("issuer", address);
    assert_eq!(ask(&setup().file("ca.pem", &ca).start(&rules), "good"), 200);
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let gateway = setup().file("ca.pem", &other).start(&rules);
    assert_eq!(ask(&gateway, "good"), 503);
    let trouble = gateway.admin_get("/status").json()["introspection"]["trouble"].clone();
    assert!(trouble.as_str().unwrap().starts_with("TLS with 127.0.0.1: "), "{trouble}");
}

#[test]
fn questions_are_counted() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, "");
    let counted = || {
        ["answered", "unusable", "away", "skipped"].map(|outcome| {
            let labels = [("service", "introspection"), ("outcome", outcome)];
            gateway.metric("sluicegate_auth_calls_total", &labels)
        })
    };
    assert_eq!(counted(), [0.0; 4]);
    assert_eq!(["good", "good", "bad", "bad"].map(|token| ask(&gateway, token)), [200, 200, 401, 401]);
    assert_eq!(counted(), [2.0, 0.0, 0.0, 0.0]);
    issuer.now(Way::Says(500, ""));
    (0..5).for_each(|token| assert_eq!(ask(&gateway, &format!("t{token}")), 503));
    assert_eq!(counted(), [2.0, 5.0, 0.0, 0.0]);
    let refused = [("route", "api"), ("reason", "auth_unavailable")];
    assert_eq!(gateway.metric("sluicegate_refusals_total", &refused), 5.0);
}

#[test]
fn nothing_tells_the_secret() {
    let (upstream, issuer) = (Upstream::answering("ok"), Issuer::new(&[ada()]));
    let gateway = start(&upstream, &issuer, "");
    assert_eq!(ask(&gateway, "good"), 200);
    issuer.now(Way::Says(401, "{}"));
    assert_eq!(ask(&gateway, "other"), 503);
    for path in ["/config", "/status", "/metrics"] {
        assert!(!gateway.admin_get(path).text().contains("sesame"), "{path}");
    }
    let shown = gateway.admin_get("/config").json()["auth"]["introspection"].clone();
    assert_eq!((&shown["client_secret"], &shown["client_id"]), (&json!("(redacted)"), &json!("gw")));
    assert_eq!(
        (&shown["ttl"], &shown["stale"], &shown["on_failure"]),
        (&json!(60.0), &json!(300.0), &json!("stale"))
    );
    assert!(!gateway.log().contains("sesame") && !gateway.log().contains("good"));
}
