//! File descriptors: how many connections of clients the process can have, and what is done when it has no more.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client_connection::CountGuard;

/// Kept for logs, watched files, the store and what the runtime needs for itself.
const OWN: u64 = 32;
/// Connections to the admin API at once, for which descriptors are kept too.
pub const ADMIN_CONNECTIONS: usize = 32;
/// What a worker needs for itself.
const PER_WORKER: u64 = 8;

/// Connections of clients at once, of the whole process.
#[derive(Debug)]
pub struct ConnectionBudget {
    open: Arc<AtomicI64>,
    most: i64,
}

impl ConnectionBudget {
    /// As many as the system allows: each connection of a client may need one to an upstream, and some descriptors are
    /// kept for the gateway itself. The soft limit is raised to the hard one before.
    pub fn of_process(workers: usize, listeners: usize) -> Self {
        let limit = raise();
        let own = OWN + ADMIN_CONNECTIONS as u64 + workers as u64 * (PER_WORKER + listeners as u64);
        // Where little is allowed, half of it is for clients rather than nothing.
        let clients = limit.saturating_sub(own).max(limit / 2) / 2;
        tracing::debug!("{limit} file descriptors, {clients} connections of clients");
        Self { open: Arc::default(), most: i64::try_from(clients.max(1)).unwrap_or(i64::MAX) }
    }

    /// A place for one more; `None` if there is none.
    pub fn place(&self) -> Option<CountGuard> {
        CountGuard::one(&self.open, self.most)
    }
}

/// Raises the soft limit of file descriptors to the hard one. The limit that is then in force.
fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        return maximum.unwrap_or(u64::MAX);
    }
    current.unwrap_or(u64::MAX)
}

/// Whether an error says that there are no file descriptors left, in the process or in the system.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    let told = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| told == Some(errno.raw_os_error()))
}

/// Whether an error is of the connection that was to be accepted and not of the socket: the next may be well.
pub(super) fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// A file descriptor to give up when there are no others: with it a connection can be taken and closed, so that its
/// client learns at once that there is no place, and does not wait in the kernel's queue.
#[derive(Debug)]
pub(super) struct Spare(Option<File>);

impl Spare {
    /// One to give up.
    pub(super) fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Gives it up; whether there was one.
    pub(super) fn give_up(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Has one again, if there is one to have.
    pub(super) fn take_back(&mut self) {
        if self.0.is_none() {
            *self = Self::new();
        }
    }
}
