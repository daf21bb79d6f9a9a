//! The dashboard and the rules for Prometheus ask for metrics that exist, and each alert is explained and tested.

use std::collections::BTreeSet;
use std::fs::read_to_string as read;
use std::process::Command;

use regex::Regex;
use serde_json::Value;

const RULES: &str = "deploy/prometheus/rules.yml";
const TESTS: &str = "deploy/prometheus/rules.test.yml";

/// The names that can be asked for: families, and the parts of histograms.
fn known() -> BTreeSet<String> {
    let manual = read("docs/metrics.md").unwrap();
    let row = Regex::new(r"(?m)^\| `([a-z0-9_]+)` \| (counter|gauge|histogram) \|").unwrap();
    let mut names = BTreeSet::new();
    for found in row.captures_iter(&manual) {
        match &found[2] {
            "histogram" => {
                names.extend(["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", &found[1])))
            }
            _ => drop(names.insert(found[1].to_owned())),
        }
    }
    assert!(names.len() > 40);
    names
}

/// The metrics of a text that are not known.
fn unknown(text: &str) -> Vec<String> {
    let known = known();
    let name = Regex::new(r"(?:^|[^a-zA-Z0-9_:/.])((?:sluicegate|process)_[a-z0-9_]+)").unwrap();
    let names = name.captures_iter(text).map(|found| found[1].to_owned());
    names.filter(|name| !known.contains(name)).collect()
}

fn alerts() -> Vec<String> {
    let rules = read(RULES).unwrap();
    let alert = Regex::new(r"- alert: (\w+)").unwrap();
    alert.captures_iter(&rules).map(|found| found[1].to_owned()).collect()
}

#[test]
fn the_rules_ask_for_metrics_that_exist() {
    for file in [RULES, TESTS] {
        assert_eq!(unknown(&read(file).unwrap()), Vec::<String>::new(), "{file}");
    }
    assert_eq!(unknown("rate(sluicegate_no_such_total[5m])").len(), 1);
}

#[test]
fn each_alert_is_explained_and_tested() {
    let (runbook, tests, rules) =
        (read("docs/runbook.md").unwrap(), read(TESTS).unwrap(), read(RULES).unwrap());
    assert!(alerts().len() > 15);
    for alert in alerts() {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "{alert} is not in the runbook");
        assert!(
            rules.contains(&format!("docs/runbook.md#{}\n", alert.to_lowercase())),
            "{alert} has no link"
        );
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert} is not tested");
        assert!(
            tests.contains(&format!("eval_time: 2h, alertname: {alert}}}")),
            "{alert} is not tested when all is well"
        );
    }
}

/// Prometheus' own program finds no fault with the rules, and each alert fires when it should.
#[test]
fn promtool_accepts_the_rules() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no promtool (Debian: the package prometheus); rules were not evaluated");
        return;
    }
    for arguments in [
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules.test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        let done =
            Command::new("promtool").args(arguments).current_dir("deploy/prometheus").output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stdout));
    }
}

#[test]
fn the_dashboard_is_whole() {
    let text = read("deploy/grafana/sluicegate.json").unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for place in (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y))) {
            assert!(taken.insert(place), "{} lies on another panel", panel["title"]);
        }
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && panel["title"] != "", "{panel}");
        for target in targets {
            let asked = target["expr"].as_str().unwrap();
            assert_eq!(unknown(asked), Vec::<String>::new(), "{}", panel["title"]);
            assert!(asked.contains("$instance"), "{} ignores the chosen gateway", panel["title"]);
            assert_eq!(target["datasource"]["uid"], "${datasource}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "job", "instance", "route", "limit"]);
}
