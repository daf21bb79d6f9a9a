//! What callers are answered: each job is on disk, or its error says why it is not.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Barrier;
use std::thread;

use rusqlite::{Connection, Statement};
use sluicegate_sqlite_file::{Job, Kind, OpenError, Outcome, SqliteFile, Unwritten};

const NUMBERS_FORM: Kind = Kind {
    content: "numbers",
    sharing: "keep them in your head",
    thread: "numbers-writer",
    application_id: 0x4e55_4d42,
    form: 1,
    tables: "CREATE TABLE numbers (n INTEGER PRIMARY KEY);",
    probes: &["SELECT n FROM numbers LIMIT 1"],
    numbers: &[],
    is_read_after_crash: true,
};

static NUMBERS: Kind = NUMBERS_FORM;

/// Adds a number. Zero makes the writer panic.
#[derive(Debug)]
struct Add(i64);

impl Job for Add {
    type Answer = usize;
    type Error = Unwritten;
    type Statements<'c> = Statement<'c>;

    fn prepare(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
        connection.prepare("INSERT INTO numbers VALUES (?1)")
    }

    /// Answers how many jobs were made together.
    fn make(insert: &mut Statement<'_>, jobs: &[&Self]) -> rusqlite::Result<(Vec<Outcome<Self>>, bool)> {
        for Add(number) in jobs {
            assert!(*number != 0, "a test asked for this panic");
            insert.execute([number])?;
        }
        Ok((jobs.iter().map(|_| Ok(jobs.len())).collect(), true))
    }
}

fn count(file: &SqliteFile<Add>) -> i64 {
    file.read(|connection| connection.query_row("SELECT count(*) FROM numbers", (), |row| row.get(0)))
        .unwrap_or_else(|error: rusqlite::Error| panic!("{error}"))
}

#[test]
fn a_panic_answers_the_caller_and_the_next_job_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteFile::open(&folder.path().join("numbers.db"), &NUMBERS).unwrap();
    assert!(matches!(file.write(Add(0)), Err(Unwritten::Storage(_))));
    assert_eq!(file.write(Add(1)), Ok(1));
    file.release_lock();
    assert_eq!(file.write(Add(2)), Err(Unwritten::Released));
    assert_eq!(count(&file), 1);
}

/// What is written into a file without a name, or beside the one that has the name, would be gone with the process.
#[test]
fn nothing_is_written_into_a_file_that_was_removed_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("numbers.db"), folder.path().join("away.db"));
    let file = SqliteFile::open(&path, &NUMBERS).unwrap();
    assert!(file.write(Add(1)).is_ok());
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(file.write(Add(2)), Err(Unwritten::Replaced(path.clone())));
    std::fs::copy(&away, &path).unwrap();
    assert_eq!(file.write(Add(2)), Err(Unwritten::Replaced(path.clone())));
    std::fs::rename(&away, &path).unwrap();
    assert!(file.write(Add(2)).is_ok());
}

/// A job that SQLite refuses takes those of its transaction with it, and no later one.
#[test]
fn an_error_of_sqlite_is_answered_and_the_file_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteFile::open(&folder.path().join("numbers.db"), &NUMBERS).unwrap();
    assert!(file.write(Add(1)).is_ok());
    assert!(matches!(file.write(Add(1)), Err(Unwritten::Storage(_))));
    assert!(file.write(Add(2)).is_ok());
    assert_eq!(count(&file), 2);
}

#[test]
fn those_who_wait_share_a_commit() {
    const CALLERS: i64 = 16;
    const EACH: i64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteFile::open(&folder.path().join("numbers.db"), &NUMBERS).unwrap();
    let start = Barrier::new(CALLERS as usize);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (file, start) = (&file, &start);
            scope.spawn(move || {
                start.wait();
                for number in 1..=EACH {
                    file.write(Add(caller * EACH + number)).unwrap();
                }
            });
        }
    });
    assert_eq!(count(&file), CALLERS * EACH);
    assert!(file.commits() < (CALLERS * EACH) as u64 / 2, "{} commits", file.commits());
}

#[test]
fn files_of_another_kind_are_refused_in_the_words_of_this_one() {
    static LETTERS: Kind = Kind { application_id: 1, content: "letters", ..NUMBERS_FORM };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.db");
    drop(SqliteFile::<Add>::open(&path, &NUMBERS).unwrap());
    let error = SqliteFile::<Add>::open(&path, &LETTERS).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }));
    assert!(error.to_string().contains("is not a file of letters (a database of another program"), "{error}");
}
