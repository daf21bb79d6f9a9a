//! Keeps `docs/metrics.md` equal to the code. `UPDATE=1 cargo test -p sluicegate-observe reference` writes it.

use std::fmt::Write as _;
use std::path::Path;

use prometheus::proto::MetricType;

use super::families::{self, Values};
use super::worker_counters::BOUNDS;
use sluicegate_base::refusal_reason::RefusalReason;

const BEGINNING: &str = "\
# Metrics

`GET /metrics` of the [admin API](configuration.md#admin) has these families in Prometheus' text format. This page is
written from the code (`crates/observe/src/metrics/families.rs`).

No label has a value that a client chooses: label values are names of the configuration, names of consumers if
`metrics.by_consumer` is set, or one of the closed sets below.
Counters start at 0 when the gateway starts or is [upgraded](operations.md#upgrade), and a series is there at 0 before
its first event where the configuration lets expect that event: a limit that refuses has
`sluicegate_limit_decisions_total{outcome=\"refused\"}`, a route that forwards has `sluicegate_refusals_total{reason=\"upstream\"}`.
Series of objects that a reload removes from the configuration are no longer exposed.
";

/// The unit in the name of a family.
fn unit(name: &str) -> &'static str {
    match name {
        _ if name.contains("_seconds") => "seconds",
        _ if name.contains("_bytes") => "bytes",
        _ => "",
    }
}

fn reference() -> String {
    let mut out = BEGINNING.to_owned();
    out += "\n| family | type | labels | unit | |\n| --- | --- | --- | --- | --- |\n";
    for family in families::ALL {
        let kind = match family.kind {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            _ => "histogram",
        };
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{}`", label.name)).collect();
        let (labels, unit) = (labels.join(", "), unit(family.name));
        _ = writeln!(out, "| `{}` | {kind} | {labels} | {unit} | {} |", family.name, family.help);
    }
    let bounds: Vec<String> = BOUNDS.iter().map(|bound| (*bound as f64 / 1e9).to_string()).collect();
    _ = writeln!(out, "\nAll histograms have the same upper bounds, in seconds: {}.", bounds.join(", "));
    out += "\n## Labels\n\n| label | of | values |\n| --- | --- | --- |\n";
    let mut listed: Vec<(&str, String)> = Vec::new();
    for family in families::ALL {
        for label in family.labels {
            let values = match label.values {
                Values::Of(what) => what.to_owned(),
                Values::These(values) => format!("`{}`", values.join("`, `")),
            };
            let is_known = listed.contains(&(label.name, values.clone()));
            if is_known {
                continue;
            }
            let name = if matches!(label.values, Values::Of(_)) { "" } else { family.name };
            let place = if name.is_empty() { "all that have it".to_owned() } else { format!("`{name}`") };
            _ = writeln!(out, "| `{}` | {place} | {values} |", label.name);
            listed.push((label.name, values));
        }
    }
    out += "\n## Reasons\n\nWhy the gateway itself answered a request with an error: `reason` of `sluicegate_refusals_total`, of the\n\
            [access log](configuration.md#access_log), of problem+json answers and of `GET /status`.\n\n\
            | reason | |\n| --- | --- |\n";
    for (name, meaning) in RefusalReason::NAMES.iter().zip(RefusalReason::MEANINGS) {
        _ = writeln!(out, "| `{name}` | {} |", meaning.trim());
    }
    out
}

#[test]
fn the_reference_of_the_metrics_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(file, reference()).unwrap();
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        text == reference(),
        "docs/metrics.md is stale: UPDATE=1 cargo test -p sluicegate-observe reference"
    );
}

#[test]
fn names_are_those_of_prometheus() {
    for (at, family) in families::ALL.iter().enumerate() {
        let name = family.name;
        assert!(families::ALL[..at].iter().all(|other| other.name != name), "{name} is declared twice");
        assert_eq!(family.kind == MetricType::COUNTER, name.ends_with("_total"), "{name}");
        assert!(family.kind != MetricType::HISTOGRAM || name.ends_with("_seconds"), "{name}");
        assert!(family.help.ends_with('.'), "{name}");
    }
}
