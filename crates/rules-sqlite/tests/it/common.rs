//! What the tests share.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sluicegate_rules::{Rule, Stored};
use sluicegate_rules_sqlite::{Batch, Op, Precondition, ReadError, RuleFile, Write};
use tempfile::TempDir;

/// No test takes longer, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A folder for a file, and the file's name.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.db");
    (folder, path)
}

/// A new file.
pub(crate) fn new_file() -> (TempDir, RuleFile) {
    let (folder, path) = place();
    (folder, RuleFile::open(&path).unwrap())
}

/// A rule of the limit `api`.
pub(crate) fn rule(id: &str, key: &str, note: &str) -> Rule {
    rule_of("api", id, key, note)
}

/// A rule.
pub(crate) fn rule_of(limit: &str, id: &str, key: &str, note: &str) -> Rule {
    let [id, limit, key, note] = [id, limit, key, note].map(str::to_owned);
    Rule { id, limit, key, note, rate: Some("500/min".into()), ..Rule::default() }
}

/// A change that creates or replaces a rule; a key with `*` is a pattern.
pub(crate) fn put(rule: Rule) -> Write {
    put_if(rule, Precondition::None)
}

pub(crate) fn put_if(rule: Rule, precondition: Precondition) -> Write {
    let pattern = rule.key.contains('*');
    Write { op: Op::Put { rule, pattern }, precondition }
}

/// A change that deletes a rule.
pub(crate) fn delete(id: &str) -> Write {
    delete_if(id, Precondition::None)
}

pub(crate) fn delete_if(id: &str, precondition: Precondition) -> Write {
    Write { op: Op::Delete { id: id.into() }, precondition }
}

/// A batch of these changes.
pub(crate) fn batch(changes: impl IntoIterator<Item = Write>) -> Batch {
    Batch {
        actor: "test".into(),
        at: 1_700_000_000_000,
        dry_run: false,
        changes: changes.into_iter().collect(),
    }
}

/// The same, as a dry run.
pub(crate) fn dry(changes: impl IntoIterator<Item = Write>) -> Batch {
    Batch { dry_run: true, ..batch(changes) }
}

pub(crate) fn ids(found: &[Stored]) -> Vec<&str> {
    found.iter().map(|stored| stored.rule.id.as_str()).collect()
}

/// Rules that can all be read.
pub(crate) fn readable(read: Vec<Result<Stored, ReadError>>) -> Vec<Stored> {
    read.into_iter().collect::<Result<_, _>>().unwrap()
}

/// Does something that must end before the deadline.
pub(crate) fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || done.send(what()));
    match result.recv_timeout(DEADLINE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done in {DEADLINE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it has panicked"))
        }
    }
}

/// Prefixed to the arguments of another run of this program, which then does only the test `name`.
pub(crate) fn again(name: &str, mut command: Command) -> Command {
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// A child that does not outlive its test.
pub(crate) struct Reaped(pub(crate) Child);

impl Reaped {
    /// Waits for its end until the deadline.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "the child does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
