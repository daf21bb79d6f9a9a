//! File descriptors: how many connections of clients the process can have, and what happens when they are used up.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use sluicegate_downstream::CountGuard;

/// File descriptors reserved for logs, watched files, the store and the runtime.
const RESERVED: u64 = 32;
/// File descriptors reserved for each worker.
const RESERVED_PER_WORKER: u64 = 8;

/// The largest number of connections to the admin API under a limit of file descriptors, which are reserved for them.
fn admin_connections(limit: u64) -> u64 {
    (limit / 16).clamp(32, 1_024)
}

/// Limits the concurrent connections of clients in the whole process.
#[derive(Debug)]
pub struct ConnectionBudget {
    open: Arc<AtomicI64>,
    max: i64,
}

impl ConnectionBudget {
    /// The limit that follows from the limit of file descriptors: each client connection may need an upstream connection, and
    /// some descriptors are reserved. Raises the soft limit to the hard limit first.
    pub fn of_process(workers: usize, listeners: usize) -> Self {
        let limit = raise();
        let own =
            RESERVED + admin_connections(limit) + workers as u64 * (RESERVED_PER_WORKER + listeners as u64);
        // If the limit is very low, half of it is for clients.
        let clients = limit.saturating_sub(own).max(limit / 2) / 2;
        tracing::debug!("{limit} file descriptors, {clients} connections of clients");
        Self { open: Arc::default(), max: i64::try_from(clients.max(1)).unwrap_or(i64::MAX) }
    }

    /// The largest number of connections to the admin API.
    pub fn of_admin() -> usize {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(admin_connections(limit)).unwrap_or(usize::MAX)
    }

    /// The part of the connections that are open.
    pub fn used(&self) -> f64 {
        self.open.load(Ordering::Relaxed) as f64 / self.max as f64
    }

    /// Counts one more connection; `None` if the limit is reached.
    pub fn acquire(&self) -> Option<CountGuard> {
        CountGuard::one(&self.open, self.max)
    }
}

/// Raises the soft limit of file descriptors to the hard limit. Returns the resulting limit.
fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        return maximum.unwrap_or(u64::MAX);
    }
    current.unwrap_or(u64::MAX)
}

/// Whether an error means that no file descriptors are left in the process or in the system.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// Whether an error of accept concerns only the connection that was to be accepted, and not the listening socket.
pub(super) fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// A reserved file descriptor. When there are no others, it is closed to accept a connection and close it: the client is
/// rejected at once and does not wait in the queue of the kernel.
#[derive(Debug)]
pub(super) struct SpareFile(Option<File>);

impl SpareFile {
    /// Opens the file descriptor, if possible.
    pub(super) fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Closes the file descriptor. Returns false if there was none.
    pub(super) fn close(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Opens the file descriptor again, if it is closed.
    pub(super) fn reopen(&mut self) {
        if self.0.is_none() {
            *self = Self::new();
        }
    }
}
