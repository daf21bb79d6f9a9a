//! Behind a load balancer for TCP: the PROXY header gives the address of the client, and a connection without it is
//! closed.

use std::sync::Arc;

use crate::harness::tls::{Authority, TlsClient};
use crate::harness::{Gateway, Setup, Upstream, until};

const LISTEN: &str = "listen: [{name: edge, address: \"{edge}\", proxy_protocol: true}]\n";

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family], &length, body].concat()
}

fn get(gateway: &Gateway, header: &[u8]) -> String {
    let mut client = gateway.client();
    client.send(header);
    client.get("/").text()
}

/// An upstream that answers with what it is told of the client, and a gateway before it.
fn telling(more: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::scripted(|exchange| {
        let shown = exchange.seen.head.all("x-forwarded-for").join("|");
        exchange.answer(200, &[], shown.as_bytes());
    });
    let yaml = format!(
        "{LISTEN}{more}upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\nroutes: [{{upstream: api}}]\n"
    );
    let gateway = Gateway::before(&upstream, &yaml);
    (upstream, gateway)
}

#[test]
fn both_versions_give_the_client_address() {
    let (_upstream, gateway) = telling("");
    assert_eq!(get(&gateway, b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n"), "203.0.113.9");
    assert_eq!(get(&gateway, b"PROXY TCP6 2001:db8::9 ::1 4711 443\r\n"), "2001:db8::9");
    assert_eq!(get(&gateway, b"PROXY UNKNOWN\r\n"), "127.0.0.1");
    let v4 = [&[198, 51, 100, 7, 192, 0, 2, 1][..], &[0x12, 0x67, 0x01, 0xbb]].concat();
    assert_eq!(get(&gateway, &v2(0x21, 0x11, &v4)), "198.51.100.7");
    assert_eq!(get(&gateway, &v2(0x20, 0x00, &[])), "127.0.0.1");
    assert_eq!(get(&gateway, &v2(0x21, 0x12, &v4)), "127.0.0.1", "datagrams tell no client");
    // In pieces, as it may come.
    let mut client = gateway.client();
    for byte in b"PROXY TCP4 203.0.113.10 192.0.2.1 4711 443\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.get("/").text(), "203.0.113.10");
    assert_eq!(client.get("/").text(), "203.0.113.10", "it is said once a connection");
}

/// Nothing but the header says it: without one there is no answer, and what is forged behind it is not believed.
#[test]
fn a_connection_without_a_header_is_closed() {
    let (upstream, gateway) = telling("");
    let labels = [("listener", "edge"), ("reason", "no_proxy_header")];
    let count = || gateway.metric("sluicegate_connections_refused_total", &labels);
    let before = count();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"[..],
        b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\nGET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
        b"PROXY TCP4 203.0.113.999 192.0.2.1 4711 443\r\nGET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &v2(0x21, 0x41, &[0; 12]), // a family that the protocol does not have
        &v2(0x21, 0x11, &[0; 8]),  // shorter than its addresses
    ] {
        let mut client = gateway.client();
        let _ = client.try_send(bytes); // it may be closed before all is sent
        assert!(client.is_closed(), "{}", String::from_utf8_lossy(&bytes[..20]));
    }
    assert_eq!(upstream.connections(), 0);
    until("they are counted", || (count() >= before + 6.0).then_some(()));
    let mut forged = gateway.client();
    forged.send("PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\nPROXY TCP4 10.0.0.1 192.0.2.1 4711 443\r\n");
    assert_eq!(forged.response().status, 400);
}

/// The address counts for limits; and whom it names may be a trusted proxy of HTTP in turn.
#[test]
fn limits_count_the_address_of_the_header() {
    let yaml = format!(
        "{LISTEN}client_ip: {{trusted_proxies: [10.0.0.0/8]}}\nlimits: {{l: {{key: ip, rate: 1/h}}}}\n\
         routes: [{{respond: {{status: 200}}, limits: [l]}}]\n"
    );
    let gateway = Gateway::start(&yaml);
    let ask = |source: &str, said: &str| {
        let mut client = gateway.client();
        client.send(format!("PROXY TCP4 {source} 192.0.2.1 4711 443\r\n"));
        client.ask("GET", "/", &[("x-forwarded-for", said)]).status
    };
    assert_eq!([ask("203.0.113.9", "1.1.1.1"), ask("203.0.113.9", "2.2.2.2")], [200, 429]);
    assert_eq!(ask("203.0.113.10", "1.1.1.1"), 200);
    assert_eq!([ask("10.0.0.1", "192.0.2.77"), ask("10.0.0.2", "192.0.2.77")], [200, 429]);
}

/// The header comes before TLS, and the number of connections of an address is that of the address it names.
#[test]
fn the_header_comes_before_tls() {
    let authority = Authority::new();
    let own = authority.sign(&["api.test"]);
    let yaml = "listen: [{name: edge, address: \"{edge}\", proxy_protocol: true, max_connections_per_ip: 2,\n  \
                tls: {certificates: {cert: own.pem, key: own.key}}}]\n\
                routes: [{respond: {status: 200, body: ok}}]\n";
    let gateway = Setup::default().file("own.pem", &own.cert).file("own.key", &own.key).start(yaml);
    let config = Arc::new(authority.client(None));
    let connect = |source: &str| {
        let header = format!("PROXY TCP4 {source} 192.0.2.1 4711 443\r\n");
        TlsClient::connect(&config, gateway.edge, "api.test", header.as_bytes())
    };
    let mut first = connect("203.0.113.9").unwrap();
    assert_eq!(first.ask("/", &[]).unwrap(), (200, "ok".to_owned()));
    let second = connect("203.0.113.9").unwrap();
    assert!(connect("203.0.113.9").is_err());
    assert!(connect("203.0.113.10").is_ok());
    drop(second);
    until("its place is free again", || connect("203.0.113.9").ok());
    assert!(TlsClient::connect(&config, gateway.edge, "api.test", b"").is_err());
}
