//! What browsers let pages of other origins do and read (CORS): the gateway answers preflight requests, and every
//! answer says which origins may read it.

use crate::harness::{Gateway, ReservedPort, Response, Setup, Upstream};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};

const APP: &str = "https://app.example.com";
const FILE: &str = r#"
cors:
  origins: [https://app.example.com, "https://*.shop.example.com"]
  credentials: true
  expose: [X-Request-Id]
  max_age: 1h
response_headers: {set: {X-Both: "1"}}
max_body: 16
store: {redis: {url: "redis://{dead}", timeout: 20ms}}
lists: {here: [127.0.0.0/8]}
limits:
  two: {key: ip, rate: 2/day, scope: local}
  by-key: {key: api_key, rate: 2/day, on_missing: deny, scope: local}
  in-store: {key: ip, rate: 2/day, on_store_failure: closed}
upstreams:
  api: {servers: ["http://{upstream}"]}
  slow: {servers: ["http://{upstream}"], timeouts: {response: 300ms}}
  dead: {servers: ["http://{dead}"]}
routes:
  - {name: post, match: {path: /items, methods: [POST]}, upstream: api, limits: [two]}
  - {name: get, match: {path: /items, methods: [GET]}, upstream: api}
  - {name: slow, match: {path: /slow}, upstream: slow}
  - {name: keyed, match: {path: /keyed}, upstream: api, limits: [by-key]}
  - {name: turned-away, match: {path: /turned-away}, upstream: api, deny: here}
  - {name: dead, match: {path: /dead}, upstream: dead}
  - {name: in-store, match: {path: /in-store}, upstream: api, limits: [in-store]}
  - {name: usage, match: {path: /usage}, respond: usage, limits: [two]}
  - {name: any, match: {path: /any}, upstream: api, cors: {origins: "*", methods: [GET, PATCH], headers: [X-Mine]}}
  - {name: its-own, match: {path: /its-own, methods: [POST]}, upstream: api, cors: off}
  - {name: others, match: {path: /its-own}, upstream: api}
  - {name: below, match: {path: /below}, upstream: api, cors: off}
"#;

/// An upstream that says itself who may read its answers; before it the gateway; and the port of the dead server.
fn start() -> (Upstream, Gateway, ReservedPort) {
    let upstream = Upstream::scripted(|exchange| {
        if exchange.seen.target == "/slow" {
            return exchange.silence();
        }
        let headers = [
            ("access-control-allow-origin", "https://its-own.test"),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", "X-Its-Own"),
            ("vary", "Accept-Encoding"),
        ];
        exchange.answer(200, &headers, b"done");
    });
    let dead = ReservedPort::new();
    let gateway = Setup::default().upstream(&upstream).value("dead", dead.address).start(FILE);
    (upstream, gateway, dead)
}

fn preflight(gateway: &Gateway, target: &str, origin: &str, method: &str) -> Response {
    let asked = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", "content-type,x-api-key"),
    ];
    gateway.ask("OPTIONS", target, &asked)
}

/// Who may read an answer: the origin, whether with credentials, and the names of the headers.
fn shared(answer: &Response) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
    let all = |name| answer.head.all(name);
    (
        all("access-control-allow-origin"),
        all("access-control-allow-credentials"),
        all("access-control-expose-headers"),
    )
}

#[track_caller]
fn may_read(answer: &Response, origin: &str) {
    let (origins, credentials, exposed) = shared(answer);
    assert_eq!((origins, credentials, exposed.len()), (vec![origin], vec!["true"], 1), "{:?}", answer.head);
    for name in ["X-RateLimit-Remaining", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id"] {
        assert!(exposed[0].split(", ").any(|exposed| exposed == name), "{name} in {exposed:?}");
    }
    varies(answer);
}

#[track_caller]
fn varies(answer: &Response) {
    let vary = answer.head.all("vary").join(", ");
    assert_eq!(vary.split(", ").filter(|name| *name == "Origin").count(), 1, "{vary}");
}

/// A preflight request is answered for the route that takes the method it asks for. It needs no credentials, spends nothing
/// and never comes to the upstream.
#[test]
fn preflight_requests_are_answered() {
    let (upstream, gateway, _dead) = start();
    for origin in [APP, "https://a.b.shop.example.com"] {
        for turn in 0..5 {
            for target in ["/items", "/keyed", "/turned-away", "/dead", "/slow", "/in-store", "/no/route"] {
                let answer = preflight(&gateway, target, origin, "POST");
                assert_eq!(answer.status, 204, "{target} {turn}");
                let says = |name: &str| answer.header(&format!("access-control-{name}"));
                assert_eq!((says("allow-methods"), says("max-age")), (Some("POST"), Some("3600")));
                assert_eq!(says("allow-headers"), Some("content-type,x-api-key"));
                may_read(&answer, origin);
                assert!(answer.header("x-ratelimit-limit").is_none() && answer.body.is_empty());
            }
        }
    }
    let of_route = [("route", "post"), ("code", "204")];
    assert_eq!(gateway.metric("sluicegate_requests_total", &of_route), 10.0);
    let refused = gateway.metrics().label_values("sluicegate_refusals_total", "reason");
    assert!(!refused.contains("method_not_allowed"), "a preflight request is no refusal");
    let admitted = [("limit", "two"), ("outcome", "admitted")];
    assert_eq!(gateway.metric("sluicegate_limit_decisions_total", &admitted), 0.0);
    assert!(upstream.seen().is_empty());
}

/// An origin that is not on the list is told nothing, which browsers take for no; nor is anything said of a route that says
/// nothing of origins, also where another one takes OPTIONS.
#[test]
fn other_origins_are_not_allowed() {
    let (upstream, gateway, _dead) = start();
    for origin in ["https://evil.test", "http://app.example.com", "https://shop.example.com", "null"] {
        let answer = preflight(&gateway, "/items", origin, "POST");
        assert_eq!(answer.status, 204);
        varies(&answer);
        let shown = answer.head.headers.iter().filter(|(name, _)| name.starts_with("access-control-"));
        assert_eq!(shown.count(), 0, "{:?}", answer.head);
        let answer = gateway.ask("GET", "/items", &[("origin", origin)]);
        assert_eq!((answer.status, shared(&answer)), (200, (vec![], vec![], vec![])));
        varies(&answer);
    }
    let two = [("origin", APP), ("origin", APP), ("access-control-request-method", "GET")];
    assert_eq!(gateway.ask("OPTIONS", "/items", &two).status, 404, "two origins are none");
    let answer = preflight(&gateway, "/its-own", APP, "POST");
    assert_eq!(
        (answer.status, shared(&answer)),
        (204, (vec![], vec![], vec![])),
        "although others take OPTIONS"
    );
    assert_eq!(
        preflight(&gateway, "/its-own", APP, "PUT").header("access-control-allow-methods"),
        Some("PUT")
    );
    assert_eq!(upstream.seen().len(), 4);

    // Where the gateway says nothing, the upstream does.
    let answer = preflight(&gateway, "/below", APP, "PUT");
    assert_eq!((answer.status, shared(&answer).0), (200, vec!["https://its-own.test"]));
    assert_eq!(answer.head.all("vary"), ["Accept-Encoding"]);
}

/// A page can read every answer and when to come back, whoever made it.
#[test]
fn pages_can_read_refusals_and_failures() {
    let (_upstream, gateway, _dead) = start();
    let ask = |method: &str, target: &str| gateway.ask(method, target, &[("origin", APP)]);
    for (method, target, status) in [
        ("POST", "/items", 200),
        ("POST", "/items", 200),
        ("POST", "/items", 429),
        ("GET", "/keyed", 401),
        ("GET", "/turned-away", 403),
        ("GET", "/no/route", 404),
        ("GET", "/%zz", 400),
        ("TRACE", "/items", 405),
        ("GET", "/dead", 502),
        ("GET", "/in-store", 503),
        ("GET", "/slow", 504),
        ("GET", "/usage", 200),
    ] {
        let answer = ask(method, target);
        assert_eq!(answer.status, status, "{method} {target}");
        may_read(&answer, APP);
        assert_eq!(answer.header("retry-after").is_some(), matches!(status, 429 | 503));
    }
    let mut client = gateway.client();
    let head = [("origin", APP), ("content-length", "17")];
    let answer = client.request("PUT", "/slow", &head).send("seventeen letters").response();
    assert_eq!(answer.status, 413);
    may_read(&answer, APP);
}

/// What the upstream says of origins is replaced; the answer also varies where the request names no origin.
#[test]
fn headers_of_the_upstream_are_replaced() {
    let (_upstream, gateway, _dead) = start();
    let answer = gateway.ask("GET", "/items", &[("origin", APP)]);
    may_read(&answer, APP);
    assert_eq!(answer.head.all("vary"), ["Accept-Encoding", "Origin"]);
    let answer = gateway.get("/items");
    assert_eq!((answer.status, shared(&answer)), (200, (vec![], vec![], vec![])));
    varies(&answer);

    let answer = gateway.ask("GET", "/any", &[("origin", "null")]);
    let (origins, credentials, exposed) = shared(&answer);
    assert_eq!((origins, credentials, answer.head.all("vary")), (vec!["*"], vec![], vec!["Accept-Encoding"]));
    assert!(exposed[0].contains("Retry-After") && !exposed[0].contains("X-Its-Own"));
    let answer = preflight(&gateway, "/any", "https://evil.test", "PUT");
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, PATCH"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("X-Mine"));
    assert_eq!(shared(&answer).0, ["*"]);
}

/// A changed file changes who may read, at once.
#[test]
fn a_reload_changes_the_origins() {
    let gateway = Gateway::start("routes: [{name: all, respond: {status: 200}}]");
    let ask = || gateway.ask("GET", "/", &[("origin", APP)]);
    assert_eq!((ask().head.all("vary").len(), shared(&ask()).0.len()), (0, 0));
    gateway.reload("cors: {origins: https://app.example.com}\nroutes: [{name: all, respond: {status: 200}}]");
    assert_eq!(shared(&ask()).0, [APP]);
}

/// The same over HTTP/2.
#[test]
fn over_http2() {
    let (upstream, gateway, _dead) = start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.edge).await.unwrap();
        let executor = hyper_util::rt::TokioExecutor::new();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        for (method, target, status) in [
            ("OPTIONS", "/items", 204),
            ("POST", "/items", 200),
            ("POST", "/items", 200),
            ("POST", "/items", 429),
        ] {
            let request = http::Request::builder().method(method).uri(format!("http://api.test{target}"));
            let mut request = request.header("origin", APP);
            if method == "OPTIONS" {
                request = request.header("access-control-request-method", "POST");
            }
            let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
            let (head, body) = answer.into_parts();
            assert_eq!(head.status, status);
            let origins: Vec<_> = head.headers.get_all("access-control-allow-origin").iter().collect();
            assert_eq!(origins, [APP]);
            body.collect().await.unwrap();
        }
    });
    assert_eq!(upstream.seen().len(), 2);
}
