//! Names of headers in the case of the configuration, for peers that compare them with regard to case.

use crate::harness::{Gateway, Upstream};

const FILE: &str = "header_case: [ETag, X-API-Key, Content-Length, Date, Link, Connection, Sec-WebSocket-Accept, X-RateLimit-Limit]\n\
    limits: {one: {key: ip, rate: 100/day}}\n\
    upstreams: {api: {servers: [\"http://{upstream}\"], header_case: [SOAPAction, Host, X-Added, Content-Length, Transfer-Encoding]}}\n\
    routes: [{name: all, upstream: api, limits: [one], request_headers: {set: {x-added: \"1\"}}}]\n";

fn server() -> Upstream {
    Upstream::scripted(|exchange| {
        let _ = exchange.body();
        match exchange.seen.target.as_str() {
            "/hint" => {
                exchange.write("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nx-other: 1\r\n\r\n");
            }
            "/switch" => {
                let head =
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n";
                exchange.write(format!("{head}sec-websocket-accept: x\r\n\r\n"));
                return exchange.close();
            }
            _ => {}
        }
        exchange.answer(200, &[("etag", "\"1\""), ("X-Other", "x-api-key: 1"), ("x-api-key", "2")], b"done");
    })
}

/// Of these names those that occur, in their case.
#[track_caller]
fn assert_names(names: &[String], expected: &[&str]) {
    for name in expected {
        let same: Vec<&String> = names.iter().filter(|other| other.eq_ignore_ascii_case(name)).collect();
        assert_eq!(same, [name], "{names:?}");
    }
}

/// Listed names have their case in requests with and without a body, whoever sets them; all others are in lower case.
#[test]
fn servers_receive_names_in_the_case_of_the_upstream() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, FILE);
    let mut client = gateway.client();
    assert_eq!(client.ask("GET", "/", &[("soapaction", "\"a\""), ("X-Other", "1")]).status, 200);
    assert_names(&upstream.last().head.names, &["Host", "SOAPAction", "X-Added", "x-other", "x-request-id"]);
    assert_eq!(client.post("/", &[("SOAPACTION", "a")], b"body").status, 200);
    assert_names(&upstream.last().head.names, &["SOAPAction", "Content-Length"]);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_names(&upstream.last().head.names, &["Host", "Transfer-Encoding"]);
    assert_eq!(upstream.last().body, b"body");
}

/// Clients receive listed names in their case: in answers of the upstream and of the gateway, and in interim ones.
#[test]
fn clients_receive_names_in_the_case_of_the_file() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, FILE);
    let mut client = gateway.client();
    let answer = client.get("/");
    let expected =
        ["ETag", "X-API-Key", "x-other", "Content-Length", "Date", "X-RateLimit-Limit", "ratelimit"];
    assert_names(&answer.head.names, &expected);
    assert_eq!((answer.header("x-other"), &answer.body[..]), (Some("x-api-key: 1"), &b"done"[..]));
    client.request("GET", "/hint", &[]);
    let hint = client.response();
    assert_eq!(hint.status, 103);
    assert_names(&hint.head.names, &["Link", "x-other"]);
    assert_names(&client.response().head.names, &["ETag"]);
    let mut client = gateway.client();
    let refused = client.send("GET / HTTP/1.1\r\n\r\n").response();
    assert_eq!(refused.status, 400);
    assert_names(&refused.head.names, &["Content-Length", "Date", "content-type"]);
    let handshake = [("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-key", "x")];
    let switched = gateway.client().ask("GET", "/switch", &handshake);
    assert_eq!(switched.status, 101);
    assert_names(&switched.head.names, &["Sec-WebSocket-Accept", "Connection", "upgrade"]);
}

/// A reload changes the case for connections that are open.
#[test]
fn a_reload_changes_the_case() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, FILE);
    let mut client = gateway.client();
    assert_names(&client.get("/").head.names, &["ETag"]);
    gateway.reload(&FILE.replace("ETag", "Etag").replace("SOAPAction", "SoapAction"));
    let answer = client.ask("GET", "/", &[("soapaction", "a")]);
    assert_names(&answer.head.names, &["Etag"]);
    assert_names(&upstream.last().head.names, &["SoapAction"]);
}

/// HTTP/2 has names in lower case only.
#[test]
fn names_stay_in_lower_case_over_http2() {
    use crate::harness::h2::{End, H2, get};
    let upstream = server();
    let gateway = Gateway::before(&upstream, FILE);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/"));
    assert_eq!(h2.end(1), End::Status(200));
    assert_names(&upstream.last().head.names, &["Host", "X-Added"]);
}
