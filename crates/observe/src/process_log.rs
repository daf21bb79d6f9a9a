//! The process log, on standard error. If its reader is slow or ends, lines are dropped and counted; a thread that logs
//! never waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::access_log::LogWriter;

/// The maximum of queued bytes: about ten thousand lines.
const CAPACITY: usize = 1 << 20;
/// How long the process waits at its end for the lines to be written.
const FINISH: Duration = Duration::from_secs(1);

/// A bounded queue of lines, and the thread that writes them to standard error.
pub struct ProcessLog {
    writer: LogWriter,
    dropped: Arc<AtomicU64>,
}

impl ProcessLog {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the thread cannot be started or the descriptor cannot be duplicated.
    pub fn open() -> io::Result<Self> {
        let dropped = Arc::default();
        Ok(Self { writer: LogWriter::to_stderr(CAPACITY, Arc::clone(&dropped))?, dropped })
    }

    /// The counter of dropped lines.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Writes a text unchanged.
    pub fn say(&self, text: &str) {
        self.push(text.as_bytes());
    }

    fn push(&self, text: &[u8]) {
        let lines = text.iter().filter(|byte| **byte == b'\n').count();
        self.writer.push(text, lines as u64);
    }

    /// Waits until all lines are written, for a bounded time.
    pub fn finish(&self) {
        let _ = self.writer.finish(FINISH); // lost lines cannot be reported any more
    }
}

/// `tracing` writes each event with one call.
impl io::Write for &ProcessLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.push(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
