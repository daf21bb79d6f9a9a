//! Headers that the API may trust, and hop-by-hop headers that are not forwarded.

use std::collections::HashSet;

use crate::harness::{FORWARD_ALL, Gateway, Seen, Upstream};

/// What the upstream sees of a request with these headers.
fn forwarded(before: &str, headers: &[(&str, &str)]) -> Seen {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, &format!("{before}{FORWARD_ALL}"));
    assert_eq!(gateway.ask("GET", "/", headers).status, 200);
    upstream.last()
}

/// Headers of one connection are not forwarded, nor those that any of the Connection lines names.
#[test]
fn hop_by_hop_headers_are_not_forwarded() {
    let seen = forwarded(
        "",
        &[
            ("connection", "keep-alive, x-first"),
            ("x-first", "1"),
            ("x-second", "2"),
            ("X-Third", "3"),
            ("connection", "x-second"),
            ("Connection", " , X-THIRD ,close-not"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "gzip"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAA"),
            ("x-stays", "4"),
        ],
    );
    for name in [
        "connection",
        "x-first",
        "x-second",
        "x-third",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "upgrade",
        "transfer-encoding",
    ] {
        assert_eq!(seen.head.all(name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(seen.head.one("x-stays"), Some("4"));
}

/// Headers of the API's connection are not for the client.
#[test]
fn hop_by_hop_headers_of_the_api_do_not_come_back() {
    let upstream = Upstream::scripted(|exchange| {
        let headers = [
            ("connection", "x-mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-authenticate", "Basic"),
        ];
        exchange.answer(200, &headers, b"done");
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    let answer = client.get("/");
    for name in ["connection", "x-mine", "keep-alive", "proxy-authenticate"] {
        assert_eq!(answer.head.all(name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(client.get("/").status, 200);
}

/// A client cannot take away what the gateway adds by naming it in Connection.
#[test]
fn a_client_cannot_remove_the_gateways_headers() {
    let named = "x-forwarded-for, x-forwarded-proto, X-Forwarded-Host, x-request-id, x-real-ip, forwarded";
    let seen = forwarded("", &[("connection", named), ("cookie", "a=1"), ("authorization", "Bearer x")]);
    for name in [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-request-id",
        "cookie",
        "authorization",
    ] {
        assert!(seen.head.one(name).is_some(), "{name}");
    }
}

/// The API learns who the client is, which host it asked, over what, and the request has an id.
#[test]
fn the_api_learns_where_a_request_comes_from() {
    let seen = forwarded("", &[("host", "Shop.Example.com:8080")]);
    assert_eq!(seen.head.one("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.head.one("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.head.one("x-forwarded-host"), Some("Shop.Example.com:8080"));
    assert_eq!(seen.head.one("host"), Some("Shop.Example.com:8080"));
    assert!(seen.head.one("x-request-id").is_some_and(|id| id.len() >= 16));
}

/// What an untrusted peer says of itself is replaced or removed.
#[test]
fn an_untrusted_peer_is_not_trusted() {
    let seen = forwarded(
        "",
        &[
            ("x-forwarded-for", "1.2.3.4"),
            ("X-Forwarded-For", "5.6.7.8"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil.test"),
            ("x-request-id", "mine"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
        ],
    );
    assert_eq!(seen.head.one("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.head.one("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.head.one("x-forwarded-host"), Some("api.test"));
    assert_ne!(seen.head.one("x-request-id"), Some("mine"));
    assert_eq!((seen.head.one("forwarded"), seen.head.one("x-real-ip")), (None, None));
}

/// Nor is it where there is nothing to replace it with: a request of HTTP/1.0 need not name a host.
#[test]
fn forwarded_hosts_of_untrusted_peers_are_removed() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nX-Forwarded-Host: evil.test\r\n\r\n");
    let head = client.reader.head().unwrap().unwrap();
    assert!(head.first.contains(" 200 "), "{head:?}");
    assert_eq!(upstream.last().head.one("x-forwarded-host"), None);
}

/// A trusted proxy is believed, and its own address is appended.
#[test]
fn headers_of_a_trusted_proxy_are_kept() {
    let seen = forwarded(
        "client_ip: {trusted_proxies: [127.0.0.0/8]}\n",
        &[
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.test"),
            ("x-request-id", "from-the-proxy"),
        ],
    );
    assert_eq!(seen.head.one("x-forwarded-for"), Some("1.2.3.4, 10.0.0.1, 10.0.0.2, 127.0.0.1"));
    assert_eq!(seen.head.one("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.head.one("x-forwarded-host"), Some("shop.test"));
    assert_eq!(seen.head.one("x-request-id"), Some("from-the-proxy"));
}

/// A trusted proxy that says nothing is filled in for.
#[test]
fn headers_that_a_trusted_proxy_omits_are_added() {
    let seen = forwarded("client_ip: {trusted_proxies: [127.0.0.1]}\n", &[]);
    assert_eq!(seen.head.one("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(
        (seen.head.one("x-forwarded-proto"), seen.head.one("x-forwarded-host")),
        (Some("http"), Some("api.test"))
    );
    assert!(seen.head.one("x-request-id").is_some());
}

/// Every request has an id of its own.
#[test]
fn request_ids_are_unique() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for _ in 0..4 {
        gateway.statuses(25, "/", &[]);
    }
    let ids: HashSet<String> =
        upstream.seen().iter().map(|seen| seen.head.one("x-request-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 100);
}

/// However a request is framed, the API gets one framing of it, and no second request hidden in the first.
#[test]
fn no_request_is_smuggled_behind_another() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: api.test\r\n\r\n";
    for head in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 40\r\n",
        "Content-Length: 4, 40\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 0x4\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
    ] {
        let upstream = Upstream::answering("done");
        let gateway = Gateway::before(&upstream, FORWARD_ALL);
        let mut client = gateway.client();
        client.send(format!("POST /first HTTP/1.1\r\nHost: api.test\r\n{head}\r\n0\r\n\r\n{hidden}"));
        let answer = client.response();
        while client.try_response().is_ok() {} // whatever else it answers, until it closes
        for seen in upstream.seen() {
            assert_ne!(seen.target, "/hidden", "smuggled by {head:?}, answered {}", answer.status);
            let framings = seen.head.all("content-length").len() + seen.head.all("transfer-encoding").len();
            assert!(framings <= 1, "{head:?} was forwarded as {:?}", seen.head);
        }
        assert!(
            answer.status == 400 || upstream.seen().len() == 1,
            "{head:?} was answered {}",
            answer.status
        );
    }
}

/// A client cannot take away what decides about its request by naming it in Connection, nor say it in another spelling: keys, the
/// headers by which requests are divided or spread, and that of priorities.
#[test]
fn headers_that_decide_are_not_of_one_connection() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "client_ip: {trusted_proxies: [127.0.0.1]}\npriorities: {header: X-Priority, forward: true}\n\
         limits: {l: {key: global, rate: 1000/d, fair: {by: \"header:X-Tenant\"}}, k: {key: \"header:X-Key\", rate: 1000/d}}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"], balance: {hash: \"header:X-Shard\"}, overload: {}}}\n\
         routes: [{name: api, upstream: api, limits: [l, k]}]\n",
    );
    for name in ["x-key", "x-tenant", "x-shard", "x-priority"] {
        assert_eq!(gateway.ask("GET", "/", &[("connection", name), (name, "1")]).status, 400, "{name}");
        let spelled = name.replace('-', "_");
        assert_eq!(gateway.ask("GET", "/", &[(&spelled, "1")]).status, 200, "{name}");
        assert!(upstream.last().head.one(&spelled).is_none(), "{spelled}");
    }
    assert_eq!(gateway.ask("GET", "/", &[("connection", "x-other"), ("x-other", "1")]).status, 200);
}
