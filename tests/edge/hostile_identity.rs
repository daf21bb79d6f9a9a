//! No client gets another identity or another resource with a header or a method that some server honours.

use crate::harness::{Gateway, Upstream};

const FILE: &str = "limits: {l: {key: ip, rate: 1/day}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                    routes:\n  - {name: secret, match: {path: /secret}, upstream: api, limits: [l]}\n  \
                    - {name: rest, match: {path: /*}, upstream: api}\n";

/// Headers by which proxies say who their client is, or which some servers take for that.
const IDENTITIES: [&str; 32] = [
    "X-Forwarded-For",
    "X-Real-IP",
    "Forwarded",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Client-IP",
    "Client-IP",
    "X-Cluster-Client-IP",
    "Fastly-Client-IP",
    "X-Azure-ClientIP",
    "X-Originating-IP",
    "X-Remote-IP",
    "X-Remote-Addr",
    "Remote-Addr",
    "X-ProxyUser-Ip",
    "X-Original-Forwarded-For",
    "X-Original-Remote-Addr",
    "Forwarded-For",
    "X-Forwarded",
    "X-Forwarded-By",
    "X-Forwarded-Server",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Scheme",
    "X-Forwarded-For-Original",
    "X-Forward-For",
    "X-Host",
    "X-Custom-IP-Authorization",
    "X-True-IP",
    "Real-IP",
    "X-Envoy-External-Address",
];

/// Headers by which some servers take another path or method than the request's.
const OVERRIDES: [&str; 8] = [
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Override-URL",
    "X-Original-URI",
    "X-HTTP-DestinationURL",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
];

const ADDRESSES: [&str; 9] = [
    "127.0.0.1",
    "127.0.0.2",
    "10.0.0.1",
    "192.168.0.1",
    "203.0.113.7",
    "::1",
    "localhost",
    "0x7f000001",
    "for=203.0.113.7;by=_x",
];

/// A client that says it is somebody else stays limited, whatever the header, the address and the way to write it.
#[test]
fn an_untrusted_client_is_its_address() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    let mut client = gateway.client();
    assert_eq!(client.get("/secret").status, 200);
    for name in IDENTITIES {
        for address in ADDRESSES {
            for name in [name.to_owned(), name.replace('-', "_"), name.replacen('-', "_", 1)] {
                let status =
                    client.ask("GET", "/secret", &[(&name, address), (&name, "198.51.100.1")]).status;
                assert_eq!(status, 429, "{name}: {address}");
            }
        }
    }
    assert_eq!(upstream.seen().len(), 1);
}

/// What it says of itself does not reach the API either, in no way of writing it; a proxy that is trusted is heard.
#[test]
fn forged_identities_are_not_forwarded() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    let spelled =
        |name: &str| [name.to_owned(), name.replace('-', "_"), name.to_uppercase().replacen('-', "_", 1)];
    for name in IDENTITIES.iter().chain(&OVERRIDES).flat_map(|name| spelled(name)) {
        assert_eq!(gateway.ask("GET", "/", &[(&name, "spoofed.test"), ("X-Mine", "1")]).status, 200);
        let seen = upstream.last().head;
        assert!(!seen.headers.iter().any(|(_, value)| value.contains("spoofed")), "{name}: {seen:?}");
        assert_eq!(seen.one("x-mine"), Some("1"));
    }
    gateway.ask("GET", "/", &[("Proxy", "http://spoofed.test/")]);
    assert_eq!(upstream.last().head.one("proxy"), None, "to CGI this is HTTP_PROXY");

    let file = format!("client_ip: {{trusted_proxies: [127.0.0.1]}}\n{FILE}");
    let gateway = Gateway::before(&upstream, &file);
    let said =
        [("CF-Connecting-IP", "198.51.100.1"), ("X_Forwarded_For", "1.1.1.1"), ("X-Original-URL", "/admin")];
    assert_eq!(gateway.ask("GET", "/", &said).status, 200);
    let seen = upstream.last().head;
    assert_eq!(seen.one("cf-connecting-ip"), Some("198.51.100.1"));
    assert_eq!(
        (seen.one("x_forwarded_for"), seen.one("x-original-url")),
        (None, None),
        "no proxy writes these"
    );
}

/// A path or a method in a header is not forwarded, unless the route wants it so.
#[test]
fn method_overrides_are_forwarded_where_configured() {
    let upstream = Upstream::answering("done");
    let file = FILE.replace(
        "match: {path: /*}, upstream: api}",
        "match: {path: /*}, upstream: api, override_headers: forwarded}",
    );
    let gateway = Gateway::before(&upstream, &file);
    for name in OVERRIDES {
        gateway.ask("POST", "/", &[(name, "/secret")]);
        assert_eq!(upstream.last().head.one(&name.to_lowercase()), Some("/secret"), "{name}");
    }
}

/// Every method is under the limit, or none that is served; and none makes a time series of its own.
#[test]
fn methods_are_limited_alike() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    assert_eq!(gateway.get("/secret").status, 200);
    assert_eq!((gateway.get("/secret").status, gateway.ask("TRACE", "/", &[]).status), (429, 405));
    let series = gateway.metrics().series();
    for method in [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "COPY",
        "MOVE",
        "PROPFIND",
        "LABEL",
        "VERSION-CONTROL",
        "UNCHECKOUT",
        "FOO",
        "M-SEARCH",
    ] {
        assert_eq!(gateway.ask(method, "/secret", &[]).status, 429, "{method}");
    }
    for method in ["get", "Get", "gET", "TRACE", "TRACK", "trace", "CONNECT", "foo"] {
        let answer = gateway.ask(method, "/secret", &[]);
        assert!(matches!(answer.status, 400 | 405), "{method} is answered {}", answer.status);
    }
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(gateway.metrics().series(), series, "no method makes a series");
}

/// What a request is nothing without cannot be named in Connection, to have it removed on the way.
#[test]
fn essential_headers_are_not_hop_by_hop() {
    let upstream = Upstream::answering("done");
    let file = FILE
        .replace("key: ip", "key: [ip, \"header:X-Tenant\"]")
        .replace("match: {path: /secret}", "match: {path: /secret, headers: {X-Web: \"1\"}}");
    let gateway = Gateway::before(&upstream, &file);
    for named in [
        "Host",
        "close, host",
        "content-length",
        "Content-Type",
        "x, Content-Encoding",
        "Authorization",
        "cookie",
        "X-Api-Key",
        "x-tenant",
        "keep-alive,X-WEB",
    ] {
        let answer = gateway.ask("GET", "/", &[("Connection", "keep-alive"), ("Connection", named)]);
        assert_eq!(answer.status, 400, "{named}");
        answer.problem();
    }
    assert_eq!(upstream.seen().len(), 0);
    for named in ["X-Foo", "close, X-Foo", "te, X-Foo", "X-Forwarded-For, X-Foo", "X_Tenant2, x-foo"] {
        let answer = gateway.ask("GET", "/", &[("Connection", named), ("X-Foo", "1")]);
        assert_eq!(answer.status, 200, "{named}");
        let seen = upstream.last().head;
        assert_eq!((seen.one("x-foo"), seen.one("x-forwarded-for")), (None, Some("127.0.0.1")), "{named}");
    }
}

/// Whatever its target says, a request goes to the upstream of its route.
#[test]
fn no_target_chooses_the_upstream() {
    let (own, other) = (Upstream::answering("own"), Upstream::answering("other"));
    let gateway = Gateway::before(&own, FILE);
    let host = other.address.to_string();
    for target in [format!("http://{host}/x"), format!("http://{host}/secret")] {
        let answer =
            gateway.client().send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).response();
        assert_eq!(answer.text(), "own", "{target}");
    }
    for (name, value) in
        [("X-Forwarded-Host", &*host), ("X-Host", &host), ("Host", &host), ("Destination", &host)]
    {
        assert_eq!(gateway.ask("GET", "/x", &[(name, value)]).text(), "own", "{name}");
    }
    assert_eq!(other.connections(), 0);
}
