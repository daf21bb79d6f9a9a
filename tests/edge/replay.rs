//! Replays of real logs: without hosts, damaged, with odd spellings; and the warnings about them.

use std::io::Write;
use std::process::Output;

use crate::harness::Folder;
use crate::harness::folder::{outcomes, text};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const RULES: &str = "listen: [127.0.0.1:18080]\nlimits: {l: {key: ip, rate: 2/min}}\n\
                     routes: [{name: all, match: {path: /v1/*}, respond: {status: 200}, limits: [l]}]\n";

/// A line of the combined format, `second` seconds into a minute.
fn combined(second: u64, client: &str, target: &str) -> String {
    let time = format!("03/Jul/2024:10:00:{second:02} +0000");
    format!("{client} - - [{time}] \"GET {target} HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n")
}

fn log(lines: u64) -> String {
    (0..lines).map(|n| combined(n % 60, &format!("192.0.2.{}", n % 250), "/v1/a")).collect()
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_said(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in:\n{said}");
    }
}

/// The file with the log `access.log`.
fn folder(rules: &str, log: &[u8]) -> Folder {
    let folder = Folder::with(&[("gateway.yaml", rules)]);
    std::fs::write(folder.path("access.log"), log).unwrap();
    folder
}

/// A replay asks nobody: what would be checked outside is admitted.
#[test]
fn a_replay_asks_no_service() {
    let auth = "auth: {check: {url: 'http://127.0.0.1:1/check'}, introspection: \
                {url: 'http://127.0.0.1:1/', client_id: gw, client_secret: s}}\n";
    let folder = folder(&format!("{auth}{RULES}"), combined(0, "192.0.2.1", "/v1/a").repeat(3).as_bytes());
    let output = folder.run(&["replay", "access.log", "--decisions", "out.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let outcomes: Vec<Value> = folder.read("out.jsonl").iter().map(|row| row["outcome"].clone()).collect();
    assert_eq!(outcomes, ["admitted", "admitted", "refused"]);
}

/// A replay knows slower lanes and fair shares: it decides as the gateway does.
#[test]
fn a_replay_decides_with_lanes_and_shares() {
    let rules = "listen: [127.0.0.1:18080]\n\
                 limits:\n  lane: {key: ip, rate: 10/s, burst: 2, penalty: {rate: 10/s, waiters: 4}}\n  \
                 all: {key: global, rate: 20/s, fair: {by: api_key}}\n\
                 routes:\n  - {name: lane, match: {path: /lane}, respond: {status: 200}, limits: [lane]}\n  \
                 - {name: all, respond: {status: 200}, limits: [all]}\n";
    let row = |millis: u64, path: &str, key: &str| {
        let (second, milli) = (1_720_000_800 + millis / 1_000, millis % 1_000);
        format!(
            "{{\"time\": {second}.{milli:03}, \"client_ip\": \"192.0.2.1\", \"method\": \"GET\", \"host\": \"a.test\", \
             \"path\": \"{path}\", \"headers\": {{\"x-api-key\": \"{key}\"}}}}\n"
        )
    };
    let outcomes_of = |log: String| {
        let folder = folder(rules, log.as_bytes());
        let output = folder.run(&["replay", "access.log", "--decisions", "out.jsonl"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        folder.read("out.jsonl")
    };
    let rows = outcomes_of((0..8).map(|_| row(0, "/lane", "a")).collect());
    let delays: Vec<&str> = rows.iter().map(|row| row["outcome"].as_str().unwrap()).collect();
    assert_eq!(
        delays,
        ["admitted", "admitted", "admitted", "admitted", "admitted", "admitted", "refused", "refused"]
    );
    assert_eq!(rows[5]["delay"].as_f64(), Some(0.3), "{}", rows[5]);
    // One asks for a hundred times a second, the other for four: it loses nothing.
    let greedy = (0..1_000_u64).map(|at| (at * 10, "greedy"));
    let modest = (0..40_u64).map(|at| (at * 250 + 5, "modest"));
    let mut asked: Vec<(u64, &str)> = greedy.chain(modest).collect();
    asked.sort();
    let rows = outcomes_of(asked.iter().map(|(at, key)| row(*at, "/all", key)).collect());
    let admitted = |key: &str| {
        let rows =
            asked.iter().zip(&rows).filter(|((_, of), row)| *of == key && row["outcome"] == "admitted");
        rows.count()
    };
    assert_eq!(admitted("modest"), 40);
    assert!((130..=190).contains(&admitted("greedy")), "{}", admitted("greedy"));
}

/// A log without hosts matches no route with a host: that is said, with the reason and the targets, and `--host` judges
/// it.
#[test]
fn a_log_without_hosts_is_judged_with_host() {
    let rules = RULES.replace("{path: /v1/*}", "{host: api.test, path: /v1/*}");
    let lines =
        log(3) + &combined(9, "192.0.2.1", "/v1/b?token=s3cret") + &combined(9, "192.0.2.1", "/v1/\u{9b}2J");
    let folder = folder(&rules, lines.as_bytes());
    let output = folder.run(&["replay", "access.log"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = stderr(&output);
    let words =
        ["warning", "5 of 5 requests match no route", "in: host", "--host", "3 GET /v1/a\n", "1 GET /v1/b\n"];
    assert_said(&said, &words);
    assert!(!said.contains("s3cret") && !said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");

    for host in ["api.test", "API.test:443"] {
        let output = folder.run(&["replay", "access.log", "--host", host, "--decisions", "out.jsonl"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let outcomes = folder.read("out.jsonl");
        assert!(outcomes[..4].iter().all(|row| row["outcome"] == "admitted"), "{outcomes:?}");
        assert_eq!(stderr(&output), "", "nothing is unusual");
    }
    for host in ["a b", "http://api.test", "a..b", ""] {
        let output = folder.run(&["replay", "access.log", "--host", host]);
        assert_eq!(output.status.code(), Some(1), "{host}: {}", text(&output));
        assert_said(&stderr(&output), &["--host", "api.example.com"]);
    }
    let named = format!("{}\n", json("\"host\": \"other.test\", \"path\": \"/v1/a\""));
    std::fs::write(folder.path("named.jsonl"), named).unwrap();
    let output = folder.run(&["replay", "named.jsonl", "--host", "api.test"]);
    assert_said(&stderr(&output), &["1 of 1 requests match no route", "1 GET other.test/v1/a"]);
}

fn json(members: &str) -> String {
    format!("{{\"time\": 1720000800, \"client_ip\": \"192.0.2.1\", {members}}}")
}

/// Routes on another listener than the first are judged with `--listener`; one that is unknown is an error that names
/// those that exist.
#[test]
fn a_log_of_another_listener_is_judged_with_listener() {
    let rules = RULES
        .replace(
            "[127.0.0.1:18080]",
            "[{name: one, address: 127.0.0.1:18080}, {name: two, address: 127.0.0.1:18081}]",
        )
        .replace("{path: /v1/*}", "{listener: two, path: /v1/*}");
    let folder = folder(&rules, log(3).as_bytes());
    let output = folder.run(&["replay", "access.log"]);
    assert_eq!(output.status.code(), Some(0));
    let words = ["3 of 3 requests match no route", "in: listener", "listener one", "--listener (two)"];
    assert_said(&stderr(&output), &words);
    let output = folder.run(&["replay", "access.log", "--listener", "two"]);
    assert_eq!(output.status.code(), Some(0));
    assert_said(&text(&output), &["3 admitted"]);
    assert_eq!(stderr(&output), "");
    let output = folder.run(&["replay", "access.log", "--listener", "three"]);
    assert_eq!(output.status.code(), Some(1));
    assert_said(&stderr(&output), &["`three`", "one, two"]);
}

/// Where fewer than half match no route nothing is said beyond the report.
#[test]
fn a_few_unmatched_requests_cause_no_warning() {
    let lines = log(2) + &combined(9, "192.0.2.1", "/other") + &combined(9, "192.0.2.1", "/another");
    let output = folder(RULES, lines.as_bytes()).run(&["replay", "access.log"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

/// A file of which no line can be read cannot be read as a log: 1, and why. One without lines is.
#[test]
fn a_file_that_is_no_log_is_code_1() {
    let folder = folder(RULES, b"\x7fELF\x02\x01\n\x1b[2J what\nlisten: [127.0.0.1:18080]\n");
    std::fs::write(folder.path("empty.log"), "\n\n").unwrap();
    std::fs::write(folder.path("good.log"), log(3)).unwrap();
    let output = folder.run(&["replay", "access.log", "good.log"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_said(&stderr(&output), &["access.log is not a log that can be read", "access.log:1:"]);
    assert_said(&text(&output), &["3 requests", "3 lines could not be read"]);
    assert!(!text(&output).contains('\u{1b}'), "{:?}", text(&output));
    let output = folder.run(&["replay", "empty.log"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

/// A compressed log that ends early, or is broken, or followed by something else, is reported as far as it was read; the
/// place is named, and the exit code is 1.
#[test]
fn a_damaged_log_keeps_its_report() {
    let whole = packed(log(5_000).as_bytes());
    let mut flipped = whole.clone();
    let checksum = whole.len() - 8;
    flipped[checksum] ^= 1;
    let garbage = [&whole[..], b"not compressed\n"].concat();
    let truncated = &whole[..whole.len() / 2];
    let tail = whole.len().to_string();
    for (bytes, all, place) in [
        (truncated, false, ""),
        (&whole[..whole.len() - 4], true, ""),
        (&flipped, true, &tail),
        (&garbage, true, &tail),
    ] {
        let folder = folder(RULES, bytes);
        std::fs::write(folder.path("next.log"), log(10)).unwrap();
        let output = folder.run(&["replay", "access.log", "next.log", "--decisions", "out.jsonl"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let rows = folder.read("out.jsonl");
        let read = rows.iter().filter(|row| row["file"] == "access.log").count();
        assert_eq!(rows.len() - read, 10, "the next log is read");
        assert!(if all { read == 5_000 } else { (1_000..4_000).contains(&read) }, "{read}");
        let (line, at) = (format!("behind line {read}"), format!("access.log is damaged at byte {place}"));
        assert_said(&stderr(&output), &[&at, &line]);
        assert_said(&text(&output), &[&format!("{} requests", rows.len())]);
    }
}

/// Zero bytes behind the compressed data are a warning, whether more of it follows or not.
#[test]
fn a_padded_log_is_read_to_its_end() {
    let member = packed(log(100).as_bytes());
    let zeros = vec![0; 70_000];
    let padded = folder(RULES, &[&member[..], &zeros].concat());
    let output = padded.run(&["replay", "access.log"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_said(&text(&output), &["100 requests"]);
    assert_said(
        &stderr(&output),
        &["warning", "access.log", "70000 zero bytes", &format!("byte {}", member.len())],
    );
    for between in [&zeros[..], &[]] {
        let several = folder(RULES, &[&member[..], between, &member].concat());
        let output = several.run(&["replay", "access.log"]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        assert_said(&text(&output), &["200 requests"]);
    }
}

/// What logs write in other ways means the same: numbers in quotes, ports and brackets, a byte order mark, a byte that is
/// no UTF-8 in a header.
#[test]
fn odd_spellings_are_read() {
    let json = |client: &str| {
        format!(
            "{{\"time\": \"1720000800.5\", \"client_ip\": \"{client}\", \"path\": \"/v1/a\", \"status\": \"200\", \
             \"bytes_out\": \"12\", \"bytes_in\": \"-\", \"duration\": \"0.25\"}}\n"
        )
    };
    let agent = b"192.0.2.9 - - [03/Jul/2024:10:00:09 +0000] \"GET /v1/a HTTP/1.1\" \"200\" \"5\" \"-\" \"caf\xe9\"\n";
    for mark in [&b""[..], b"\xef\xbb\xbf"] {
        let clients =
            ["192.0.2.9:55123", "192.0.2.9", "[2001:db8::9]:443", "[2001:db8::9]", "2001:db8::9"].map(json);
        let lines = [mark, clients.concat().as_bytes(), agent].concat();
        let folder = folder(RULES, &lines);
        let rows = folder.decisions("access.log");
        assert_eq!(outcomes(&rows), ["admitted", "admitted", "admitted", "admitted", "refused", "refused"]);
        assert_eq!((&rows[0]["client"], &rows[3]["client"]), (&"192.0.2.9".into(), &"2001:db8::9".into()));
    }
}

/// Each decision says whose it was: the client, the key of the limit, and the path. A key that is a secret is its digest,
/// and a parameter that is one is not written.
#[test]
fn decisions_tell_the_client_the_key_and_the_path() {
    let rules = "listen: [127.0.0.1:18080]\nclient_ip: {trusted_proxies: [10.0.0.0/8]}\n\
                 auth: {api_key: {query: key}}\n\
                 limits:\n  a: {key: ip, rate: 1/min}\n  b: {key: api_key, rate: 1/min}\n\
                 \x20 c: {key: ['header:x-tenant', 'path:id'], rate: 1/min}\n  d: {key: 'cookie:sid', rate: 1/min}\n\
                 \x20 e: {key: 'header:x-auth-token', rate: 1/min, on_missing: shared}\n\
                 \x20 f: {key: global, rate: 1/min}\n\
                 routes:\n";
    let routes = [("a", "a"), ("b", "b"), ("c/{id}", "c"), ("d", "d"), ("e", "e"), ("f", "f")].map(|(path, limit)| {
        format!("  - {{name: {limit}, match: {{path: '/{path}'}}, respond: {{status: 200}}, limits: [{limit}]}}\n")
    });
    let headers =
        "{\"X-Forwarded-For\": \"203.0.113.7\", \"x-tenant\": \"acme\", \"cookie\": \"sid=s3cret\"}";
    let headers = headers.replace('}', ", \"x-auth-token\": \"s3cret\"}");
    let line = |path: &str, headers: &str| {
        format!(
            "{{\"time\": 5, \"client_ip\": \"10.0.0.1\", \"path\": \"{path}\", \"headers\": {headers}}}\n"
        )
    };
    let targets =
        ["/a?x=1", "/b?key=s3cret&y=2&access_token=s3cret", "/c/7", "/d", "/e", "/f", "/none?k%65y=s3cret"];
    let mut lines: String = targets.iter().map(|target| line(target, &headers)).collect();
    lines += &line("/e", "{}");
    let folder = folder(&(rules.to_owned() + &routes.concat()), lines.as_bytes());
    let rows = folder.decisions("access.log");
    let shown = |name| rows.iter().map(|row| row[name].clone()).collect::<Vec<Value>>();
    // printf s3cret | sha256sum | head -c 16
    let digest = "sha256:1ec1c26b50d5d3c5";
    assert_eq!(
        shown("key"),
        [
            "ip:203.0.113.7".into(),
            format!("api_key:{digest}").into(),
            "x-tenant:acme,id:7".into(),
            format!("sid:{digest}").into(),
            format!("x-auth-token:{digest}").into(),
            "global".into(),
            Value::Null,
            Value::Null
        ]
    );
    assert_eq!(shown("client")[..7], vec![Value::from("203.0.113.7"); 7]);
    assert_eq!(shown("client")[7], "10.0.0.1");
    let paths = ["/a?x=1", "/b?key=REDACTED&y=2&access_token=REDACTED", "/c/7", "/d", "/e", "/f"];
    assert_eq!(shown("path")[..6], paths.map(Value::from));
    assert_eq!(shown("path")[6], "/none?k%65y=REDACTED");
    let written = std::fs::read_to_string(folder.path("out.jsonl")).unwrap();
    assert!(!written.contains("s3cret"));
    let first = written.lines().next().unwrap();
    assert!(
        first.starts_with("{\"line\": 1, \"route\": \"a\", \"outcome\": \"admitted\", \"limit\": \"a\""),
        "{first}"
    );
}

/// A replay finds the client behind proxies of a list, and names the network that a key is.
#[test]
fn decisions_name_networks() {
    let rules = "listen: [127.0.0.1:18080]\nlists: {cdn: [10.0.0.0/8]}\n\
                 client_ip: {trusted_proxies: [list:cdn], header: CF-Connecting-IP}\n\
                 limits: {l: {key: ip/24, rate: 2/min}}\n\
                 routes: [{name: all, respond: {status: 200}, limits: [l]}]\n";
    let line = |client: &str| {
        format!(
            "{{\"time\": 5, \"client_ip\": \"10.0.0.1\", \"path\": \"/\", \
             \"headers\": {{\"cf-connecting-ip\": \"{client}\"}}}}\n"
        )
    };
    let lines: String = ["192.0.2.1", "192.0.2.255", "192.0.2.7", "2001:db8::9"].map(line).concat();
    let rows = folder(rules, lines.as_bytes()).decisions("access.log");
    assert_eq!(outcomes(&rows), ["admitted", "admitted", "refused", "admitted"]);
    assert_eq!((&rows[2]["key"], &rows[2]["client"]), (&"ip:192.0.2.0".into(), &"192.0.2.7".into()));
    assert_eq!(rows[3]["key"], "ip:2001:db8::");
}

/// An output that is also read would be emptied before it is read.
#[test]
fn outputs_never_replace_what_is_read() {
    let folder = folder(RULES, combined(0, "192.0.2.1", "/v1/a").as_bytes());
    std::os::unix::fs::symlink("access.log", folder.path("link.log")).unwrap();
    for (name, file) in
        [("--report", "access.log"), ("--decisions", "link.log"), ("--decisions", "gateway.yaml")]
    {
        let before = std::fs::read(folder.path(file)).unwrap();
        let output = folder.run(&["replay", "access.log", name, file]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert_said(&stderr(&output), &[name, file, "would overwrite"]);
        assert_eq!(std::fs::read(folder.path(file)).unwrap(), before);
    }
    let output = folder.run(&["replay", "access.log", "--report", "out", "--decisions", "out"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
