//! A new file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::connection::{beside, writing};
use crate::error::OpenError;
use crate::kind::{Kind, META};

/// Creates the file, readable by its owner only, in place of nothing or of an empty file.
///
/// It is made under another name: a process that dies meanwhile leaves no half of a database.
pub(crate) fn create(path: &Path, kind: &Kind) -> Result<(), OpenError> {
    let new = beside(path, ".new");
    let failed = |source: io::Error| OpenError::Io { path: new.clone(), source };
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(failed)?;
    fill(&new, kind).map_err(|error| OpenError::Sqlite { path: new.clone(), detail: error.to_string() })?;
    fs::rename(&new, path).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let kept = File::open(folder).and_then(|folder| folder.sync_all());
    kept.map_err(|source| OpenError::Io { path: folder.to_owned(), source })
}

fn fill(path: &Path, kind: &Kind) -> rusqlite::Result<()> {
    let connection = writing(path)?;
    let Kind { application_id, form, tables, .. } = kind;
    connection.execute_batch(&format!(
        "BEGIN; PRAGMA application_id = {application_id}; PRAGMA user_version = {form}; {META} {tables} COMMIT;"
    ))?;
    // The last connection to close moves everything from the log to the file.
    connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}
