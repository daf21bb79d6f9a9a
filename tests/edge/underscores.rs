//! Request headers with underscores in their names, which CGI and WSGI confuse with others: none reaches an upstream,
//! a limit or a route, unless they are forwarded by configuration; even then none that reads like a trusted header.

use crate::harness::folder::{outcomes, text};
use crate::harness::h2::{DATA, END, END_HEADERS, End, H2, HEADERS, block, frame, pseudo};
use crate::harness::{Folder, Gateway, Upstream};

/// What a client may write to be taken for somebody else, or for another request.
const FORGED: [(&str, &str); 9] = [
    ("x-request_id", "forged"),
    ("content_length", "99"),
    ("x_consumer_name", "root"),
    ("remote_user", "root"),
    ("x_forwarded_for", "6.6.6.6"),
    ("x_real_ip", "6.6.6.6"),
    ("transfer_encoding", "chunked"),
    ("x_forwarded_host", "evil.test"),
    ("x_api_key", "root"),
];

fn start(rule: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::scripted(|exchange| {
        let Ok(body) = exchange.body() else { return exchange.close() };
        exchange.answer(200, &[], &body);
    });
    let gateway = Gateway::before(
        &upstream,
        &format!(
            "{rule}\nlimits: {{per-key: {{key: api_key, rate: 1000/min}}}}\n\
             upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: api, upstream: api, limits: [per-key]}}]\n"
        ),
    );
    (upstream, gateway)
}

/// The names with underscores that the upstream sees of a request over HTTP/1.1, and of one over HTTP/2, in its head and
/// behind its body.
fn pass(rule: &str) -> [Vec<String>; 2] {
    let (upstream, gateway) = start(rule);
    let seen = || {
        let head = upstream.last().head;
        assert_eq!((head.one("x-mine"), head.one("x-sum")), (Some("1"), Some("7")), "{head:?}");
        assert!(!head.headers.iter().any(|(_, value)| value.contains("forged") || value.contains("6.6.6.6")));
        let names = head.headers.into_iter().map(|(name, _)| name).filter(|name| name.contains('_'));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let more = [("x_mine", "2"), ("x-mine", "1"), ("te", "trailers"), ("trailer", "X-Sum, X_Sum, X_Real_IP")];
    let headers: Vec<_> = FORGED.into_iter().chain(more).collect();

    let mut client = gateway.client();
    client
        .request("POST", "/", &[&headers[..], &[("transfer-encoding", "chunked")]].concat())
        .send("1\r\na\r\n0\r\nX-Sum: 7\r\nX_Sum: 8\r\nX_Real_IP: 6.6.6.6\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let http1 = seen();

    let mut h2 = H2::connect(gateway.edge);
    let head = [&pseudo("POST", "/")[..], &headers].concat();
    let behind = [("x-sum", "7"), ("x_sum", "8"), ("x_real_ip", "6.6.6.6")];
    h2.send(frame(HEADERS, END_HEADERS, 1, &block(&head)));
    h2.send(frame(DATA, 0, 1, b"a"));
    h2.send(frame(HEADERS, END | END_HEADERS, 1, &block(&behind)));
    assert_eq!(h2.end(1), End::Status(200));
    [http1, seen()]
}

#[test]
fn none_is_forwarded_by_default() {
    for rule in ["", "underscores: removed"] {
        assert_eq!(pass(rule), [const { Vec::<String>::new() }; 2], "{rule:?}");
    }
}

#[test]
fn forwarded_ones_cannot_imitate_trusted_headers() {
    assert_eq!(pass("underscores: forwarded"), [["x_mine", "x_sum"]; 2]);
}

/// A line that is not written as most are is read by another reader.
#[test]
fn every_way_to_write_a_head_is_filtered() {
    let (upstream, gateway) = start("");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: api.test\r\nX_Real_IP:\t6.6.6.6\t\r\nX-Mine:\t1\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let seen = upstream.last().head;
    assert_eq!((seen.one("x-mine"), seen.one("x_real_ip")), (Some("1"), None));
}

/// A file that waits for a header with an underscore has to say that there are any; then it is read, and a replay reads
/// what the gateway does.
#[test]
fn a_header_that_is_needed_is_reported() {
    let rules = "listen: [127.0.0.1:0]\nlimits: {one: {key: \"header:own_key\", rate: 1/min, on_missing: skip}}\n\
                 routes: [{name: all, respond: {status: 200}, limits: [one]}]\n";
    let log =
        r#"{"time": 1, "client_ip": "192.0.2.1", "method": "GET", "path": "/", "headers": {"own_key": "a"}}"#;
    let log = format!("{log}\n{log}\n");
    let folder = Folder::with(&[("gateway.yaml", rules), ("log", &log)]);
    let refused = folder.run(&["check"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains("underscores: forwarded"));

    std::fs::write(folder.path("gateway.yaml"), format!("underscores: forwarded\n{rules}")).unwrap();
    assert_eq!(outcomes(&folder.decisions("log")), ["admitted", "refused"]);
    let rules = rules.replace("own_key", "own-key");
    std::fs::write(folder.path("gateway.yaml"), format!("underscores: forwarded\n{rules}")).unwrap();
    assert_eq!(outcomes(&folder.decisions("log")), ["admitted", "admitted"], "it only reads like the key");
}
