//! Two connections that only read. They see every commit that was made before they are asked, and wait for no writer.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use rusqlite::Connection;

use crate::connection;

/// So many threads read at the same time; others wait for them.
const CONNECTIONS: usize = 2;

/// The connections.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    /// Places that nobody uses; a place without a connection gets one when it is used.
    idle: Mutex<Vec<Option<Connection>>>,
    returned: Condvar,
}

/// A place that is given back when this is dropped, on every way out.
struct Place<'r> {
    readers: &'r Readers,
    connection: Option<Connection>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.readers.returned.notify_one();
    }
}

impl Readers {
    /// Opens nothing yet.
    pub(crate) fn new(path: &Path) -> Readers {
        let idle = (0..CONNECTIONS).map(|_| None).collect();
        Readers { path: path.to_owned(), idle: Mutex::new(idle), returned: Condvar::new() }
    }

    /// Reads with a connection that nobody else uses meanwhile. After an error it is not used again.
    pub(crate) fn read<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut idle =
            self.returned.wait_while(idle, |idle| idle.is_empty()).unwrap_or_else(PoisonError::into_inner);
        let connection = idle.pop().flatten();
        drop(idle);
        let mut place = Place { readers: self, connection: None };
        let connection = match connection {
            Some(connection) => connection,
            None => connection::reading(&self.path)?,
        };
        let found = read(&connection)?;
        place.connection = Some(connection);
        Ok(found)
    }

    /// Closes all connections that nobody uses.
    pub(crate) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).fill_with(|| None);
    }
}
