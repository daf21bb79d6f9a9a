//! Which logs a replay reads, and what it says about them: rotated files, formats, durations, who sent the requests.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::harness::folder::text;
use crate::harness::{Folder, Setup, program, until};

const PER_IP: &str = "listen: [127.0.0.1:18080]\nlimits: {per-ip: {key: ip, rate: 2/min}}\n\
    routes: [{respond: {status: 200}, limits: [per-ip]}]\n";

fn report(folder: &Folder, args: &[&str]) -> Value {
    let output = folder.run(&[&["replay", "--json", "--host", "api.test"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a report says under "Can this be trusted?", a line for each finding.
fn trust(report: &Value) -> String {
    let all = report["trust"].as_array().unwrap().iter();
    let shown =
        |one: &Value| format!("{}: {}", one["level"].as_str().unwrap(), one["text"].as_str().unwrap());
    all.map(shown).collect::<Vec<_>>().join("\n")
}

fn json_line(second: u64, ip: u64) -> String {
    format!("{{\"time\": {}, \"client_ip\": \"192.0.2.{ip}\", \"path\": \"/\"}}\n", 1_720_000_800 + second)
}

/// A shell lists rotated logs with the newest first; they are read in the order of their times.
#[test]
fn rotated_logs_are_read_in_the_order_of_their_times() {
    let part = |from: u64| (from..from + 100).map(|n| json_line(n * 10, n % 3)).collect::<String>();
    let (old, middle, new) = (part(0), part(100), part(200));
    let whole = [old.as_str(), &middle, &new].concat();
    let files = [
        ("gateway.yaml", PER_IP),
        ("access.log", new.as_str()),
        ("access.log.1", &middle),
        ("access.log.2", &old),
        ("whole", &whole),
        ("late", &json_line(1_500, 9)),
    ];
    let folder = Folder::with(&files);
    let one = report(&folder, &["whole"]);
    let three = report(&folder, &["access.log", "access.log.1", "access.log.2"]);
    for member in ["admitted", "refused", "lines", "limits"] {
        assert_eq!(three[member], one[member], "{member}");
    }
    assert_eq!(three["logs"], json!(["access.log.2", "access.log.1", "access.log"]));
    assert!(trust(&three).contains("in the order of their times"), "{three}");
    let overlap = folder.run(&["replay", "access.log.1", "late"]);
    assert_eq!(overlap.status.code(), Some(1));
    for word in ["access.log.1 and late overlap", "2024-07-03T10:33:10Z", "2024-07-03T10:25:00Z"] {
        assert!(text(&overlap).contains(word), "{word}: {}", text(&overlap));
    }
    let twice = folder.run(&["replay", "whole", "whole"]);
    assert!(text(&twice).contains("overlap"), "{}", text(&twice));
}

/// Lines of 120 requests, 2 s apart from 60 clients, with what this makes of their number behind the user agent.
fn combined(behind: impl Fn(u64) -> String) -> String {
    (0..120).fold(String::new(), |mut all, n| {
        let (minute, second) = (n * 2 / 60, n * 2 % 60);
        _ = writeln!(
            all,
            "192.0.2.{} - - [03/Jul/2024:10:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\" {}",
            n % 60,
            behind(n)
        );
        all
    })
}

/// Numbers that are no durations move no request, whatever server wrote them.
#[test]
fn only_durations_are_taken_for_durations() {
    let formats: [(&str, String, &str); 6] = [
        (
            "ingress",
            combined(|n| format!("{} 0.0{:02} [a-80] [] 10.0.0.5:80 5 0.010 200 id", 100 + n, n % 100)),
            "in s,",
        ),
        (
            "traefik",
            combined(|n| format!("{} \"api@file\" \"http://10.0.0.5:80\" {}ms", 1_000 + n, n % 40)),
            "in ms,",
        ),
        ("apache", combined(|n| format!("{}", 5_000 + n * 100)), "--duration-field"),
        ("ratio", combined(|n| format!("\"2.{n:02}\"")), "combined"),
        ("seconds", combined(|n| format!("0.{n:03}")), "in s,"),
        ("unit", combined(|n| format!("{n}us")), "in us,"),
    ];
    for (name, lines, said) in formats {
        let folder = Folder::with(&[("gateway.yaml", PER_IP), ("log", &lines)]);
        let report = report(&folder, &["log"]);
        assert_eq!(
            (&report["admitted"], &report["refused"]),
            (&json!(120), &json!(0)),
            "{name}: {}",
            trust(&report)
        );
        assert!(trust(&report).contains(said), "{name}: {}", trust(&report));
    }
    let micros = combined(|n| format!("{}", 250_000 + n));
    let folder = Folder::with(&[("gateway.yaml", PER_IP), ("log", &micros)]);
    let right = report(&folder, &["log", "--duration-field", "1us"]);
    assert!(
        trust(&right).contains("120 durations, written in us, with a median of 25006"),
        "{}",
        trust(&right)
    );
    // In the wrong unit the arrivals make no sense.
    let wrong = folder.run(&["replay", "log", "--duration-field", "1s"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong).contains("120 of 120 requests took longer than 60s"), "{}", text(&wrong));
    let nonsense = folder.run(&["replay", "log", "--duration-field", "us"]);
    assert!(text(&nonsense).contains("the number of a field"), "{}", text(&nonsense));
}

/// The times of HAProxy have no zone, and the report says what they are taken for.
#[test]
fn times_without_a_zone_are_taken_for_utc() {
    let log = include_str!("../logs/haproxy-httplog.log");
    let folder = Folder::with(&[("gateway.yaml", PER_IP), ("log", log)]);
    let report = report(&folder, &["log"]);
    assert!(
        trust(&report).contains("HAProxy writes times without a zone: they are taken for UTC"),
        "{}",
        trust(&report)
    );
}

/// A gateway's own log says who sent a request, and under which key it was counted.
#[test]
fn a_log_says_who_sent_the_requests() {
    let line = |n: u64, members: &str| {
        format!("{{\"time\": {n}, \"client_ip\": \"192.0.2.1\", \"path\": \"/\"{members}}}\n")
    };
    let mut log = String::new();
    for n in 0..10 {
        log += &line(n, ", \"consumer\": \"acme\", \"plan\": \"pro\"");
        log += &line(n, ", \"consumer\": \"small\"");
        log += &line(n, ", \"limit\": \"by-key\", \"key\": \"api_key:sha256:0011223344556677\"");
        log += &line(n, ", \"limit\": \"by-key\", \"key\": \"api_key:sha256:8899aabbccddeeff\"");
        log += &line(n, "");
    }
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let consumers = format!("- {{name: acme, key: sha256:{digest}, plan: pro}}\n");
    let config = "listen: [127.0.0.1:18080]\n\
        auth: {api_key: {consumers: consumers.yaml}}\n\
        limits:\n  by-consumer: {key: consumer, rate: 2/day, on_missing: skip, plans: {pro: {rate: 5/day}}}\n  \
        by-key: {key: api_key, rate: 3/day, on_missing: skip}\n\
        routes: [{respond: {status: 200}, limits: [by-consumer, by-key]}]\n";
    let folder = Folder::with(&[("gateway.yaml", config), ("consumers.yaml", &consumers), ("log", &log)]);
    let report = report(&folder, &["log"]);
    let limit = |name: &str| {
        let found = report["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap();
        (found["admitted"].as_u64().unwrap(), found["refused"].as_u64().unwrap())
    };
    assert_eq!(limit("by-consumer"), (7, 13), "5 of acme, 2 of small");
    assert_eq!(limit("by-key"), (6, 14), "3 of each key");
    assert!(trust(&report).contains("limit by-key: its key is missing in 30 of 50"), "{}", trust(&report));
}

/// The default log of the gateway can be replayed.
#[test]
fn the_short_format_is_read() {
    let log: String = (0..6)
        .map(|n| format!("2024-07-03T10:00:0{n}.250Z 203.0.113.9 GET api.test /v1/a 200 254B 0.4ms route=api id=2b22{n}\n"))
        .collect();
    let folder = Folder::with(&[("gateway.yaml", PER_IP), ("log", &log)]);
    let report = report(&folder, &["log"]);
    assert_eq!(
        (&report["admitted"], &report["refused"], &report["unreadable"]),
        (&json!(2), &json!(4), &json!(0))
    );
    assert!(trust(&report).contains("6 lines: short format of sluicegate"), "{}", trust(&report));
}

/// What makes a result doubtful stands at its beginning.
#[test]
fn doubts_stand_first() {
    let proxy = |n: u64| {
        format!(
            "{{\"time\": {}, \"client_ip\": \"10.0.0.1\", \"path\": \"/\", \"headers\": {{\"x-forwarded-for\": \
             \"192.0.2.{n}\"}}}}\n",
            1_720_000_800 + n
        )
    };
    let mut log: String = (0..50).map(proxy).collect();
    log += &json_line(0, 7).replace("1720000800", "1719990000");
    log += "not a line\n";
    let folder = Folder::with(&[("gateway.yaml", PER_IP), ("log", &log)]);
    let doubted = report(&folder, &["log"]);
    for said in [
        "doubt: 50 requests carry X-Forwarded-For, but 10.0.0.1",
        "doubt: 10.0.0.1 sends 98.0 % of the requests",
        "doubt: 1 line is out of order, by up to 10849s",
        "1 line could not be read",
    ] {
        assert!(trust(&doubted).contains(said), "{said}\n{}", trust(&doubted));
    }
    let people = text(&folder.run(&["replay", "log", "--host", "api.test"]));
    assert!(people.starts_with("Can this be trusted?\n"), "{people}");
    let trusting = format!("client_ip: {{trusted_proxies: [10.0.0.1]}}\n{PER_IP}");
    let folder = Folder::with(&[("gateway.yaml", &trusting), ("log", &log)]);
    let trusted = report(&folder, &["log"]);
    assert!(
        !trust(&trusted).contains("X-Forwarded-For") && !trust(&trusted).contains("sends"),
        "{}",
        trust(&trusted)
    );
}

/// JSON of any kind is read with a map; without one its members are named.
#[test]
fn json_of_any_kind_can_be_mapped() {
    let log: String = (0..4)
        .map(|n| {
            format!(
                "{{\"ts\": {}, \"req\": {{\"ip\": \"192.0.2.1\", \"url\": \"/\"}}, \"took\": 5}}\n",
                1_719_850_000_250_u64 + n
            )
        })
        .collect();
    let folder = Folder::with(&[("gateway.yaml", PER_IP), ("log", &log)]);
    let unknown = folder.run(&["replay", "log"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown).contains("its members are req, took, ts"), "{}", text(&unknown));
    let map = "time=ts,client_ip=req.ip,path=req.url,duration=took:ms";
    let mapped = report(&folder, &["log", "--map", map]);
    assert_eq!((&mapped["admitted"], &mapped["refused"]), (&json!(2), &json!(2)));
    let wrong = folder.run(&["replay", "log", "--map", "when=ts"]);
    assert!(text(&wrong).contains("`when` is not one of time, client_ip"), "{}", text(&wrong));
}

/// What a gateway logged, replayed under its own configuration, is decided as it was: by consumer, plan and API key, although the
/// log has no credentials. Keys that are secret are logged as digests.
#[test]
fn a_gateway_replays_its_own_log() {
    let digest = "6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0"; // of k1
    let gateway = Setup::default()
        .file("consumers.yaml", &format!("- {{name: acme, key: sha256:{digest}, plan: pro}}\n"))
        .start(
            "access_log: {path: access.log, fields: [time, client_ip, path, status, outcome, limit, key, consumer, plan]}\n\
             auth: {api_key: {consumers: consumers.yaml}}\n\
             limits:\n  by-consumer: {key: consumer, rate: 2/day, plans: {pro: {rate: 4/day}}}\n  \
             by-key: {key: api_key, rate: 3/day}\n\
             routes:\n  - {name: a, match: {path: /a}, respond: {status: 200}, limits: [by-consumer]}\n  \
             - {name: b, match: {path: /b}, respond: {status: 200}, limits: [by-key]}\n",
        );
    assert_eq!(gateway.statuses(6, "/a", &[("x-api-key", "k1")]), [200, 200, 200, 200, 429, 429]);
    assert_eq!(gateway.statuses(4, "/b", &[("x-api-key", "k1")]), [200, 200, 200, 429]);
    assert_eq!(gateway.statuses(5, "/b", &[("x-api-key", "k2")]), [200, 200, 200, 429, 429]);
    let log = until("all is logged", || {
        let log = std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
        (log.lines().count() == 15).then_some(log)
    });
    assert!(log.contains("\"key\":\"api_key:sha256:6ab9f1eb8f7d3388\"") && !log.contains("k1\""), "{log}");
    let replayed = program()
        .args(["replay", "access.log", "--decisions", "out.jsonl", "--host", "api.test"])
        .current_dir(gateway.path("."))
        .output()
        .unwrap();
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed));
    let member =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["outcome"].as_str().unwrap().to_owned();
    let rows = std::fs::read_to_string(gateway.path("out.jsonl")).unwrap();
    let (was, is): (Vec<_>, Vec<_>) = (log.lines().map(member).collect(), rows.lines().map(member).collect());
    assert_eq!(was, is, "{}", text(&replayed));
}
