//! A request has one path and one host, however they are written: no spelling evades a limit, and ambiguous requests
//! are refused.

use crate::harness::h2::{End, H2, get};
use crate::harness::{Gateway, Upstream};

/// `/login` is limited and everything else is not; both are forwarded.
const LOGIN: &str = "limits: {l: {key: global, rate: 1/day}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                     routes:\n  - {name: login, match: {path: /v1/login}, upstream: api, limits: [l]}\n  \
                     - {name: rest, match: {path: /*}, upstream: api}\n";

/// Every way to write `/v1/login`.
const SPELLINGS: [&str; 16] = [
    "/v1/login",
    "//v1/login",
    "/v1//login",
    "///v1////login",
    "/./v1/login",
    "/v1/./login",
    "/v1/x/../login",
    "/../v1/login",
    "/x/../../v1/login",
    "/v1/%6cogin",
    "/v1/%6Cogin",
    "/%76%31/%6c%6f%67%69%6e",
    "/v1/%2e/login",
    "/v1/x/%2e%2E/login",
    "/v1/x/.%2e/login",
    "/v1/login?next=/v1/other",
];

/// Each spelling of a limited path is that path: it counts, and the API sees the one spelling.
#[test]
fn every_spelling_of_a_path_is_limited() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, LOGIN);
    let mut client = gateway.client();
    for (at, spelling) in SPELLINGS.iter().enumerate() {
        assert_eq!(gateway.admin_change("DELETE", "/limits/l/keys/any").status, 200);
        assert_eq!(client.get(spelling).status, 200, "{spelling}");
        let query = spelling.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
        assert_eq!(
            upstream.last().target,
            format!("/v1/login{query}"),
            "{spelling} is forwarded in normal form"
        );
        let next = SPELLINGS[(at + 1) % SPELLINGS.len()];
        assert_eq!(client.get(next).status, 429, "{next} after {spelling}");
    }
}

/// `forward_path: original` forwards what came, and is limited all the same.
#[test]
fn the_original_path_can_be_forwarded() {
    let upstream = Upstream::answering("done");
    let file =
        LOGIN.replace("limits: [l]}", "limits: [l], forward_path: original}").replace("1/day", "100/day");
    let gateway = Gateway::before(&upstream, &file);
    let mut client = gateway.client();
    for (at, spelling) in SPELLINGS.iter().enumerate() {
        assert_eq!(client.get(spelling).status, 200);
        assert_eq!(upstream.last().target, *spelling);
        assert_eq!(gateway.remaining("l", "any"), 99 - at as u64, "{spelling}");
    }
}

/// What means something else stays as it is, and is another path where a route says that spellings are exact.
#[test]
fn reserved_characters_stay_encoded() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, &LOGIN.replace("/v1/login}", "/v1/login, spelling: exact}"));
    let mut client = gateway.client();
    client.get("/v1/login");
    for target in [
        "/v1/login/",
        "/v1/Login",
        "/v1/login;x",
        "/v1/login%20",
        "/v1/%256cogin",
        "/V1/login",
        "/v1/login%3Fx",
    ] {
        assert_eq!(client.get(target).status, 200, "{target} is another path");
        assert_eq!(upstream.last().target, target);
    }
    assert_eq!(client.get("/a%e4b?%e4=%2f&a=//").status, 200);
    assert_eq!(
        upstream.last().target,
        "/a%E4b?%e4=%2f&a=//",
        "escapes are in upper case, and the query as it came"
    );
}

/// A path that servers read in two ways is 400, and so is one that is no path.
#[test]
fn an_ambiguous_path_is_400() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, LOGIN);
    for target in [
        "/v1%2flogin",
        "/v1%2Flogin",
        "/v1%5clogin",
        "/v1%5Clogin",
        "/v1\\login",
        "/v1/login%00",
        "/v1/login%0a",
        "/v1/%c0%afx",
        "/v1/x/..;/login",
        "/v1/x/%252e%252e/login",
        "/v1/x%252flogin",
        "/v1/;x/login",
        "/v1/%20/login",
        "/v1/%EF%BC%8E%EF%BC%8E/login",
        "/%00",
        "/v1/%",
        "/v1/%6",
        "/v1/%zz",
        "/v1/%+1",
        "v1/login",
        "?x",
        "*",
        "/..%2fv1/login",
        "/v1/x/..%5clogin",
    ] {
        let mut client = gateway.client();
        let answer = client.get(target);
        assert_eq!(answer.status, 400, "{target}");
        answer.problem();
    }
    assert_eq!(upstream.seen().len(), 0);
}

/// A fragment has no place in a request: it is refused or cut off, and limited in both cases.
#[test]
fn a_fragment_does_not_hide_a_path() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, LOGIN);
    gateway.get("/v1/login");
    let status = gateway.get("/v1/login#x").status;
    assert!(matches!(status, 400 | 429), "{status}");
    assert_eq!(upstream.seen().len(), 1);
}

/// Methods that no gateway serves.
#[test]
fn connect_and_asterisk_are_refused() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, LOGIN);
    for (method, target) in
        [("CONNECT", "api.test:443"), ("CONNECT", "/"), ("CONNECT", "http://api.test/"), ("GET", "*")]
    {
        let mut client = gateway.client();
        let answer = client.ask(method, target, &[]);
        assert!(matches!(answer.status, 400 | 405), "{method} {target} is answered {}", answer.status);
        answer.problem();
        assert!(!(200..300).contains(&answer.status));
    }
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!(gateway.ask("OPTIONS", "/", &[]).status, 200, "OPTIONS of a path is forwarded");
}

/// One route for `api.example.com`, one for all names below `example.org`.
fn hosts(upstream: &Upstream) -> Gateway {
    Gateway::before(
        upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
         - {name: exact, match: {host: api.example.com, path: /exact}, upstream: api}\n  \
         - {name: below, match: {host: \"*.example.org\", path: /below}, upstream: api}\n  \
         - {name: any, match: {path: /any}, upstream: api}\n",
    )
}

/// Case, port and a trailing dot make no other host.
#[test]
fn a_host_has_no_case_port_or_trailing_dot() {
    let upstream = Upstream::answering("done");
    let gateway = hosts(&upstream);
    let status = |target: &str, host: &str| gateway.ask("GET", target, &[("host", host)]).status;
    for host in [
        "api.example.com",
        "API.Example.COM",
        "api.example.com:8080",
        "api.example.com.",
        "Api.Example.Com.:80",
        "api.example.com:",
    ] {
        assert_eq!(status("/exact", host), 200, "{host}");
    }
    for host in
        ["example.com", "x.api.example.com", "api.example.comx", "xapi.example.com", "127.0.0.1", "[::1]:80"]
    {
        assert_eq!(status("/exact", host), 404, "{host}");
    }
    for host in ["a.example.org", "A.B.EXAMPLE.org.", "a.example.org:1"] {
        assert_eq!(status("/below", host), 200, "{host}");
    }
    for host in ["example.org", ".example.org", "badexample.org", "example.org.a"] {
        assert_ne!(status("/below", host), 200, "{host}");
    }
}

/// A request names one host: none, two, or two different ones are 400.
#[test]
fn a_request_names_one_host() {
    let upstream = Upstream::answering("done");
    let gateway = hosts(&upstream);
    let mut wrong = Vec::new();
    for head in [
        "GET /any HTTP/1.1\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost:\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test\r\nhost: b.test\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test b.test\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test/x\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: user@a.test\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test:80x\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test:80:80\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: ..\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test..\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: [::1\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: ::1\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: a.test%00\r\n\r\n",
        "GET /any HTTP/1.1\r\nHost: %61.test\r\n\r\n",
        "GET http://user@a.test/any HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ] {
        let answer = gateway.client().send(head).response();
        match answer.status {
            400 => _ = answer.problem(),
            status => wrong.push((head, status)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(upstream.seen().len(), 0);
}

/// A request in absolute form is the one that its target names.
#[test]
fn the_absolute_form_is_understood() {
    let upstream = Upstream::answering("done");
    let gateway = hosts(&upstream);
    for head in [
        "GET http://api.example.com/exact?x=1 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "GET http://API.example.com/./exact?x=1 HTTP/1.1\r\nHost: api.example.COM\r\n\r\n",
        "GET http://api.example.com/exact?x=1 HTTP/1.1\r\nHost: other.test\r\n\r\n",
    ] {
        assert_eq!(gateway.client().send(head).response().status, 200, "{head:?}");
        let seen = upstream.last();
        assert_eq!(seen.target, "/exact?x=1", "the API gets the origin form");
        assert!(seen.head.one("host").unwrap().eq_ignore_ascii_case("api.example.com"));
    }
    let head = "GET http://api.example.com:80/exact HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    assert_eq!(gateway.client().send(head).response().status, 200);
    assert_eq!(upstream.last().head.one("host"), Some("api.example.com:80"));
}

/// HTTP/1.0 needs no host: such a request takes routes that ask for none.
#[test]
fn a_request_of_http_1_0_needs_no_host() {
    let upstream = Upstream::answering("done");
    let gateway = hosts(&upstream);
    for (target, status) in [("/any", " 200 "), ("/exact", " 404 "), ("/below", " 404 ")] {
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
        let head = client.reader.head().unwrap().unwrap();
        assert!(head.first.contains(status), "{target}: {head:?}");
    }
}

/// A limit by host counts all spellings of a host together.
#[test]
fn a_limit_by_host_counts_every_spelling() {
    let gateway = Gateway::start(
        "limits: {l: {key: host, rate: 3/day}}\nroutes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let status = |host: &str| gateway.ask("GET", "/", &[("host", host)]).status;
    assert_eq!(
        [status("a.test"), status("A.Test:8080"), status("a.test."), status("a.TEST.:1")],
        [200, 200, 200, 429]
    );
    assert_eq!(status("b.test"), 200);
}

/// The first route that matches wins, by listener, host, path, method and header.
#[test]
fn the_first_route_that_matches_wins() {
    let gateway = Gateway::start(
        "routes:\n  - {name: a, match: {path: /v1/special, methods: [POST, PUT]}, respond: {status: 201}}\n  \
         - {name: b, match: {path: \"/v1/{id}\", headers: {x-beta: \"*\"}}, respond: {status: 202}}\n  \
         - {name: c, match: {path: [/v1/*, /v2/*]}, respond: {status: 203}}\n  \
         - {name: d, match: {host: [a.test, b.test]}, respond: {status: 206}}\n",
    );
    let status =
        |method: &str, target: &str, headers: &[(&str, &str)]| gateway.ask(method, target, headers).status;
    assert_eq!(status("POST", "/v1/special", &[("x-beta", "1")]), 201);
    assert_eq!(status("GET", "/v1/special", &[("x-beta", "1")]), 202);
    assert_eq!(status("GET", "/v1/special", &[]), 203);
    assert_eq!(
        [status("GET", "/v1", &[]), status("GET", "/v1/", &[]), status("GET", "/v2/a/b", &[])],
        [203; 3]
    );
    assert_eq!(
        [status("GET", "/v1x", &[("host", "a.test")]), status("GET", "/", &[("host", "b.test")])],
        [206; 2]
    );
    assert_eq!(status("GET", "/v1x", &[]), 404);
}

/// Characters that have to be percent-encoded are encoded, over HTTP/1.1 and HTTP/2 alike, and bytes that are not ASCII are refused.
#[test]
fn characters_that_have_to_be_encoded() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    for (sent, forwarded) in [
        ("/x?q={\"a\":1}", Some("/x?q={%22a%22:1}")),
        ("/x?q=<b>", Some("/x?q=%3Cb%3E")),
        ("/x?a|b", Some("/x?a|b")),
        ("/<x>", Some("/%3Cx%3E")),
        ("/a`b", Some("/a%60b")),
        ("/x?q=\u{e9}", None),
        ("/\u{e9}", None),
    ] {
        let mut client = gateway.client();
        client.send(format!("GET {sent} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.response();
        let mut h2 = H2::connect(gateway.edge);
        h2.send(get(1, sent));
        let over_h2 = h2.end(1);
        match forwarded {
            Some(target) => {
                assert_eq!((answer.status, over_h2), (200, End::Status(200)), "{sent}");
                let seen: Vec<String> =
                    upstream.seen().iter().rev().take(2).map(|seen| seen.target.clone()).collect();
                assert_eq!(seen, [target, target], "{sent}");
            }
            None => {
                assert_eq!((answer.status, over_h2), (400, End::Status(400)), "{sent}");
                assert!(answer.text().contains("percent-encoded"), "{}", answer.text());
            }
        }
    }
}
