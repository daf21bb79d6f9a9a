//! Signals.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: reopen log files, because they were renamed.
    Reopen,
    /// SIGTERM or SIGINT: drain and end; the second time, end.
    End,
}

/// The signals that the process receives after this was created.
pub(super) struct Signals {
    hangup: unix::Signal,
    user: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
    /// SIGXFSZ would end the process when a log or the file of rules is as large as it may be (`ulimit -f`). With a handler the
    /// write fails instead.
    _file_size: unix::Signal,
}

impl Signals {
    /// Registers the handlers. It must be called inside a Tokio runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The output of `work`; `None` if a signal to end comes first. Other signals are kept for [`next`](Self::next).
    pub(super) async fn unless_end<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            _ = self.terminate.recv() => None,
            _ = self.interrupt.recv() => None,
            done = work => Some(done),
        }
    }

    /// Waits for the next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.user.recv() => Signal::Reopen,
        }
    }
}
