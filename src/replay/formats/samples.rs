//! Logs that real programs wrote (those with `-doc` in their names were written by hand, from the documentation), beside what an
//! independent reader of each format counted.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Known, LineParser, Request, TimeOf};

/// How often each of these is there.
fn counts(all: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts
}

fn expected(value: &Value) -> BTreeMap<String, u64> {
    let all = value.as_object().into_iter().flatten();
    all.filter(|(name, _)| *name != "000")
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
        .collect()
}

fn compare(name: &str, requests: &[Request], expectation: &Value) {
    assert_eq!(requests.len() as u64, expectation["lines"].as_u64().unwrap(), "{name}: lines");
    let millis = |seconds: &Value| (seconds.as_f64().unwrap() * 1e3).round() as u64;
    let first = requests.iter().map(|request| request.time.as_nanos() / 1_000_000).min().unwrap();
    // An ALB names the arrival, too, and that is taken.
    if !name.contains("alb") {
        assert!(first.abs_diff(millis(&expectation["first_time"])) <= 1, "{name}: first time {first}");
        let means = if expectation["time_means"] == "start" { TimeOf::Arrival } else { TimeOf::End };
        // Of Apache's combined format nobody can tell that it is Apache's.
        let known =
            name.starts_with("apache-combined") || requests.iter().all(|request| request.time_of == means);
        assert!(known, "{name}: the time is that of the {}", expectation["time_means"]);
    }
    let clients = if expectation["clients_rightmost"].is_null() {
        &expectation["clients"]
    } else {
        &expectation["clients_rightmost"]
    };
    assert_eq!(
        counts(requests.iter().map(|request| request.client.to_string())),
        expected(clients),
        "{name}"
    );
    let statuses =
        requests.iter().filter_map(|request| request.status.map(|status| status.as_str().to_owned()));
    assert_eq!(counts(statuses), expected(&expectation["statuses"]), "{name}");
    let methods = requests.iter().map(|request| request.parts.method.to_string());
    assert_eq!(counts(methods), expected(&expectation["methods"]), "{name}");
    let paths = requests.iter().map(|request| request.parts.target.path_and_query().to_string());
    assert_eq!(counts(paths), expected(&expectation["paths"]), "{name}");
    let longest =
        requests.iter().filter_map(|request| request.duration).max_by_key(|(duration, _)| *duration);
    match expectation["max_duration_seconds"].as_f64() {
        Some(seconds) => {
            let (found, _) = longest.unwrap_or_else(|| panic!("{name}: no durations"));
            let off = (found.as_nanos() as f64 / 1e9 - seconds).abs();
            assert!(off < 0.001, "{name}: {found}, not {seconds} s");
        }
        None => assert_eq!(longest, None, "{name}: no durations"),
    }
}

#[test]
fn logs_of_real_programs_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".log") else { continue };
        let expectation = std::fs::read_to_string(folder.join(format!("{name}.expected.json"))).unwrap();
        let expectation: Value = serde_json::from_str(&expectation).unwrap();
        let duration = name.contains("combined-D").then(|| "1us".parse().unwrap());
        let mut parser = LineParser::new(Known { duration, ..Known::default() });
        let mut requests = Vec::new();
        for line in std::fs::read(&path).unwrap().split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
        {
            match parser.parse(line) {
                Ok(request) => requests.extend(request),
                // What the server could not read itself.
                Err(error) => assert!(
                    String::from_utf8_lossy(line).contains("\"- http") || name.contains("badreq"),
                    "{name}: {error}: {}",
                    String::from_utf8_lossy(line)
                ),
            }
        }
        if !name.contains("badreq") {
            compare(name, &requests, &expectation);
        }
        seen += 1;
    }
    assert!(seen >= 20, "{seen} logs");
}
