//! The load test in `deploy/load`: its arithmetic, and a short run with the real Locust where there is one.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::harness::{patience, within};

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn its_arithmetic_is_right() {
    if !is_there("python3") {
        eprintln!("SKIPPED: there is no python3; the arithmetic of the load test was not tested");
        return;
    }
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "discover", "deploy/load"]);
    let done = tests.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("Ran "), "{said}");
}

#[test]
fn a_short_run_finds_every_key_within_its_limit() {
    let locust = std::env::var("SLUICEGATE_LOCUST").unwrap_or_else(|_| "locust".into());
    if !is_there("python3") || !is_there(&locust) {
        eprintln!(
            "SKIPPED: there is no python3 or no Locust (SLUICEGATE_LOCUST, or on the PATH); nothing was loaded"
        );
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let mut run = Command::new("python3");
    run.args(["deploy/load/run", "--seconds", "5", "--shape", "burst", "--gateway"])
        .arg(env!("CARGO_BIN_EXE_sluicegate"))
        .arg("--locust")
        .arg(&locust)
        .arg("--out")
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0); // so that what it starts can be ended with it
    let mut child = run.spawn().unwrap();
    let ended = within(patience(60), || child.try_wait().unwrap());
    if ended.is_none() {
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-KILL", "--", &group]).status().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(ended.is_some_and(|status| status.success()), "{said}");
    for algorithm in ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"] {
        assert!(said.contains(&format!("burst, {algorithm}: offered ")), "{said}");
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("checks hold.</p>") && page.contains("<svg"), "{said}");
}
