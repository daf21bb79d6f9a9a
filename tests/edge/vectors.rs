//! Golden traces (tests/vectors): `sluicegate replay` answers every request of every trace exactly as the models do.

use std::path::{Path, PathBuf};

use crate::harness::program;
use serde_json::Value;

/// Seconds may differ by this much.
const TOLERANCE: f64 = 5e-6;

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is wrong with the answers to one trace.
fn differences(case: &Path) -> Vec<String> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let run = program()
        .args(["replay", "traffic.jsonl", "--config", "gateway.yaml", "--decisions"])
        .arg(out.path())
        .current_dir(case)
        .output()
        .unwrap();
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    if !run.status.success() {
        return vec![format!("{name}: {}: {}", run.status, String::from_utf8_lossy(&run.stderr))];
    }
    let (expected, decided) = (lines(&case.join("expected.jsonl")), lines(out.path()));
    let mut wrong = Vec::new();
    if expected.len() != decided.len() {
        wrong.push(format!("{name}: {} lines instead of {}", decided.len(), expected.len()));
    }
    for (wanted, got) in expected.iter().zip(&decided) {
        for (field, value) in wanted.as_object().unwrap() {
            let right = match (field.as_str(), value.as_f64(), got[field].as_f64()) {
                ("retry_after" | "delay", Some(wanted), Some(got)) => (wanted - got).abs() <= TOLERANCE,
                _ => got[field] == *value,
            };
            if !right {
                wrong.push(format!(
                    "{name}, line {}: {field} is {} instead of {value}",
                    wanted["line"], got[field]
                ));
            }
        }
    }
    wrong
}

/// All traces, answer for answer.
#[test]
fn every_golden_trace_is_answered_exactly() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    cases.sort();
    assert!(cases.len() >= 26, "the traces are there: {cases:?}");
    let wrong: Vec<String> = cases.iter().flat_map(|case| differences(case)).collect();
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The decisions say what the documentation says they say, in every line.
#[test]
fn decisions_have_all_their_fields() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/seed-token-bucket-burst");
    let out = tempfile::NamedTempFile::new().unwrap();
    let status = program()
        .args(["replay", "traffic.jsonl", "--config", "gateway.yaml", "--decisions"])
        .arg(out.path())
        .current_dir(folder)
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    for (at, line) in std::fs::read_to_string(out.path()).unwrap().lines().enumerate() {
        let decision: Value = serde_json::from_str(line).unwrap();
        assert_eq!(decision["line"], at + 1);
        assert_eq!((&decision["route"], &decision["limit"]), (&"all".into(), &"limit-0".into()));
        assert!(decision["remaining"].is_u64() && decision["outcome"].is_string(), "{line}");
        for field in ["retry_after", "delay"] {
            let written =
                line.split(&format!("\"{field}\": ")).nth(1).unwrap().split([',', '}']).next().unwrap();
            let (_, fraction) = written.split_once('.').unwrap();
            assert_eq!(fraction.len(), 6, "{line}");
        }
    }
}
