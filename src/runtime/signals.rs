//! What operators tell the process.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: open log files anew, because they were renamed.
    Reopen,
    /// SIGTERM or SIGINT: drain and end; the second time, end.
    End,
}

/// The signals of the process, from the moment at which this is made.
pub(super) struct Signals {
    hangup: unix::Signal,
    user: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    /// Call it inside a runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// What `work` comes to; `None` if the process is told to end before. Other signals wait for `next`.
    pub(super) async fn unless_end<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            _ = self.terminate.recv() => None,
            _ = self.interrupt.recv() => None,
            done = work => Some(done),
        }
    }

    /// Waits for the next one. Nothing is lost if it is not waited for to the end.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.user.recv() => Signal::Reopen,
        }
    }
}
