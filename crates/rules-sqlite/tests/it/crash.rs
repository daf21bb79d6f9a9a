//! A process that is killed while it writes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use sluicegate_rules_sqlite::{Changes, OpenError, RuleFile};

use crate::common::{Reaped, again, batch, in_time, place, put, rule};

/// The path of the file, for the child.
const FILE: &str = "RULES_SQLITE_TEST_KILLED";

const RULES: usize = 1_000;

/// The child: replaces a thousand rules by others, again and again, and says so each time.
#[test]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let file = RuleFile::open(Path::new(&path)).unwrap();
    // Should its parent be gone, it ends too.
    for round in 0..2_000 {
        let note = round.to_string();
        let written =
            file.write(batch((0..RULES).map(|n| put(rule(&format!("r{n}"), &format!("k{n}"), &note)))));
        println!("\nwritten {} {note}", written.unwrap().version);
    }
}

/// Kills a child after it has said `batches` times that it has written, at some moment of the next batch. Returns the last
/// version and note that it told of.
fn kill_after(path: &Path, batches: usize) -> (u64, u64) {
    let mut command = again("crash::child", Command::new(env::current_exe().unwrap()));
    let mut child = Reaped(command.env(FILE, path).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut reply = lines.filter_map(|line| {
        let mut words = line.strip_prefix("written ")?.split(' ').map(|word| word.parse().unwrap());
        Some((words.next()?, words.next()?))
    });
    in_time(move || {
        let first = reply.by_ref().take(batches).last().expect("it writes");
        // A little of the next batch.
        std::thread::sleep(std::time::Duration::from_millis(3 * batches as u64));
        child.0.kill().unwrap();
        child.end();
        reply.last().unwrap_or(first)
    })
}

/// Whether the file says that it was closed in order.
fn clean(path: &Path) -> String {
    let shell = rusqlite::Connection::open(path).unwrap();
    shell.query_row("SELECT value FROM meta WHERE name = 'clean'", (), |row| row.get(0)).unwrap()
}

#[test]
fn every_batch_is_there_entirely_or_not_at_all() {
    let (_folder, path) = place();
    for batches in 1..=8 {
        let (version, note) = kill_after(&path, batches);
        assert_eq!(clean(&path), "0", "the next one to open it reads all of it");
        let file = RuleFile::open(&path).unwrap();
        let head = file.version().unwrap();
        assert!(head.version >= version, "{version} was told, {} is there", head.version);
        let rules = file.list(None, None, None, 2 * RULES).unwrap();
        assert_eq!(rules.len(), RULES);
        assert!(rules.iter().all(|stored| stored.rule.note == rules[0].rule.note));
        assert!(rules.iter().all(|stored| stored.version == head.version));
        let found: u64 = rules[0].rule.note.parse().unwrap();
        assert_eq!(found - note, head.version - version);
        let Changes::List(last) = file.changes(head.version - 1, 10 * RULES).unwrap() else {
            panic!("trimmed")
        };
        assert_eq!(last.len(), RULES);
        drop(file);
        assert_eq!(clean(&path), "1");
    }
}

#[test]
fn a_damaged_file_with_a_log_stays_as_it_is() {
    let (_folder, path) = place();
    let log = path.with_file_name("rules.db-wal");
    drop(RuleFile::open(&path).unwrap());
    // The pages of the tables are in the log, changed by a program that did not mean to.
    let shell = rusqlite::Connection::open(&path).unwrap();
    let harm = "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1000 WHERE name = 'changes'";
    shell.execute_batch(harm).unwrap();
    let copies = [&path, &log].map(|file| fs::read(file).unwrap());
    drop(shell);
    // As if it had been killed: its last act is undone.
    fs::write(&path, &copies[0]).unwrap();
    fs::write(&log, &copies[1]).unwrap();
    let error = RuleFile::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    assert!([&path, &log].map(|file| fs::read(file).unwrap()) == copies, "the file or its log has changed");
}

/// A kill in the middle of moving the log into the file: the first page already tells of pages that are in the log only.
#[test]
fn a_file_whose_log_is_half_moved_into_it_is_whole() {
    let (_folder, path) = place();
    let log = path.with_file_name("rules.db-wal");
    let file = RuleFile::open(&path).unwrap();
    file.write(batch((0..RULES).map(|n| put(rule(&format!("r{n}"), &format!("k{n}"), "before"))))).unwrap();
    let shell = rusqlite::Connection::open(&path).unwrap();
    shell.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    // Few enough that nothing moves by itself.
    let more = (0..RULES / 2).map(|n| put(rule(&format!("s{n}"), &format!("s{n}"), "after")));
    file.write(batch(more)).unwrap();
    let killed = [&path, &log].map(|file| fs::read(file).unwrap());
    shell.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let moved = fs::read(&path).unwrap();
    drop((shell, file));
    assert!(moved.len() > killed[0].len(), "the file has grown");
    fs::write(&path, [&moved[..4_096], &killed[0][4_096..]].concat()).unwrap();
    fs::write(&log, &killed[1]).unwrap();
    let file = RuleFile::open(&path).unwrap();
    assert_eq!(file.count().unwrap(), RULES as u64 * 3 / 2);
}
