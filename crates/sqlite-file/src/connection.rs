//! Connections to the file, with the settings that all of them have.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// How long a statement waits for other programs, such as a shell or a backup.
const PATIENCE: Duration = Duration::from_secs(5);

/// To this size, in bytes, the log is cut after a large batch.
const LOG_SIZE: u64 = 16 << 20;

/// The file of this name with something added.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens an existing database for writing; a commit is on disk when it returns.
pub(crate) fn writing(path: &Path) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF; PRAGMA journal_size_limit = {LOG_SIZE};"
    ))?;
    Ok(connection)
}

/// Opens an existing database for reading, while others may write it. Even as the last one to close the file it leaves the
/// file and its log as they are.
pub(crate) fn reading(path: &Path) -> rusqlite::Result<Connection> {
    open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Opens an existing file for reading, without locks and without any file beside it. What is in its log is not seen.
///
/// The file is read by SQLite even to find out whether it is a database: to close a file that was opened in any other way
/// would take the locks from the connections that this process has to it.
pub(crate) fn untouched(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    open(Path::new(&format!("{}?immutable=1", uri(path))), flags)
}

fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(PATIENCE)?;
    // Without this, statements for partial indices are planned anew for each value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    Ok(connection)
}

/// The URI of an absolute path.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte))
            }
            // Writing to a string does not fail.
            _ => _ = write!(uri, "%{byte:02x}"),
        }
    }
    uri
}
