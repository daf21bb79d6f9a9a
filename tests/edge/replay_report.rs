//! What a replay reports: JSON, suggested rates that keep what they promise, other rules, algorithms side by side, a page.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::harness::Folder;
use crate::harness::folder::text;

fn rules(limit: &str) -> String {
    format!(
        "listen: [127.0.0.1:18080]\nlimits:\n  per-ip: {{key: ip, {limit}}}\nroutes:\n  \
         - {{name: all, match: {{path: /v1/*}}, respond: {{status: 200}}, limits: [per-ip]}}\n"
    )
}

/// Requests of 2,000 clients within ten minutes: most have a few, some many, a few bursts.
fn log() -> String {
    let (mut all, mut state) = (Vec::new(), 7_u64);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for client in 0..2_000_u64 {
        let requests = 1 + random(4) + if client % 40 == 0 { random(80) } else { 0 };
        let burst = random(600_000);
        for _ in 0..requests {
            let at = if client % 3 == 0 { burst + random(3_000) } else { random(600_000) };
            all.push((at, client));
        }
    }
    all.sort_unstable();
    let line = |(at, client): (u64, u64)| {
        let (high, low) = (client / 250, client % 250);
        format!(
            "{{\"time\": {}.{:03}, \"client_ip\": \"10.0.{high}.{low}\", \"path\": \"/v1/x\"}}\n",
            1_719_850_000 + at / 1_000,
            at % 1_000
        )
    };
    all.into_iter().map(line).collect()
}

fn replay(folder: &Folder, args: &[&str]) -> Value {
    let output = folder.run(&[&["replay", "log", "--json"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A suggested rate, written into the file and replayed, refuses no more clients than was promised, and one less would have
/// refused more.
#[test]
fn a_suggestion_keeps_its_promise() {
    for limit in [
        "rate: 5/min",
        "rate: 5/min, burst: 20",
        "algorithm: fixed_window, rate: 5/min",
        "algorithm: sliding_window, rate: 5/min, slices: 6",
        "algorithm: sliding_window, rate: 5/min, slices: 6, strict: true",
        "algorithm: sliding_log, rate: 5/min",
    ] {
        let folder = Folder::with(&[("gateway.yaml", &rules(limit)), ("log", &log())]);
        let report = replay(&folder, &[]);
        let found = &report["limits"][0];
        assert_eq!(found["clients"], 2_000, "{limit}");
        assert_eq!(found["suggested"].as_array().unwrap().len(), 3, "{limit}: {found}");
        for suggestion in found["suggested"].as_array().unwrap() {
            let (rate, promised) =
                (suggestion["rate"].as_str().unwrap(), suggestion["refused_clients"].as_f64().unwrap());
            let replayed = |count: u64| {
                let file = rules(&limit.replace("rate: 5/min", &format!("rate: {count}/min")));
                std::fs::write(folder.path("gateway.yaml"), file).unwrap();
                replay(&folder, &[])["limits"][0]["clients_refused"].as_u64().unwrap()
            };
            let count: u64 = rate.strip_suffix("/min").unwrap().parse().unwrap();
            let refused = replayed(count);
            assert_eq!(suggestion["clients_refused"], refused, "{limit} {rate}");
            assert!(refused as f64 <= promised * 2_000.0, "{limit} {rate}: {refused}");
            assert!(count == 1 || replayed(count - 1) as f64 > promised * 2_000.0, "{limit} {rate}");
        }
    }
}

/// The JSON has what was read, what was decided, and the same numbers as the text.
#[test]
fn the_report_is_also_json() {
    let lines = concat!(
        "{\"time\": 1719850000.0, \"client_ip\": \"203.0.113.9\", \"path\": \"/v1/a\"}\n",
        "{\"time\": 1719850000.1, \"client_ip\": \"203.0.113.9\", \"path\": \"/v1/a\"}\n\nnonsense\n",
        "{\"time\": 1719850000.2, \"client_ip\": \"203.0.113.9\", \"path\": \"/none\"}\n"
    );
    let folder = Folder::with(&[("gateway.yaml", &rules("rate: 1/min")), ("log", lines)]);
    let report = replay(&folder, &[]);
    for (field, value) in [("lines", 4), ("unreadable", 1), ("unmatched", 1), ("admitted", 1), ("refused", 1)]
    {
        assert_eq!(report[field], value, "{field}: {report}");
    }
    let limit = &report["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["admitted"], &limit["refused"]),
        (&json!("per-ip"), &json!(1), &json!(1))
    );
    assert_eq!((&limit["top_refused"][0]["key"], &limit["clients"]), (&json!("ip:203.0.113.9"), &json!(1)));
    assert_eq!((&report["against"], &report["algorithms"]), (&Value::Null, &Value::Null));
    assert_eq!(report["unmatched_paths"][0]["count"], 1);
}

/// Two configurations in one pass: who is newly refused and who is freed.
#[test]
fn rules_are_compared() {
    let folder = Folder::with(&[
        ("gateway.yaml", &rules("rate: 2/min")),
        ("old.yaml", &rules("rate: 4/min").replace("/v1/*", "/v1/x")),
        ("log", &log()),
    ]);
    let one = |config: &str| replay(&folder, &["--config", config])["refused"].as_u64().unwrap();
    let (old, new) = (one("old.yaml"), one("gateway.yaml"));
    let against = &replay(&folder, &["--against", "old.yaml", "--decisions", "out.jsonl"])["against"];
    let (newly, freed) = (against["newly_refused"].as_u64().unwrap(), against["freed"].as_u64().unwrap());
    assert!(newly > 0 && old + newly - freed == new, "{old} {new} {newly} {freed}");
    let rows = folder.read("out.jsonl");
    let changed = |row: &&Value| row["against"] == "admitted" && row["outcome"] == "refused";
    assert_eq!(rows.iter().filter(changed).count() as u64, newly);
    let people = folder.run(&["replay", "log", "--against", "old.yaml"]);
    assert!(text(&people).contains(&format!("{newly} requests are newly refused")), "{}", text(&people));
    let missing = folder.run(&["replay", "log", "--against", "none.yaml"]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing));
}

/// Lines in the combined format: a slow request arrived before the quick ones, and a second's requests not all at once.
#[test]
fn arrivals_are_restored() {
    let mut lines = String::new();
    let mut line = |second: u64, ip: u64, took: &str| {
        _ = writeln!(
            lines,
            "192.0.2.{ip} - - [03/Jul/2024:10:00:{second:02} +0000] \"GET /v1/x HTTP/1.1\" 200 1 \"-\" \"-\" {took}"
        );
    };
    (0..10).for_each(|_| line(1, 1, ""));
    line(30, 2, "0.1");
    line(31, 2, "10.0");
    let folder = Folder::with(&[("gateway.yaml", &rules("rate: 2/s")), ("log", &lines)]);
    let spread = replay(&folder, &["--decisions", "out.jsonl"]);
    assert_eq!(spread["refused"], 7, "two, and what refills within the second: {spread}");
    let assumed = spread["assumptions"].to_string();
    for word in ["10 requests are whole seconds", "2 requests arrived earlier"] {
        assert!(assumed.contains(word), "{word}: {assumed}");
    }
    let order: Vec<u64> = folder.read("out.jsonl").iter().map(|row| row["line"].as_u64().unwrap()).collect();
    assert_eq!(order[10..], [12, 11], "it arrived first");
    let literal = replay(&folder, &["--spread", "off", "--times", "arrival", "--decisions", "out.jsonl"]);
    assert_eq!((&literal["refused"], &literal["assumptions"]), (&json!(8), &json!([])));
}

/// Every algorithm beside the exact log: that one is never wrong, a strict window never admits more than its count, and a
/// burst across the border of a fixed window gets twice of it.
#[test]
fn algorithms_are_compared() {
    let mut lines = String::new();
    for millis in (59_000..59_900).step_by(30).chain((60_100..61_000).step_by(30)) {
        _ = writeln!(
            lines,
            "{{\"time\": {}.{:03}, \"client_ip\": \"192.0.2.1\", \"path\": \"/v1/x\"}}",
            1_719_849_960 + millis / 1_000,
            millis % 1_000
        );
    }
    let folder = Folder::with(&[("gateway.yaml", &rules("rate: 30/min")), ("log", &lines)]);
    let report = replay(&folder, &["--compare-algorithms", "--report", "report.html"]);
    let compared = &report["algorithms"][0];
    assert_eq!((&compared["limit"], &compared["rate"]), (&json!("per-ip"), &json!("30/min")));
    let of = |label: &str| {
        let rows = compared["rows"].as_array().unwrap();
        let row =
            rows.iter().find(|row| row["label"] == label).unwrap_or_else(|| panic!("{label}: {compared}"));
        let number = |field: &str| row[field].as_f64().unwrap();
        (number("refused"), number("wrongly_refused"), number("wrongly_admitted"), number("worst"))
    };
    assert_eq!(of("exact sliding log"), (30.0, 0.0, 0.0, 1.0));
    assert_eq!(of("fixed window"), (0.0, 0.0, 0.5, 2.0));
    assert_eq!(of("sliding window, 10 slices, strict").3, 1.0);
    assert_eq!(compared["windows"].as_array().unwrap().len(), 10);
    let page = std::fs::read_to_string(folder.path("report.html")).unwrap();
    assert!(page.contains("exact sliding log") && !page.contains("/*data*/"), "{}", &page[..300]);
    let mut urls = page.match_indices("http://").map(|(at, _)| &page[at..]);
    assert!(urls.all(|url| url.starts_with("http://www.w3.org/")), "nothing is read from elsewhere");
}

/// Nothing of a log can leave its place in the page.
#[test]
fn the_page_is_safe_from_what_clients_sent() {
    let line = "{\"time\": 1719850000.0, \"client_ip\": \"203.0.113.9\", \"path\": \"/v1/x\", \
                \"headers\": {\"x-tenant\": \"</script><script>alert(1)</script>\"}}\n";
    let rules = rules("rate: 1/min").replace("key: ip", "key: 'header:x-tenant'");
    let folder = Folder::with(&[("gateway.yaml", &rules), ("log", &line.repeat(2))]);
    let output = folder.run(&["replay", "log", "--report", "report.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let page = std::fs::read_to_string(folder.path("report.html")).unwrap();
    assert!(page.contains("\\u003cscript>alert") && !page.contains("<script>alert"), "{page}");
    let unwritable = folder.run(&["replay", "log", "--report", "none/report.html"]);
    assert_eq!(unwritable.status.code(), Some(2), "{}", text(&unwritable));
}

/// Where costs are known late, requests wait, or limits refuse for each other, a rate is suggested only after a replay with it.
#[test]
fn every_suggestion_is_replayed() {
    let (mut all, mut state) = (Vec::new(), 11_u64);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for client in 0..100_u64 {
        let burst = random(600_000);
        for _ in 0..1 + random(30) + if client % 20 == 0 { random(200) } else { 0 } {
            let at = if client % 2 == 0 { burst + random(5_000) } else { random(600_000) };
            all.push((at, client, if random(4) == 0 { 404 } else { 200 }, random(5_000)));
        }
    }
    all.sort_unstable();
    let line = |(at, client, status, bytes): (u64, u64, u64, u64)| {
        format!(
            "{{\"time\": {}.{:03}, \"client_ip\": \"10.0.0.{client}\", \"path\": \"/v1/x\", \"status\": {status}, \"bytes\": {bytes}, \
             \"duration\": 0.020}}\n",
            1_719_850_000 + at / 1_000,
            at % 1_000
        )
    };
    let log: String = all.into_iter().map(line).collect();
    let file = |limits: &str, names: &str| {
        format!(
            "listen: [127.0.0.1:18080]\nlimits:\n{limits}routes: [{{respond: {{status: 200}}, limits: [{names}]}}]\n"
        )
    };
    let late = "per-ip: {key: ip, RATE, cost: {bytes: response}}\n";
    let cases = [
        (late, "rate: 20000/min"),
        ("per-ip: {key: ip, RATE, cost: {status: [404]}}\n", "rate: 3/min"),
        ("per-ip: {key: ip, RATE, cost: {bytes: response, reserve: 500}}\n", "rate: 20000/min"),
        ("per-ip: {key: ip, algorithm: leaky_bucket, RATE, burst: 5, max_delay: 2s}\n", "rate: 20/min"),
        ("per-ip: {key: ip, RATE}\n  all: {key: global, rate: 200/min}\n", "rate: 5/min"),
        ("per-ip: {key: ip, RATE, ban: {after: 3, within: 1m, for: 10m}}\n", "rate: 5/min"),
    ];
    for (limit, own) in cases {
        let names = if limit.contains("all:") { "per-ip, all" } else { "per-ip" };
        let with = |rate: &str| file(&format!("  {}", limit.replace("RATE", rate)), names);
        let folder = Folder::with(&[("gateway.yaml", &with(own)), ("log", &log)]);
        let report = replay(&folder, &[]);
        let of = |report: &Value| -> Value {
            report["limits"]
                .as_array()
                .unwrap()
                .iter()
                .find(|limit| limit["name"] == "per-ip")
                .unwrap()
                .clone()
        };
        let suggested = of(&report)["suggested"].as_array().unwrap().clone();
        assert!(!suggested.is_empty(), "{limit}: {}", of(&report));
        for suggestion in suggested {
            let rate = suggestion["rate"].as_str().unwrap();
            std::fs::write(folder.path("gateway.yaml"), with(&format!("rate: {rate}"))).unwrap();
            let refused = of(&replay(&folder, &[]))["clients_refused"].as_u64().unwrap();
            assert_eq!(suggestion["clients_refused"], refused, "{limit} {rate}");
            let promised = suggestion["refused_clients"].as_f64().unwrap();
            assert!(refused as f64 <= promised * 100.0, "{limit} {rate}: {refused} of 100, {promised}");
        }
    }
}

/// A limit that refuses nobody needs no other rate.
#[test]
fn what_is_enough_is_not_raised() {
    let log: String = (0..200)
        .map(|n| {
            let (time, ip, status) = (1_719_850_000 + n * 7, n % 10, if n % 20 < 10 { 401 } else { 200 });
            format!("{{\"time\": {time}, \"client_ip\": \"10.0.0.{ip}\", \"path\": \"/v1/x\", \"status\": {status}}}\n")
        })
        .collect();
    let limit = "algorithm: sliding_window, rate: 5/min, cost: {status: [401]}";
    let folder = Folder::with(&[("gateway.yaml", &rules(limit)), ("log", &log)]);
    let report = replay(&folder, &[]);
    let found = &report["limits"][0];
    assert_eq!(found["clients_refused"], 0, "{found}");
    for suggestion in found["suggested"].as_array().unwrap() {
        let count: u64 = suggestion["rate"].as_str().unwrap().strip_suffix("/min").unwrap().parse().unwrap();
        assert!(count <= 5, "{suggestion}");
    }
}

/// Algorithms are compared by what requests cost in the end.
#[test]
fn algorithms_count_late_costs() {
    let line = |n: u64| {
        format!(
            "{{\"time\": {}, \"client_ip\": \"10.0.0.1\", \"path\": \"/v1/x\", \"status\": 200, \"bytes\": 500}}\n",
            1_719_850_000 + n
        )
    };
    let log: String = (0..10).map(line).collect();
    let limit = "algorithm: fixed_window, rate: 1000/min, cost: {bytes: response, request: 0}";
    let folder = Folder::with(&[("gateway.yaml", &rules(limit)), ("log", &log)]);
    let report = replay(&folder, &["--compare-algorithms"]);
    assert_eq!(report["refused"], 8, "two use the limit up: {report}");
    let rows = report["algorithms"][0]["rows"].as_array().unwrap();
    let of =
        |label: &str| rows.iter().find(|row| row["label"] == label).unwrap()["refused"].as_u64().unwrap();
    assert_eq!((of("exact sliding log"), of("fixed window")), (8, 8));
    assert!(of("token bucket") >= 7, "{rows:?}");
}
