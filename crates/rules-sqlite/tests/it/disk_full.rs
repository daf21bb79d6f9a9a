//! A file that cannot grow.

use std::env;
use std::path::Path;
use std::process::Command;

use sluicegate_rules_sqlite::{RuleFile, WriteError};

use crate::common::{Reaped, again, batch, place, put, rule};

/// The path of the file, for the child.
const FILE: &str = "RULES_SQLITE_TEST_FULL";

/// The child, which may write files of 512 kB only.
#[test]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let file = RuleFile::open(Path::new(&path)).unwrap();
    file.write(batch([put(rule("small", "k1", ""))])).unwrap();
    let note = "x".repeat(1_000);
    let large = batch((0..2_000).map(|n| put(rule(&format!("r{n}"), "k1", &note))));
    let error = file.write(large).unwrap_err();
    assert!(matches!(error, WriteError::Storage(_)), "{error}");
    assert_eq!(file.count().unwrap(), 1);
    assert_eq!(file.write(batch([put(rule("small", "k2", ""))])).unwrap().version, 2);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_and_a_smaller_one_is_written() {
    let (_folder, path) = place();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
    let mut child = Reaped(again("disk_full::child", shell).env(FILE, &path).spawn().unwrap());
    assert!(child.end().success());
    let file = RuleFile::open(&path).unwrap();
    assert_eq!(file.get("small").unwrap().unwrap().rule.key, "k2");
    assert_eq!(file.count().unwrap(), 1);
}
