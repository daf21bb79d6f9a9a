//! `RUST_LOG=sluicegate=debug` tells why a connection was closed and why a request failed, without any secret.

use crate::harness::client::head;
use crate::harness::{
    Client, Fleet, Gateway, RedisServer, ReservedPort, Setup, Upstream, patience, until, within,
};

const FILE: &str = "
listen:
  - {name: edge, address: \"{edge}\"}
  - {name: proxied, address: \"{edge2}\", proxy_protocol: true}
timeouts: {head: 500ms, idle: 500ms}
upstreams:
  api: {servers: [\"http://{upstream}\"], retries: {attempts: 0}}
  silent: {servers: [\"http://{upstream}\"], timeouts: {response: 300ms}, retries: {attempts: 0}}
  dead: {servers: [\"http://{dead}\"], retries: {attempts: 0}}
routes:
  - {match: {path: /dead}, upstream: dead}
  - {match: {path: /silent}, upstream: silent}
  - {upstream: api}
";
/// Settings without any setting, and DATA on stream 0, which no client may send (RFC 9113 §6.1).
const BROKEN_H2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The lines of the log that have each of these words.
fn lines(gateway: &Gateway, words: &[&str]) -> Vec<String> {
    let log = gateway.log();
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}

#[track_caller]
fn says(gateway: &Gateway, words: &[&str]) {
    until(&format!("a line of the log has {words:?}"), || (!lines(gateway, words).is_empty()).then_some(()));
}

#[test]
fn the_log_tells_why_a_request_failed_and_why_a_connection_was_closed() {
    let upstream = Upstream::scripted(|exchange| match &*exchange.seen.target {
        "/broken" => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
            exchange.close();
        }
        "/silent" => exchange.silence(),
        _ => exchange.answer(200, &[], b"done"),
    });
    let dead = ReservedPort::new();
    let setup = Setup::default().upstream(&upstream).value("dead", dead.address).workers(1);
    let gateway = setup.env("RUST_LOG", "sluicegate=debug").start(FILE);
    let secrets = [("authorization", "Bearer secret-token"), ("x-api-key", "secret-key")];

    let quick = |bytes: &[u8]| Client::quick(gateway.edge, bytes);
    let ask = |target: &str| quick(&head("GET", target, &secrets));

    assert_eq!(ask("/dead").response().status, 502);
    says(&gateway, &["upstream request failed", "upstream=\"dead\"", "Connection refused"]);
    says(&gateway, &["request answered with an error", "status=502", "peer=127.0.0.1"]);
    assert_eq!(ask("/silent").response().status, 504);
    says(&gateway, &["upstream request failed", "upstream=\"silent\"", "no response in time"]);

    assert!(ask("/broken").try_response().is_err());
    says(&gateway, &["response body failed", "connection ended in the middle of its response"]);
    says(&gateway, &["client connection closed", "the response could not be completed"]);

    assert_eq!(quick(b"GET / HTTP/1.1\r\nno colon\r\n\r\n").response().status, 400);
    says(&gateway, &["request answered with an error", "status=400"]);
    assert_eq!(quick(b"GET / HTTP/1.1\r\nhost:").response().status, 408);
    says(&gateway, &["request answered with an error", "status=408"]);
    let mut idle = ask("/");
    assert_eq!(idle.response().status, 200);
    assert!(idle.is_closed());
    says(&gateway, &["client connection closed", "no request arrived within the idle timeout"]);

    let _client = quick(BROKEN_H2);
    says(&gateway, &["HTTP/2 connection error", "frame=0"]);
    says(&gateway, &["GOAWAY sent", "reason=PROTOCOL_ERROR"]);
    says(&gateway, &["client connection closed", "GOAWAY PROTOCOL_ERROR"]);

    assert!(Client::quick(gateway.edge2, "GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").is_closed());
    says(&gateway, &["client connection closed", &format!("listener={}", gateway.edge2), "PROXY header"]);

    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
}

#[test]
fn the_log_tells_why_the_store_could_not_be_used() {
    let mut redis = RedisServer::setup().password("secret-password").start();
    let file = redis.store_within("1s")
        + "
listen: [{edge}]
limits:
  clients: {key: ip, rate: 1000000/min}
routes:
  - {respond: {body: done}, limits: [clients]}
";
    let setup = Setup::default().workers(1).env("RUST_LOG", "sluicegate=debug");
    let gateway = setup.start(&file);
    let server = format!("server=\"{}\"", redis.address);
    says(&gateway, &["store connection opened", &server]);
    assert_eq!(gateway.client().get("/").status, 200);

    until("a call finds that the scripts are missing", || {
        // A connection that is being opened loads them as well.
        redis.run::<()>(&["SCRIPT", "FLUSH"]);
        assert_eq!(gateway.client().get("/").status, 200);
        (!lines(&gateway, &["scripts loaded again (NOSCRIPT)", &server]).is_empty()).then_some(())
    });

    until("a call times out before it is known that none is answered", || {
        Fleet::up_of(&gateway);
        redis.freeze();
        assert_eq!(gateway.client().get("/").status, 200);
        redis.thaw();
        let timed_out = || lines(&gateway, &["store call timed out", &server, "requests=1"]);
        within(patience(1), || (!timed_out().is_empty()).then_some(()))
    });
    says(&gateway, &["the store answers again"]);

    redis.kill();
    says(&gateway, &["store connection lost, circuit breaker opened", &server, "reason="]);
    says(&gateway, &["circuit breaker half-open", &server]);
    says(&gateway, &["no store connection", &server, "Connection refused"]);
    let opened = lines(&gateway, &["store connection opened"]).len();
    redis.restart();
    until("the store connection is opened again", || {
        (lines(&gateway, &["store connection opened"]).len() > opened).then_some(())
    });

    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
}

#[test]
fn the_log_tells_why_the_configuration_was_loaded_again() {
    const RESPOND: &str = "routes: [{respond: {body: done}, limits: [l]}]\n";
    let config = |rate: u32| format!("limits: {{l: {{key: ip, rate: {rate}/min}}}}\n{RESPOND}");
    let gateway = Setup::default().env("RUST_LOG", "sluicegate=debug").start(&config(10));
    gateway.write(&config(20));
    says(&gateway, &["configuration reload started", "cause=\"file changed\"", "gateway.yaml"]);
    says(&gateway, &["listeners updated", "opened=0", "kept=1", "closed=0"]);
    says(&gateway, &["configuration in force", "generation=2", "limits=1", "counters_kept=1"]);
    says(&gateway, &["configuration reload finished", "cause=\"file changed\"", "generation=2", "elapsed="]);

    gateway.signal("HUP");
    says(&gateway, &["configuration reload finished", "cause=\"SIGHUP\"", "generation=3"]);
    gateway.admin_change("POST", "/reload");
    says(&gateway, &["configuration reload finished", "cause=\"admin API\"", "generation=4"]);
    gateway.write("limits: {}\nroutes: [{respond: {body: done}, limits: [l]}]\n");
    says(&gateway, &["configuration reload refused", "cause=\"file changed\"", "reason=", "elapsed="]);
}
