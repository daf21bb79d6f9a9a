//! The tables, and a new file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::Connection;

use crate::connection::{beside, writing};
use crate::error::OpenError;

/// "SLCG" in the header of the file tells it from databases of other programs.
pub(crate) const APPLICATION_ID: i64 = 0x534c_4347;

/// The form of the tables and of the rules in them. A new field of `Rule` is a new form: releases before it could not read
/// the rules that have it.
pub(crate) const FORM: i64 = 1;

/// Keys come before limits in `rules_by_key`, so that it also serves who asks for a key in all limits.
const TABLES: &str = "
    CREATE TABLE rules (
        id TEXT NOT NULL PRIMARY KEY,
        lim TEXT NOT NULL,
        key TEXT NOT NULL,
        pattern INTEGER NOT NULL,   -- 1: the key is a pattern
        body TEXT NOT NULL,         -- the whole rule, in JSON
        version INTEGER NOT NULL    -- of the batch that last changed it
    );
    CREATE INDEX rules_by_key ON rules (key, lim);
    CREATE INDEX rules_by_limit ON rules (lim, id);
    CREATE INDEX rules_patterns ON rules (lim) WHERE pattern = 1;
    CREATE TABLE changes (
        n INTEGER PRIMARY KEY,      -- grows by one with each change
        version INTEGER NOT NULL,
        seq INTEGER NOT NULL,       -- the place among the changes of the version
        id TEXT NOT NULL,
        lim TEXT NOT NULL,
        key TEXT NOT NULL,
        pattern INTEGER NOT NULL,   -- 1: the rule before or the rule after is a pattern
        before TEXT,                -- the rule before, in JSON; null if it was created
        after TEXT,                 -- the rule after; null if it was deleted
        at INTEGER NOT NULL,        -- milliseconds since 1970
        actor TEXT NOT NULL
    );
    CREATE INDEX changes_by_version ON changes (version);
    CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO meta (name, value) VALUES
        ('epoch', lower(hex(randomblob(8)))),   -- of this file
        ('version', '0'),                       -- the number of batches that changed something
        ('trimmed', '0'),                       -- the last version of which changes are not kept any more
        ('clean', '1');                         -- 0 while a gateway may write
";

/// What a file of rules must answer; read here so that a table that is missing is found when the file is opened.
const PROBES: [&str; 3] = [
    "SELECT id, lim, key, pattern, body, version FROM rules LIMIT 1",
    "SELECT n, version, seq, id, lim, key, pattern, before, after, at, actor FROM changes LIMIT 1",
    "SELECT CAST(value AS INTEGER) FROM meta WHERE name IN ('epoch', 'version', 'trimmed', 'clean') LIMIT 1",
];

/// Reads a little of every table.
pub(crate) fn probe(connection: &Connection) -> rusqlite::Result<()> {
    for probe in PROBES {
        connection.prepare(probe)?.query(())?.next()?;
    }
    Ok(())
}

/// A value of the table `meta`. A missing or foreign value is an error.
pub(crate) fn meta_number(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let number =
        connection.query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE name = ?1", [name], |row| {
            row.get::<_, i64>(0)
        })?;
    Ok(number.cast_unsigned())
}

/// Sets a value of the table `meta`.
pub(crate) fn set_meta(connection: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    connection.execute("UPDATE meta SET value = ?2 WHERE name = ?1", (name, value.to_string()))?;
    Ok(())
}

/// Creates the file, readable by its owner only, in place of nothing or of an empty file.
///
/// It is made under another name: a process that dies meanwhile leaves no half of a database.
pub(crate) fn create(path: &Path) -> Result<(), OpenError> {
    let new = beside(path, ".new");
    let failed = |source: io::Error| OpenError::Io { path: new.clone(), source };
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(failed)?;
    fill(&new).map_err(|error| OpenError::Sqlite { path: new.clone(), detail: error.to_string() })?;
    fs::rename(&new, path).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let kept = File::open(folder).and_then(|folder| folder.sync_all());
    kept.map_err(|source| OpenError::Io { path: folder.to_owned(), source })
}

fn fill(path: &Path) -> rusqlite::Result<()> {
    let connection = writing(path)?;
    connection.execute_batch(&format!(
        "BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORM}; {TABLES} COMMIT;"
    ))?;
    // The last connection to close moves everything from the log to the file.
    connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}
