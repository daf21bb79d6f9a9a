//! A server that fails is reported: once in the process log, in the access log, and in /status.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::harness::{Gateway, ReservedPort, Setup, until};

const FILE: &str = "access_log: {path: access.log}\n\
                    upstreams: {api: {servers: [\"http://{dead}\"], retries: {attempts: 0}, timeouts: {response: {time}}}}\n\
                    routes: [{name: api, upstream: api}]\n";

#[track_caller]
fn log_says(gateway: &Gateway, why: &str) {
    let warnings = || gateway.log().matches("does not serve requests").count();
    until("the log tells", || (warnings() > 0).then_some(()));
    assert_eq!(warnings(), 1, "{}", gateway.log());
    assert!(gateway.times_logged(why) > 0);
    let address = &gateway.admin_get("/status").json()["upstreams"][0]["servers"][0]["addresses"][0];
    assert_eq!(address["answers"], false, "{address}");
    assert!(address["trouble"].as_str().unwrap().contains(why), "{address}");
    let line = until("the access log tells", || {
        let log = std::fs::read_to_string(gateway.path("access.log")).ok()?;
        log.lines().find(|line| line.contains("upstream_error")).map(str::to_owned)
    });
    assert!(line.contains(why), "{line}");
}

/// A server that refuses connections is told of once, and so is its return.
#[test]
fn a_server_that_refuses_connections_is_reported() {
    let dead = ReservedPort::new();
    let gateway = Setup::default().value("dead", dead.address).value("time", "30s").start(FILE);
    for _ in 0..5 {
        assert_eq!(gateway.get("/").status, 502);
    }
    log_says(&gateway, "Connection refused");
    let back = dead.listen();
    std::thread::spawn(move || {
        for mut stream in back.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    assert_eq!(gateway.get("/").status, 200);
    until("its return is told", || gateway.log().contains("serves requests again").then_some(()));
    let address = &gateway.admin_get("/status").json()["upstreams"][0]["servers"][0]["addresses"][0];
    assert_eq!((&address["answers"], &address["trouble"]), (&true.into(), &serde_json::Value::Null));
}

/// So is one that does not answer in time.
#[test]
fn a_server_that_does_not_answer_is_reported() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup::default().value("dead", silent.local_addr().unwrap());
    let gateway = setup.value("time", "200ms").start(FILE);
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 504);
    }
    log_says(&gateway, "no response in time");
}
