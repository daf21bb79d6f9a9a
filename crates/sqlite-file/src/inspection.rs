//! Which files are accepted. Nothing is written here, neither to the file nor beside it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use crate::connection::{beside, reading, untouched};
use crate::error::{OpenError, is_damage};
use crate::kind::Kind;
use crate::meta::meta_number;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or an empty file.
    Nothing,
    /// A file of the kind, going by its header.
    Known,
}

/// Looks at the header of a file that another process may be using.
pub(crate) fn identify(path: &Path, kind: &'static Kind) -> Result<Found, OpenError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return nothing(path),
        Err(source) => return Err(OpenError::Io { path: path.to_owned(), source }),
    };
    if let Some(what) = unwanted(&metadata) {
        return Err(OpenError::NotRegular { path: path.to_owned(), what, kind });
    }
    if metadata.len() == 0 {
        return nothing(path);
    }
    let foreign = |detail: String| OpenError::Foreign { path: path.to_owned(), detail, kind };
    let (application, form) = header(path).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => foreign(error.to_string()),
        _ => failed(path, kind, error),
    })?;
    let known = kind.form;
    match form {
        _ if application != kind.application_id => {
            Err(foreign(format!("a database of another program, application_id {application}")))
        }
        found if found > known => Err(OpenError::Newer { path: path.to_owned(), found, known }),
        1.. => Ok(Found::Known),
        _ => Err(foreign(format!("a database of another program, application_id {application}"))),
    }
}

/// Reads the file before anything is written to it: its tables, and everything if it was not closed in order.
pub(crate) fn check(path: &Path, kind: &'static Kind) -> Result<(), OpenError> {
    let examined = if has_log(path) { reading(path) } else { untouched(path) }
        .and_then(|connection| examine(&connection, kind));
    match examined.map_err(|error| failed(path, kind, error))? {
        None => Ok(()),
        Some(detail) => Err(OpenError::Corrupt { path: path.to_owned(), detail, kind }),
    }
}

fn failed(path: &Path, kind: &'static Kind, error: rusqlite::Error) -> OpenError {
    let (path, detail) = (path.to_owned(), error.to_string());
    // A table, a column or a value that should be there is not.
    let is_lacking =
        matches!(error, rusqlite::Error::SqlInputError { .. } | rusqlite::Error::QueryReturnedNoRows)
            || error.sqlite_error_code() == Some(ErrorCode::Unknown);
    if is_lacking || is_damage(&error) {
        OpenError::Corrupt { path, detail, kind }
    } else {
        OpenError::Sqlite { path, detail }
    }
}

/// What is wrong with the content, if something is.
fn examine(connection: &Connection, kind: &Kind) -> rusqlite::Result<Option<String>> {
    for probe in kind.probes {
        connection.prepare(probe)?.query(())?.next()?;
    }
    for name in kind.numbers {
        meta_number(connection, name)?;
    }
    if meta_number(connection, "clean")? == 1 || !kind.is_read_after_crash {
        return Ok(None);
    }
    let found: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}

/// The application and the form of a database.
fn header(path: &Path) -> rusqlite::Result<(i64, i64)> {
    let read = |connection: Connection| {
        let number = |pragma: &str| connection.query_row(pragma, (), |row| row.get(0));
        Ok((number("PRAGMA application_id")?, number("PRAGMA user_version")?))
    };
    match untouched(path).and_then(read) {
        // A process that ends while it moves the log into the file leaves a first page that tells of pages which are in the
        // log only: with the log the file is whole.
        Err(error) if is_damage(&error) && has_log(path) => reading(path).and_then(read),
        result => result,
    }
}

fn nothing(path: &Path) -> Result<Found, OpenError> {
    match has_log(path) {
        // SQLite would take it for the log of the new file.
        true => Err(OpenError::StrayLog { path: path.to_owned(), wal: beside(path, "-wal") }),
        false => Ok(Found::Nothing),
    }
}

fn has_log(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).is_ok_and(|metadata| metadata.len() > 0)
}

/// What a file is, if it is no regular file with one name. The lock and the log have the name of the file: two gateways that reach it
/// by two names would have two locks.
fn unwanted(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        Some("a symbolic link")
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else if !kind.is_file() {
        Some("a device")
    } else if metadata.nlink() > 1 {
        Some("a file with several names (hard links)")
    } else {
        None
    }
}
