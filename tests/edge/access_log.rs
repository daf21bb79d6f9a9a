//! The access log: one line per request that tells its outcome, whatever the client sends. Failures of the log do not
//! affect serving.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use crate::harness::{Gateway, ReservedPort, Setup, Upstream, deadline, gated_upstream, program, until};
use serde_json::Value;

const ROUTES: &str = "limits: {tight: {key: ip, rate: 2/h, when: {methods: GET}}, tried: {key: ip, rate: 1/h, mode: shadow}}\n\
     upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
     routes:\n\
     - {name: tight, match: {path: /tight/*}, upstream: api, limits: [tight, tried]}\n\
     - {name: own, match: {path: /own/*}, respond: {status: 200, body: hello}}\n\
     - {name: api, match: {path: /api/*}, upstream: api}\n";

/// A gateway that logs to a file beside its configuration.
struct Logging {
    upstream: Upstream,
    gateway: Gateway,
}

impl Logging {
    fn new(log: &str) -> Self {
        Self::with(log, ROUTES)
    }

    fn with(log: &str, rest: &str) -> Self {
        let upstream = Upstream::answering("done");
        // One worker, so that the lines are in the order of the requests.
        let gateway = Setup::default().workers(1).upstream(&upstream);
        let gateway = gateway.start(&format!("access_log: {log}\n{rest}"));
        Self { upstream, gateway }
    }

    fn path(&self) -> PathBuf {
        self.gateway.path("access.log")
    }

    fn text(&self) -> String {
        String::from_utf8(std::fs::read(self.path()).unwrap()).unwrap()
    }

    /// The first `count` lines, when they are there: in time, and no more than that.
    #[track_caller]
    fn lines(&self, count: usize) -> Vec<Value> {
        until("the lines are written", || (self.text().lines().count() >= count).then_some(()));
        let text = self.text();
        assert_eq!(text.lines().count(), count, "{text}");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    #[track_caller]
    fn one(&self) -> Value {
        self.lines(1).remove(0)
    }
}

#[test]
fn a_line_tells_the_outcome_of_a_request() {
    let logging = Logging::new("access.log");
    let before = seconds_since_epoch();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("user-agent", "test/1"), ("referer", "https://a.test/"), ("traceparent", trace)];
    let answer = logging.gateway.ask("GET", "/tight/x?a=b", &headers);
    assert_eq!(answer.status, 200);
    let line = logging.one();
    let is = |name: &str, value: Value| assert_eq!(line[name], value, "{name} in {line}");
    is("client_ip", "127.0.0.1".into());
    is("method", "GET".into());
    is("host", "api.test".into());
    is("path", "/tight/x?a=b".into());
    is("protocol", "HTTP/1.1".into());
    is("status", 200.into());
    is("complete", true.into());
    is("bytes_in", 0.into());
    is("bytes_out", 4.into());
    is("route", "tight".into());
    is("outcome", "admitted".into());
    is("limit", "tight".into());
    is("remaining", 1.into());
    is("upstream", "api".into());
    is("user_agent", "test/1".into());
    is("referer", "https://a.test/".into());
    is("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736".into());
    is("request_id", logging.upstream.last().head.one("x-request-id").unwrap().into());
    let time = line["time"].as_f64().unwrap();
    assert!(time >= before - 1.0 && time <= seconds_since_epoch() + 1.0, "{time}");
    assert!(line["duration"].as_f64().unwrap() > 0.0);
    for absent in ["retry_after", "delay", "shadow", "candidate", "consumer", "user", "server"] {
        assert!(line.get(absent).is_none(), "{absent} in {line}");
    }
    let mode = std::fs::metadata(logging.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "others do not read it");
}

#[allow(clippy::disallowed_methods, reason = "it is what the log's times are compared with")]
fn seconds_since_epoch() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// What a candidate would have refused is told beside the verdict, which it does not change.
#[test]
fn candidates_are_logged() {
    let gateway = Setup::default().workers(1).start(
        "access_log: access.log\nlimits: {wide: {key: ip, rate: 100/h, candidate: 1/h}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [wide]}]\n",
    );
    assert_eq!(gateway.statuses(3, "/", &[]), [200; 3]);
    let lines = until("the lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 3).then_some(lines)
    });
    let shown: Vec<_> = lines.iter().map(|line| (line["outcome"].as_str(), line.get("candidate"))).collect();
    let refused = serde_json::json!(["wide"]);
    assert_eq!(
        shown,
        [(Some("admitted"), None), (Some("admitted"), Some(&refused)), (Some("admitted"), Some(&refused))]
    );
}

/// The short format names the limits that would have refused a request.
#[test]
fn the_short_format_names_limits_in_shadow_mode() {
    let gateway = Setup::default().workers(1).start(
        "access_log: {path: access.log, format: short}\n\
         limits: {one: {key: ip, rate: 1/h, mode: shadow}, two: {key: ip, rate: 2/h, mode: shadow}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [one, two]}]\n",
    );
    assert_eq!(gateway.statuses(3, "/", &[]), [200; 3]);
    let lines = until("the lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap();
        let lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        (lines.len() == 3).then_some(lines)
    });
    let shadow =
        |line: &String| line.split(' ').find_map(|word| word.strip_prefix("shadow=")).map(str::to_owned);
    let shown: Vec<_> = lines.iter().map(shadow).collect();
    assert_eq!(shown, [None, Some("one".to_owned()), Some("one,two".to_owned())], "{lines:?}");
}

#[test]
fn refusals_and_unmatched_requests_are_logged() {
    let logging = Logging::new("access.log");
    let mut client = logging.gateway.client();
    for target in ["/tight/1", "/tight/2", "/tight/3", "/none", "/%2f"] {
        client.get(target);
    }
    let lines = logging.lines(5);
    assert_eq!(lines[1]["shadow"], serde_json::json!(["tried"]), "{}", lines[1]);
    let refused = &lines[2];
    assert_eq!((&refused["status"], &refused["outcome"]), (&429.into(), &"refused".into()));
    assert_eq!((&refused["limit"], &refused["remaining"]), (&"tight".into(), &0.into()));
    assert!(refused["retry_after"].as_f64().unwrap() > 1000.0 && refused.get("upstream").is_none());
    assert_eq!((&lines[3]["status"], &lines[3]["outcome"]), (&404.into(), &"unmatched".into()));
    assert_eq!((&lines[4]["status"], &lines[4]["outcome"]), (&400.into(), &"unmatched".into()));
    assert!(lines[3].get("route").is_none());
}

/// Whatever bytes a client sends: one valid line, and no byte in it that a terminal obeys.
#[test]
fn no_client_can_inject_log_lines() {
    let logging = Logging::new("access.log");
    let mut sent = 0;
    let nasty: [&[u8]; 6] = [
        b"\"},\"status\":200,{\"",
        b"\\u0022 \\\\ \\\" %0d%0a",
        b"\xff\xfe\xc3\x28 \x80",
        "\u{9b}31m \u{2028}\u{2029} \u{202e}".as_bytes(),
        b"a\tb",
        b"{}[]'`<script>",
    ];
    for value in nasty {
        // The target as a browser would never write it.
        let mut head = b"GET /own/\"{}%22?x='%0a%1b HTTP/1.1\r\nhost: api.test\r\nuser-agent: ".to_vec();
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\nreferer: ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n\r\n");
        assert_eq!(logging.gateway.client().send(head).response().status, 200, "{value:?}");
        sent += 1;
    }
    let lines = logging.lines(sent);
    assert!(lines.iter().all(|line| line["status"] == 200 && line["user_agent"] == line["referer"]));
    assert!(logging.text().chars().all(|c| c == '\n' || !c.is_control()), "{:?}", logging.text());
}

/// Neither a key nor a token nor a cookie is in the log, wherever they stand.
#[test]
fn no_secret_is_logged() {
    let logging = Logging::with(
        "{path: access.log, redact: sig, fields: [path, referer, user_agent, header:X-Tenant]}",
        "auth: {api_key: {query: key}}\nroutes: [{name: own, respond: {status: 200}}]\n",
    );
    let headers = [
        ("authorization", "Bearer s3same"),
        ("cookie", "session=s3same"),
        ("x-api-key", "s3same"),
        ("referer", "https://a.test/?sig=s3same&x=1"),
        ("x-tenant", "acme"),
    ];
    let target = "/p?key=s3same&%6Bey=s3same&b=2&access_token=s3same&SIG=s3same";
    logging.gateway.ask("GET", target, &headers);
    let line = logging.one();
    assert_eq!(line["path"], "/p?key=REDACTED&%6Bey=REDACTED&b=2&access_token=REDACTED&SIG=REDACTED");
    assert_eq!(
        (&line["referer"], &line["headers"]["x-tenant"]),
        (&"https://a.test/?sig=REDACTED&x=1".into(), &"acme".into())
    );
    assert!(!logging.text().contains("s3same"));
}

#[test]
fn the_identity_is_logged_where_configured() {
    let upstream = Upstream::answering("done");
    let digest = "6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0"; // of k1
    let gateway = Setup::default()
        .upstream(&upstream)
        .file("consumers.yaml", &format!("- {{name: acme, key: sha256:{digest}, plan: pro}}\n"))
        .start(
            "access_log: {path: access.log, fields: [consumer, plan, peer, listener, scheme, server, upstream_duration, span_id, parent_id]}\n\
             auth: {api_key: {consumers: consumers.yaml}}\n\
             upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n",
        );
    gateway.ask("GET", "/", &[("x-api-key", "k1")]);
    let logging = Logging { upstream, gateway };
    let line = logging.one();
    assert_eq!((&line["consumer"], &line["plan"]), (&"acme".into(), &"pro".into()));
    assert_eq!(
        (&line["peer"], &line["listener"], &line["scheme"]),
        (&"127.0.0.1".into(), &"edge".into(), &"http".into())
    );
    assert_eq!(line["server"], logging.upstream.address.to_string());
    assert!(line["upstream_duration"].as_f64().is_some() && line["span_id"].as_str().is_some());
    assert!(line.get("parent_id").is_none());
}

#[test]
fn the_combined_format_is_the_one_of_nginx() {
    let logging = Logging::new("{path: access.log, format: combined}");
    let headers = [("user-agent", "a \"b\" \\ c"), ("referer", "https://a.test/?access_token=s3same")];
    logging.gateway.ask("GET", "/own/\"x\"?y=z", &headers);
    logging.gateway.ask("GET", "/own/y", &[]);
    until("two lines", || (logging.text().lines().count() == 2).then_some(()));
    let text = logging.text();
    let (first, second) = text.trim_end().split_once('\n').unwrap();
    let (front, rest) = first.split_once(" [").unwrap();
    let (date, rest) = rest.split_once("] ").unwrap();
    assert_eq!(front, "127.0.0.1 - -");
    let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", date).unwrap().to_timestamp().unwrap();
    assert!((time.as_second() as f64 - seconds_since_epoch()).abs() < 30.0, "{date}");
    assert_eq!(
        rest,
        r#""GET /own/\x22x\x22?y=z HTTP/1.1" 200 5 "https://a.test/?access_token=REDACTED" "a \x22b\x22 \x5C c""#
    );
    assert!(second.ends_with(r#""GET /own/y HTTP/1.1" 200 5 "-" "-""#), "{second}");
}

/// What the gateway logs, it can replay: the same decisions, in both formats.
#[test]
fn a_log_can_be_replayed() {
    for format in ["json", "combined"] {
        let logging = Logging::new(&format!("{{path: access.log, format: {format}}}"));
        let mut client = logging.gateway.client();
        let statuses: Vec<u16> = (0..4).map(|_| client.get("/tight/\"x\"?q={1}").status).collect();
        assert_eq!(statuses, [200, 200, 429, 429]);
        until("four lines", || (logging.text().lines().count() == 4).then_some(()));
        let out = logging.gateway.path("decisions.jsonl");
        let replayed = program()
            .args(["replay", "access.log", "--config", "gateway.yaml", "--decisions"])
            .arg(&out)
            .current_dir(logging.gateway.path(""))
            .output()
            .unwrap();
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
        let rows = std::fs::read_to_string(out).unwrap();
        let outcomes: Vec<String> = rows
            .lines()
            .map(|row| serde_json::from_str::<Value>(row).unwrap()["outcome"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(outcomes, ["admitted", "admitted", "refused", "refused"], "{format}");
    }
}

#[test]
fn a_client_that_leaves_is_logged_with_499() {
    let (upstream, gate) = gated_upstream();
    let gateway =
        Gateway::before(&upstream, &format!("access_log: access.log\n{}", ROUTES.replace("/api/*", "/*")));
    let mut client = gateway.client();
    client.request("GET", "/slow", &[]);
    upstream.wait_for(1);
    drop(client);
    let logging = Logging { upstream, gateway };
    let line = logging.one();
    assert_eq!(
        (&line["status"], &line["complete"], &line["path"]),
        (&499.into(), &false.into(), &"/slow".into())
    );
    assert_eq!((&line["outcome"], &line["upstream"]), (&"admitted".into(), &"api".into()));
    gate.open();
}

#[test]
fn bytes_are_counted_in_both_directions() {
    let logging = Logging::new("access.log");
    logging.gateway.client().post("/api/x", &[], &[b'x'; 5000]);
    logging.gateway.ask("HEAD", "/own/x", &[]);
    let lines = logging.lines(2);
    let of = |path: &str| lines.iter().find(|line| line["path"] == path).unwrap();
    assert_eq!((&of("/api/x")["bytes_in"], &of("/api/x")["bytes_out"]), (&5000.into(), &4.into()));
    assert_eq!((&of("/own/x")["bytes_out"], &of("/own/x")["complete"]), (&0.into(), &true.into()));
}

#[test]
fn sampling_depends_on_the_outcome() {
    let logging =
        Logging::new("{path: access.log, sample: {ok: 0%, refused: 100%, error: 0%}, fields: [status]}");
    let mut client = logging.gateway.client();
    for _ in 0..5 {
        client.get("/tight/x");
    }
    let lines = logging.lines(3);
    assert!(lines.iter().all(|line| line["status"] == 429));
    let mut half = Logging::new("{path: access.log, sample: 50%, fields: [status]}");
    let mut client = half.gateway.client();
    for _ in 0..400 {
        client.get("/own/x");
    }
    drop(client);
    // At its end the gateway does not wait for a late worker for long.
    until("enough lines are written", || (half.text().lines().count() >= 120).then_some(()));
    half.gateway.signal("TERM"); // at the end all lines are there
    assert!(half.gateway.ended(deadline()).success());
    let count = half.text().lines().count();
    assert!((120..=280).contains(&count), "{count} of 400");
}

/// logrotate moves the file away and sends SIGUSR1: the lines go into a new one, and none is lost.
#[test]
fn the_file_is_reopened_on_sigusr1() {
    let logging = Logging::new("access.log");
    let mut client = logging.gateway.client();
    client.get("/own/1");
    logging.one();
    let moved = logging.gateway.path("access.log.1");
    std::fs::rename(logging.path(), &moved).unwrap();
    client.get("/own/2");
    until("the old file still gets lines", || {
        (std::fs::read_to_string(&moved).unwrap().lines().count() == 2).then_some(())
    });
    logging.gateway.signal("USR1");
    until("there is a new file", || logging.path().exists().then_some(()));
    assert_eq!(client.get("/own/3").status, 200);
    assert_eq!(logging.one()["path"], "/own/3");
    assert_eq!(std::fs::read_to_string(&moved).unwrap().lines().count(), 2);
}

/// Without a log the signal does nothing, and above all does not end the gateway.
#[test]
fn sigusr1_without_a_log_does_nothing() {
    let gateway = Gateway::start("routes: [{respond: {status: 200}}]\n");
    gateway.signal("USR1");
    assert_eq!(gateway.get("/").status, 200);
    gateway.reload("access_log: access.log\nroutes: [{respond: {status: 200}}]\n");
    gateway.get("/");
    let path = gateway.path("access.log");
    until("a line", || std::fs::read_to_string(&path).ok().filter(|text| !text.is_empty()));
}

#[test]
fn a_reload_moves_the_log_or_changes_nothing() {
    let mut logging = Logging::new("access.log");
    let mut client = logging.gateway.client();
    client.get("/own/1");
    logging.gateway.reload(&format!("access_log: {{path: access.log, fields: [path]}}\n{ROUTES}"));
    client.get("/own/2");
    assert_eq!(logging.lines(2)[1], serde_json::json!({ "path": "/own/2" }));
    logging.gateway.write(&format!("access_log: no/such/folder/access.log\n{ROUTES}"));
    until("the file is refused", || {
        logging.gateway.admin_get("/status").json()["last_reload_error"].as_str().map(str::to_owned)
    });
    client.get("/own/3");
    logging.lines(3);
    logging.gateway.reload(&format!("access_log: other.log\n{ROUTES}"));
    client.get("/own/4");
    let other = logging.gateway.path("other.log");
    until("it goes elsewhere", || {
        std::fs::read_to_string(&other).ok().filter(|text| text.contains("/own/4"))
    });
    logging.lines(3);
    logging.gateway.reload(ROUTES);
    client.get("/own/5");
    assert_eq!(client.get("/own/6").status, 200);
    drop(client);
    logging.gateway.signal("TERM");
    assert!(logging.gateway.ended(deadline()).success());
    assert!(!std::fs::read_to_string(&other).unwrap().contains("/own/5"));
}

/// All requests that were answered are in the log when the gateway has ended, the last one too.
#[test]
fn buffered_lines_are_written_before_exit() {
    let mut logging = Logging::new("access.log");
    let mut client = logging.gateway.client();
    for _ in 0..499 {
        client.get("/own/x");
    }
    logging.lines(499); // at its end the gateway does not wait for a late worker for long
    client.get("/own/x");
    logging.gateway.signal("TERM");
    drop(client);
    assert!(logging.gateway.ended(deadline()).success());
    logging.lines(500);
}

/// A disk that is full costs lines, which are counted, and no request.
#[test]
fn a_full_disk_does_not_affect_serving() {
    let logging = Logging::new("/dev/full");
    for _ in 0..3 {
        assert_eq!(logging.gateway.get("/own/x").status, 200);
    }
    until("the lines are counted", || {
        (logging.gateway.metric("sluicegate_access_log_dropped_total", &[]) == 3.0).then_some(())
    });
    assert_eq!(logging.gateway.times_logged("cannot be written"), 1, "{}", logging.gateway.log());
}

/// Standard output that nobody reads: requests go on, memory does not grow, the lines that are lost are counted; and
/// the end does not wait for whoever reads nothing.
#[test]
fn a_stalled_reader_does_not_affect_serving() {
    let folder = tempfile::TempDir::new().unwrap();
    let ports = [ReservedPort::new(), ReservedPort::new()];
    let [edge, admin] = [ports[0].address, ports[1].address];
    let yaml = format!(
        "listen: [\"{edge}\"]\nadmin: {{address: \"{admin}\"}}\naccess_log: {{path: stdout, buffer: 64KiB}}\n\
         routes: [{{name: own, respond: {{status: 200}}}}]\n"
    );
    std::fs::write(folder.path().join("gateway.yaml"), yaml).unwrap();
    let mut command = program();
    command
        .args(["run", "--workers", "1"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    until("the edge listens", || std::net::TcpStream::connect(edge).ok());
    let mut client = crate::harness::Client::connect(edge);
    let agent = "x".repeat(4000);
    let mut lost = 0.0;
    for turn in 0..2000 {
        assert_eq!(client.ask("GET", "/", &[("user-agent", &agent)]).status, 200);
        if turn % 100 == 99 {
            let scrape = crate::harness::Client::connect(admin)
                .ask("GET", "/metrics", &[("host", "localhost")])
                .text();
            let scrape = crate::harness::prometheus::Scrape::parse(&scrape).unwrap();
            lost = scrape.value("sluicegate_access_log_dropped_total", &[]);
            if lost > 100.0 {
                break;
            }
        }
    }
    assert!(lost > 100.0, "{lost} lines were lost");
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    drop(client);
    until("it ends all the same", || child.try_wait().unwrap());
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    let whole = &text[..text.rfind('\n').unwrap()];
    assert!(whole.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "every line is whole");
}
