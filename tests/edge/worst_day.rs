//! Everything at once: under hundreds of requests a second, certificates, servers and listeners change, the binary is
//! replaced, and a server dies. No request fails.

use std::time::Duration;

use crate::harness::tls::Authority;
use crate::harness::{Gateway, Load, ReservedPort, Setup, deadline, until};

/// The file: `servers` of the API, and more listeners than the first.
fn file(servers: &[usize], listeners: &str) -> String {
    let servers: Vec<String> = servers.iter().map(|at| format!("\"http://{{server{at}}}\"")).collect();
    format!(
        "listen:\n  - {{name: edge, address: \"{{edge}}\"}}\n\
         \x20 - {{name: secure, address: \"{{secure}}\", tls: {{certificates: [{{cert: api.pem, key: api.key}}]}}}}\n\
         {listeners}\
         upstreams:\n  api: {{servers: [{}], retries: 2, health: {{path: /, every: 100ms, timeout: 1s}}}}\n\
         limits: {{wide: {{key: ip, rate: 1M/s}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api, limits: [wide]}}]\n",
        servers.join(", ")
    )
}

#[test]
fn everything_changes_and_no_request_fails() {
    let mut servers: Vec<Gateway> = (0..3)
        .map(|_| Gateway::start("routes: [{name: all, match: {path: /*}, respond: {status: 200}}]\n"))
        .collect();
    let authority = Authority::new();
    let certificate = authority.sign(&["localhost"]);
    let secure = ReservedPort::new();
    let mut setup = Setup::default()
        .value("secure", secure.address)
        .handover()
        .file("api.pem", &certificate.cert)
        .file("api.key", &certificate.key);
    for (at, server) in servers.iter().enumerate() {
        setup = setup.value(&format!("server{at}"), server.edge);
    }
    let mut old = setup.start(&file(&[0, 1], ""));
    // 16 connections with a request every 32 ms each: 500 a second, half of them on connections of their own.
    let kept = Load::on(std::slice::from_ref(&old), 8).pause(Duration::from_millis(32)).start();
    let anew = Load::on(std::slice::from_ref(&old), 8).pause(Duration::from_millis(32)).anew().start();
    let some_more = || {
        let before = (kept.answered(), anew.answered());
        until("some more requests", || {
            (kept.answered() > before.0 + 50 && anew.answered() > before.1 + 50).then_some(())
        });
    };
    some_more();

    let renewed = authority.sign(&["localhost"]);
    old.write_file("api.key", &renewed.key);
    old.write_file("api.pem", &renewed.cert);
    until("the new certificate is in force", || old.log().contains("api.pem is in force").then_some(()));
    some_more();
    old.reload(&file(&[0, 1, 2], ""));
    some_more();
    old.reload(&file(&[0, 1, 2], "  - {name: more, address: \"{edge2}\"}\n"));
    assert_eq!(crate::harness::Client::connect(old.edge2).get("/").status, 200);
    some_more();
    old.reload(&file(&[2, 1, 0], ""));
    some_more();

    let new = old.successor();
    some_more();
    assert_eq!(old.ended(deadline()).code(), Some(0));
    some_more();

    servers[1].signal("KILL");
    servers[1].ended(deadline());
    some_more();
    some_more();
    assert_eq!(new.admin_get("/readyz").status, 200);

    for (samples, connections) in [(kept.stop(), "kept"), (anew.stop(), "new")] {
        let lost: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
        assert!(
            lost.is_empty(),
            "{} of {} on {connections} connections: {lost:?}",
            lost.len(),
            samples.len()
        );
    }
}
