//! TLS to servers: their certificates are verified, the gateway can present one, and certificates change while it
//! runs.

use std::net::TcpListener;
use std::time::Duration;

use crate::harness::authority::{Authority, TlsFront};
use crate::harness::h2_upstream::{Call, H2Upstream, Speaks};
use crate::harness::{Gateway, Setup, Upstream, measure, patience, until};

/// A gateway before one server with TLS, with these fields on its upstream.
fn gateway(setup: Setup, address: std::net::SocketAddr, fields: &str) -> Gateway {
    setup.workers(1).value("port", address.port()).start(&file(fields))
}

fn file(fields: &str) -> String {
    let timeouts = if fields.contains("timeouts") { "" } else { "timeouts: {connect: 9s}, " };
    format!(
        "upstreams: {{api: {{servers: [\"https://127.0.0.1:{{port}}\"], {timeouts}{fields}}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api}}]\n"
    )
}

fn logs(gateway: &Gateway, words: &str) {
    until(words, || gateway.log().contains(words).then_some(()));
}

/// A server that the named authority vouches for is spoken to, with and without bodies, on kept connections.
#[test]
fn requests_are_sent_over_tls() {
    let authority = Authority::new();
    let upstream = Upstream::scripted(|exchange| {
        let Ok(body) = exchange.body() else { return exchange.close() };
        exchange.answer(200, &[], &body);
    });
    let front = TlsFront::before(upstream.address, authority.server(&["127.0.0.1"], &["http/1.1"], None));
    let gateway =
        gateway(Setup::default().file("ca.pem", &authority.pem()), front.address, "tls: {ca: ca.pem}");
    let mut client = gateway.client();
    for turn in 0..20 {
        assert_eq!(client.get("/").status, 200, "turn {turn}");
        let body = vec![b'x'; 100_000];
        assert!(client.post("/", &[], &body).body == body, "turn {turn}");
    }
    assert_eq!(upstream.connections(), 1, "it is kept");
    assert_eq!(front.handshakes()[0].protocol.as_deref(), Some("http/1.1"));
}

/// A server that nobody vouches for, or that has another name, gets no request. The client learns nothing of why, the
/// operator does, once.
#[test]
fn a_server_without_a_valid_certificate_gets_no_request() {
    let (authority, other) = (Authority::new(), Authority::new());
    for (ca, names, reason) in
        [(&other, "127.0.0.1", "UnknownIssuer"), (&authority, "api.example.com", "not valid for name")]
    {
        let upstream = Upstream::answering("done");
        let front = TlsFront::before(upstream.address, authority.server(&[names], &[], None));
        let gateway = gateway(Setup::default().file("ca.pem", &ca.pem()), front.address, "tls: {ca: ca.pem}");
        for _ in 0..10 {
            let answer = gateway.get("/");
            assert_eq!(answer.status, 502);
            let text = format!("{:?} {}", answer.head, answer.problem());
            assert!(!text.contains("127.0.0.1:") && !text.to_lowercase().contains("cert"), "{text}");
        }
        assert_eq!(gateway.client().post("/", &[], b"body").status, 502);
        assert!(upstream.seen().is_empty());
        logs(&gateway, reason);
        assert_eq!(gateway.log().matches(reason).count(), 1, "{}", gateway.log());
    }
}

/// Without a named authority those of the system are asked, and they know nothing of a test's.
#[test]
fn the_authorities_of_the_system_are_the_default() {
    let authority = Authority::new();
    let upstream = Upstream::answering("done");
    let front = TlsFront::before(upstream.address, authority.server(&["127.0.0.1"], &[], None));
    let gateway = gateway(Setup::default(), front.address, "");
    assert_eq!(gateway.get("/").status, 502);
    assert!(upstream.seen().is_empty());
}

/// `server_name` is what the server is told (SNI) and what its certificate has to be for.
#[test]
fn a_configured_name_is_sent_and_verified() {
    let authority = Authority::new();
    let upstream = Upstream::answering("done");
    let front = TlsFront::before(upstream.address, authority.server(&["api.example.com"], &[], None));
    let gateway = gateway(
        Setup::default().file("ca.pem", &authority.pem()),
        front.address,
        "tls: {ca: ca.pem, server_name: api.example.com}",
    );
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(front.handshakes()[0].name.as_deref(), Some("api.example.com"));
}

/// `verify: false` takes any certificate, and says so when the file is loaded.
#[test]
fn verification_can_be_disabled() {
    let upstream = Upstream::answering("done");
    let front = TlsFront::before(upstream.address, Authority::new().server(&["elsewhere.test"], &[], None));
    let gateway = gateway(Setup::default(), front.address, "tls: {verify: false}");
    assert_eq!(gateway.get("/").status, 200);
    logs(&gateway, "the servers' certificates are not verified");
}

/// A server that asks for the gateway's certificate gets it.
#[test]
fn the_gateway_presents_its_own_certificate() {
    let authority = Authority::new();
    let upstream = Upstream::answering("done");
    let server = authority.server(&["127.0.0.1"], &[], Some(&authority));
    let front = TlsFront::before(upstream.address, server);
    let (cert, key) = authority.issue(&["gateway.test"]);
    let files =
        || Setup::default().file("ca.pem", &authority.pem()).file("own.pem", &cert).file("own.key", &key);
    let with = gateway(files(), front.address, "tls: {ca: ca.pem, cert: own.pem, key: own.key}");
    assert_eq!(with.get("/").status, 200);
    assert!(front.handshakes()[0].has_certificate);
    let without = gateway(files(), front.address, "tls: {ca: ca.pem}");
    assert_eq!(without.get("/").status, 502);
}

/// Later handshakes with a server are short ones.
#[test]
fn sessions_are_resumed() {
    let authority = Authority::new();
    let upstream = Upstream::scripted(|exchange| {
        exchange.answer(200, &[("connection", "close")], b"done");
    });
    let front = TlsFront::before(upstream.address, authority.server(&["127.0.0.1"], &[], None));
    let gateway =
        gateway(Setup::default().file("ca.pem", &authority.pem()), front.address, "tls: {ca: ca.pem}");
    let mut client = gateway.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
    }
    let resumed: Vec<bool> = front.handshakes().iter().map(|handshake| handshake.resumed).collect();
    assert_eq!(resumed, [false, true, true, true, true]);
}

/// A server that does not shake hands is given up after the time for connections.
#[test]
fn a_handshake_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for protocol in ["http1", "http2"] {
        let fields = format!("protocol: {protocol}, timeouts: {{connect: 300ms}}, tls: {{verify: false}}");
        let gateway = gateway(Setup::default(), listener.local_addr().unwrap(), &fields);
        let (answer, took) = measure(|| gateway.get("/"));
        assert_eq!(answer.status, 504);
        assert!((Duration::from_millis(250)..patience(5)).contains(&took), "{took:?}");
    }
}

/// HTTP/2 is agreed on in the handshake; a server that does not is answered for with 502, and the log says why.
#[test]
fn http2_is_negotiated() {
    let authority = Authority::new();
    let fields = "protocol: http2, tls: {ca: ca.pem}";
    let speaks = Speaks { tls: Some(authority.server(&["127.0.0.1"], &["h2"], None)), streams: None };
    let upstream = H2Upstream::start(speaks, |mut call: Call| async move {
        let body = call.read().await;
        call.answer(200, body);
    });
    let one = gateway(Setup::default().file("ca.pem", &authority.pem()), upstream.address, fields);
    assert_eq!(one.get("/").status, 200);
    assert_eq!(one.client().post("/", &[], b"hello").text(), "hello");
    assert_eq!(upstream.connections(), 1);
    assert_eq!(upstream.handshakes()[0].protocol.as_deref(), Some("h2"));
    assert_eq!(upstream.seen()[0].uri.scheme_str(), Some("https"));

    let old = Upstream::answering("done");
    let front = TlsFront::before(old.address, authority.server(&["127.0.0.1"], &[], None));
    let two = gateway(Setup::default().file("ca.pem", &authority.pem()), front.address, fields);
    assert_eq!(two.get("/").status, 502);
    logs(&two, "did not choose HTTP/2");
    assert!(old.seen().is_empty());
}

/// Certificates that change are in force without a change of gateway.yaml. Files that do not fit together change
/// nothing and stand in /status until they do.
#[test]
fn certificates_change_while_it_runs() {
    let authority = Authority::new();
    let upstream = Upstream::answering("done");
    let server = authority.server(&["127.0.0.1"], &[], Some(&authority));
    let front = TlsFront::before(upstream.address, server);
    let stranger = Authority::new();
    let (cert, key) = stranger.issue(&["gateway.test"]);
    let files =
        Setup::default().file("ca.pem", &authority.pem()).file("own.pem", &cert).file("own.key", &key);
    let gateway = gateway(files, front.address, "tls: {ca: ca.pem, cert: own.pem, key: own.key}");
    assert_eq!(gateway.get("/").status, 502, "the server does not know the gateway");

    let (cert, key) = authority.issue(&["gateway.test"]);
    gateway.write_file("own.pem", &cert);
    let wrong = || gateway.admin_get("/status").text().contains("is not the key of");
    until("the pair does not fit", || wrong().then_some(()));
    assert_eq!(gateway.metric("sluicegate_config_last_reload_successful", &[]), 0.0);
    gateway.write_file("own.key", &key);
    until("the new pair is in force", || (gateway.get("/").status == 200).then_some(()));
    until("nothing is wrong any more", || (!wrong()).then_some(()));
    until("all is well", || {
        (gateway.metric("sluicegate_config_last_reload_successful", &[]) == 1.0).then_some(())
    });

    gateway.write_file("ca.pem", &stranger.pem());
    until("the server is not believed any more", || (gateway.get("/").status == 502).then_some(()));
    gateway.write_file("ca.pem", "nothing");
    until("the file is bad", || {
        gateway.admin_get("/status").text().contains("holds no certificate").then_some(())
    });
    gateway.write_file("ca.pem", &authority.pem());
    until("the server is believed again", || (gateway.get("/").status == 200).then_some(()));
}

/// A configuration shows no key.
#[test]
fn the_configuration_in_force_shows_no_key() {
    let authority = Authority::new();
    let (cert, key) = authority.issue(&["gateway.test"]);
    let files =
        Setup::default().file("ca.pem", &authority.pem()).file("own.pem", &cert).file("own.key", &key);
    let address = "127.0.0.1:9".parse().unwrap();
    let fields = "protocol: http2, tls: {ca: ca.pem, cert: own.pem, key: own.key, server_name: api.test}";
    let gateway = gateway(files, address, fields);
    let shown = gateway.admin_get("/config");
    let upstream = &shown.json()["upstreams"]["api"];
    assert_eq!(upstream["protocol"], "http2");
    assert_eq!(
        upstream["tls"],
        serde_json::json!({"ca": "private", "own_certificate": true, "server_name": "api.test", "verify": true})
    );
    assert!(!shown.text().contains("BEGIN") && !gateway.log().contains("BEGIN"));
}

/// Health checks go the way that requests go.
#[test]
fn health_checks_use_tls() {
    let authority = Authority::new();
    let speaks = Speaks { tls: Some(authority.server(&["127.0.0.1"], &["h2"], None)), streams: None };
    let upstream = H2Upstream::start(speaks, |mut call: Call| async move { call.answer(200, "done") });
    let fields = "protocol: http2, tls: {ca: ca.pem}, health: {path: /healthz, every: 100ms, timeout: 1s, unhealthy: 1}";
    let good = gateway(Setup::default().file("ca.pem", &authority.pem()), upstream.address, fields);
    let asked = || upstream.seen().iter().filter(|seen| seen.uri.path() == "/healthz").count();
    until("it is asked again and again", || (asked() >= 3).then_some(()));
    assert_eq!(good.get("/").status, 200);
    drop(good);
    let bad = gateway(Setup::default().file("ca.pem", &Authority::new().pem()), upstream.address, fields);
    logs(
        &bad,
        "is down: its health check failed: the handshake with the server failed: invalid peer certificate",
    );
}
