//! One gateway at a time.

use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use sluicegate_rules_sqlite::{OpenError, RuleFile, WriteError};

use crate::common::{Reaped, again, batch, in_time, place, put, rule};

#[test]
fn a_second_gateway_is_refused() {
    let (_folder, path) = place();
    let first = RuleFile::open(&path).unwrap();
    let error = RuleFile::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains("redis: true"), "{error}");
    let waited = RuleFile::open_waiting(&path, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(waited, OpenError::InUse { .. }));
    first.write(batch([put(rule("a", "k1", ""))])).unwrap();
    drop(first);
    assert_eq!(RuleFile::open(&path).unwrap().count().unwrap(), 1);
}

#[test]
fn the_old_process_reads_what_the_new_one_writes() {
    let (_folder, path) = place();
    let old = RuleFile::open(&path).unwrap();
    old.write(batch([put(rule("a", "k1", ""))])).unwrap();
    assert_eq!(old.count().unwrap(), 1);
    let waiting = thread::spawn({
        let path = path.clone();
        move || RuleFile::open_waiting(&path, Duration::from_secs(60))
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    old.release_lock();
    old.release_lock();
    let new = in_time(move || waiting.join().unwrap().unwrap());
    assert_eq!(old.write(batch([put(rule("b", "k1", ""))])), Err(WriteError::Released));
    new.write(batch([put(rule("c", "k1", ""))])).unwrap();
    assert_eq!((old.count().unwrap(), old.version().unwrap()), (2, new.version().unwrap()));
    drop(old);
    new.write(batch([put(rule("d", "k1", ""))])).unwrap();
    drop(new);
    assert_eq!(RuleFile::open(&path).unwrap().count().unwrap(), 3);
}

/// The path of the file, for the child.
const FILE: &str = "RULES_SQLITE_TEST_READ";

/// The child: another program that opens the file, reads it and closes it.
#[test]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let shell = rusqlite::Connection::open(path).unwrap();
    let count: i64 = shell.query_row("SELECT count(*) FROM rules", (), |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[test]
fn to_open_it_again_in_the_same_process_takes_no_lock_away() {
    let (_folder, path) = place();
    let old = RuleFile::open(&path).unwrap();
    old.write(batch([put(rule("a", "k1", ""))])).unwrap();
    assert_eq!(old.count().unwrap(), 1);
    old.release_lock();
    let new = RuleFile::open(&path).unwrap();
    new.write(batch([put(rule("a", "k2", ""))])).unwrap();
    // Whoever believes to be alone removes the log when it closes the file.
    let mut command = again("handover::child", Command::new(env::current_exe().unwrap()));
    assert!(Reaped(command.env(FILE, &path).spawn().unwrap()).end().success());
    assert!(
        path.with_file_name("rules.db-wal").exists(),
        "another program did not notice that the file is in use"
    );
    new.write(batch([put(rule("b", "k1", ""))])).unwrap();
    assert_eq!((old.count().unwrap(), new.count().unwrap()), (2, 2));
}

#[test]
fn another_program_that_holds_the_file_delays_writes_only() {
    let (_folder, path) = place();
    let file = RuleFile::open(&path).unwrap();
    file.write(batch([put(rule("a", "k1", ""))])).unwrap();
    let shell = rusqlite::Connection::open(&path).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(file.count().unwrap(), 1);
    assert_eq!(file.write(batch([put(rule("b", "k1", ""))])), Err(WriteError::Locked));
    shell.execute_batch("ROLLBACK").unwrap();
    file.write(batch([put(rule("b", "k1", ""))])).unwrap();
}
