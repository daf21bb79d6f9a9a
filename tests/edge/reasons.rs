//! Every error that the gateway answers itself has one reason, the same in problem+json, the access log, the metrics
//! and the admin API.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::harness::{Client, Gateway, ReservedPort, Setup, gated_upstream, program, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

/// The SHA-256 of `k1`.
const DIGEST: &str = "6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0";

const FILE: &str = "
access_log: access.log
max_body: 1KiB
timeouts: {head: 300ms}
auth: {jwt: {secret: 0123456789abcdef0123456789abcdef, audience: api}}
lists: {office: [192.0.2.1]}
limits:
  few: {key: ip, rate: 1/day}
  strict: {key: ip, rate: 1/day, ban: 1h}
  users: {key: user, rate: 100/s, on_missing: deny}
  counted: {key: ip, rate: 100/s, scope: shared, on_store_failure: closed}
store: {redis: {url: 'redis://127.0.0.1:1', timeout: 20ms}}
upstreams:
  api: {servers: ['http://{upstream}']}
  dead: {servers: ['http://127.0.0.1:1']}
  slow: {servers: ['http://{upstream}'], timeouts: {response: 100ms}}
routes:
- {name: few, match: {path: /few}, respond: {status: 200}, limits: [few]}
- {name: strict, match: {path: /strict}, respond: {status: 200}, limits: [strict]}
- {name: private, match: {path: /private}, respond: {status: 200}, allow: [office]}
- {name: users, match: {path: /users}, respond: {status: 200}, limits: [users]}
- {name: counted, match: {path: /counted}, respond: {status: 200}, limits: [counted]}
- {name: gone, match: {path: /gone}, respond: {status: 410, body: gone}}
- {name: dead, match: {path: /dead}, upstream: dead}
- {name: slow, match: {path: /slow}, upstream: slow}
- {name: api, match: {path: /api}, upstream: api}
";

/// The lines of the access log, when there are so many.
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    until("the lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// A request, and what is to be said of it.
struct Case {
    request: &'static [u8],
    status: u16,
    route: &'static str,
    reason: &'static str,
    limit: Option<&'static str>,
    /// A part of the detail.
    detail: Option<&'static str>,
}

const fn case(request: &'static [u8], status: u16, route: &'static str, reason: &'static str) -> Case {
    Case { request, status, route, reason, limit: None, detail: None }
}

const CASES: &[Case] = &[
    Case { limit: Some("few"), ..case(b"GET /few HTTP/1.1\r\nhost: a\r\n\r\n", 429, "few", "limit") },
    Case { limit: Some("strict"), ..case(b"GET /strict HTTP/1.1\r\nhost: a\r\n\r\n", 429, "strict", "ban") },
    case(b"GET /private HTTP/1.1\r\nhost: a\r\n\r\n", 403, "private", "list"),
    Case {
        detail: Some("does not carry"),
        ..case(b"GET /users HTTP/1.1\r\nhost: a\r\n\r\n", 401, "users", "unauthenticated")
    },
    case(b"GET /none HTTP/1.1\r\nhost: a\r\n\r\n", 404, "", "no_route"),
    Case { detail: Some("path"), ..case(b"GET /%2f HTTP/1.1\r\nhost: a\r\n\r\n", 400, "", "malformed") },
    // Heads that cannot be read are counted and logged like all others.
    Case { detail: Some("line"), ..case(b"GET / HTTP/1.1\nhost: a\n\n", 400, "", "malformed") },
    case(b"GET / HTTP/1.1\r\nhost: ", 408, "", "timeout"),
    case(b"TRACE / HTTP/1.1\r\nhost: a\r\n\r\n", 405, "", "method_not_allowed"),
    case(b"GET / HTTP/1.1\r\nhost: a\r\nexpect: tea\r\n\r\n", 417, "", "expectation_failed"),
    case(b"POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: 2000\r\n\r\n", 413, "api", "too_large"),
    case(b"GET /counted HTTP/1.1\r\nhost: a\r\n\r\n", 503, "counted", "store"),
    case(b"GET /gone HTTP/1.1\r\nhost: a\r\n\r\n", 410, "gone", "respond"),
    case(b"GET /dead HTTP/1.1\r\nhost: a\r\n\r\n", 502, "dead", "upstream"),
    case(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n", 504, "slow", "upstream_timeout"),
];

#[test]
fn every_error_of_the_gateway_has_its_reason_everywhere() {
    let (upstream, gate) = gated_upstream();
    let gateway = Setup::default().workers(1).upstream(&upstream).start(FILE);
    assert_eq!(gateway.statuses(2, "/few", &[]), [200, 429]);
    assert_eq!(gateway.statuses(2, "/strict", &[]), [200, 429]);
    for (at, case) in CASES.iter().enumerate() {
        let what = String::from_utf8_lossy(case.request);
        let answer = gateway.client().send(case.request).response();
        assert_eq!(answer.status, case.status, "{what}");
        let line = &lines(&gateway, 5 + at)[4 + at];
        assert_eq!(line["reason"], case.reason, "{what}: {line}");
        assert_eq!(line.get("limit").and_then(Value::as_str), case.limit, "{what}: {line}");
        if case.reason != "respond" {
            let problem = answer.problem();
            assert_eq!(problem["reason"], case.reason, "{what}: {problem}");
            assert!(line.get("detail").is_none_or(|detail| *detail == problem["detail"]), "{line} {problem}");
        }
        let detail = line["detail"].as_str().unwrap_or_default();
        assert!(case.detail.is_none_or(|part| detail.contains(part)), "{what}: {line}");
        let counted = [("route", case.route), ("reason", case.reason)];
        until("it is counted", || {
            (gateway.metric("sluicegate_refusals_total", &counted) > 0.0).then_some(())
        });
        let status = gateway.admin_get("/status").json();
        let shown = status["refusals"].as_array().unwrap();
        let same = |one: &&Value| one["route"] == case.route && one["reason"] == case.reason;
        assert!(shown.iter().any(|one| same(&one) && one["count"].as_u64() > Some(0)), "{what}: {status}");
    }
    gate.open();
    assert_eq!(gateway.get("/api").status, 200);
    let served = lines(&gateway, 5 + CASES.len()).pop().unwrap();
    assert!(served.get("reason").is_none() && served.get("detail").is_none(), "{served}");
}

/// No credentials and wrong ones have a reason each, and the detail says more, in the log as in the answer.
#[test]
fn missing_and_wrong_credentials_have_different_reasons() {
    let gateway = Setup::default()
        .workers(1)
        .file("consumers.yaml", &format!("- {{name: acme, key: sha256:{DIGEST}}}\n"))
        .start(
            "access_log: access.log\nauth: {api_key: {consumers: consumers.yaml, required: true}}\n\
             routes: [{name: all, respond: {status: 200}}]\n",
        );
    let cases = [(&[][..], "unauthenticated"), (&[("x-api-key", "k2")], "forbidden")];
    let details = cases.map(|(headers, reason)| {
        let answer = gateway.ask("GET", "/", headers);
        assert_eq!((answer.status, answer.problem()["reason"].as_str()), (401, Some(reason)));
        answer.problem()["detail"].clone()
    });
    assert!(details[0].as_str().unwrap().contains("does not carry"), "{details:?}");
    assert!(details[1].as_str().unwrap().contains("not known"), "{details:?}");
    let logged: Vec<Value> = lines(&gateway, 2).iter().map(|line| line["detail"].clone()).collect();
    assert_eq!(logged, details);
}

/// Servers that have as many requests as they may: shed.
#[test]
fn a_request_that_finds_no_place_has_its_reason() {
    let (upstream, gate) = gated_upstream();
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {full: {servers: ['http://{upstream}'], max_connections: 1, max_pending: 0}}\n\
         routes: [{name: full, upstream: full}]\n",
    );
    let mut first = gateway.client();
    first.request("GET", "/slow", &[]);
    upstream.wait_for(1);
    let shed = gateway.get("/");
    assert_eq!((shed.status, shed.problem()["reason"].as_str()), (503, Some("shed")));
    gate.open();
    assert_eq!(first.response().status, 200);
}

/// A refused call of gRPC has status 200 and is counted like any other refusal; an answer of the route's own may name
/// the reason.
#[test]
fn refusals_in_other_forms_have_a_reason_too() {
    let gateway = Gateway::start(
        "limits: {l: {key: ip, rate: 1/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l], reject: {status: 503, body: '{reason} {limit}'}}]\n",
    );
    assert_eq!(gateway.get("/").status, 200);
    let own = gateway.get("/");
    assert_eq!((own.status, own.text().as_str()), (503, "limit l"));
    let call = gateway.ask("POST", "/", &[("content-type", "application/grpc")]);
    assert_eq!((call.status, call.header("grpc-status")), (200, Some("8")));
    let details = STANDARD_NO_PAD.decode(call.header("grpc-status-details-bin").unwrap()).unwrap();
    let details = String::from_utf8_lossy(&details);
    assert!(details.contains("google.rpc.ErrorInfo") && details.contains("LIMIT"), "{details:?}");
    let counted = [("route", "all"), ("reason", "limit")];
    until("both are counted", || {
        (gateway.metric("sluicegate_refusals_total", &counted) == 2.0).then_some(())
    });
}

/// Without a word about it in the file there is a short line of each request on standard output, and no query in it.
#[test]
fn a_short_line_is_written_by_default() {
    let (folder, edge) = (tempfile::TempDir::new().unwrap(), ReservedPort::new());
    let yaml = format!(
        "listen: [\"{}\"]\nlimits: {{few: {{key: ip, rate: 1/day}}}}\n\
         routes: [{{name: all, respond: {{status: 200, body: hello}}, limits: [few]}}]\n",
        edge.address
    );
    std::fs::write(folder.path().join("gateway.yaml"), yaml).unwrap();
    let mut command = program();
    command.args(["run", "--workers", "1"]).current_dir(folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("the edge listens", || std::net::TcpStream::connect(edge.address).ok());
    let mut client = Client::connect(edge.address);
    assert_eq!(client.get("/a?session=s3same").status, 200);
    let refused = client.ask("GET", "/b", &[("host", "a b")]);
    assert_eq!(refused.status, 400);
    assert_eq!(client.get("/c").status, 429);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let [served, malformed, limited] = [lines.next(), lines.next(), lines.next()].map(Option::unwrap);
    child.kill().unwrap();
    child.wait().unwrap();
    let shape = |line: &str| {
        let time = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ";
        let line = regex::Regex::new(time).unwrap().replace(line, "TIME ");
        let line = regex::Regex::new(r" \d+\.\dms ").unwrap().replace(&line, " MS ").into_owned();
        regex::Regex::new(r"id=[0-9a-f]{16}$").unwrap().replace(&line, "id=ID").into_owned()
    };
    assert_eq!(shape(&served), "TIME 127.0.0.1 GET api.test /a 200 5B MS route=all id=ID");
    assert!(shape(&malformed).starts_with(r"TIME 127.0.0.1 GET a\x20b /b 400 "), "{malformed}");
    assert!(shape(&malformed).ends_with("B MS reason=malformed id=ID"), "{malformed}");
    assert!(shape(&limited).ends_with("B MS route=all reason=limit limit=few id=ID"), "{limited}");
}

/// A password in front of a host is no request's business, and no log's.
#[test]
fn no_log_has_a_password_of_a_target() {
    for format in ["short", "json", "combined"] {
        let gateway = Setup::default().workers(1).start(&format!(
            "access_log: {{path: access.log, format: {format}}}\nroutes: [{{name: all, respond: {{status: 200}}}}]\n"
        ));
        for head in ["GET http://me:sesame@a.test/ HTTP/1.1", "CONNECT me:sesame@a.test:443 HTTP/1.1"] {
            let answer =
                gateway.client().send(format!("{head}\r\nhost: me:sesame@a.test\r\n\r\n")).response();
            assert!(answer.status >= 400, "{head}");
            let answer = gateway.client().send(format!("{head}\r\n\r\n")).response();
            assert!(answer.status >= 400, "{head}");
        }
        let log = until("all are logged", || {
            std::fs::read_to_string(gateway.path("access.log")).ok().filter(|log| log.lines().count() == 4)
        });
        assert!(!log.contains("sesame"), "{log}");
    }
}
