//! The gateway's own log, on standard error. Whoever reads it may stop reading, or die: that costs lines, which are
//! counted, and never stops a thread that logs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::access_log::Sink;

/// Bytes that may wait to be written: about ten thousand lines.
const MOST: usize = 1 << 20;
/// How long the end of the process waits for whoever reads the log.
const FINISH: Duration = Duration::from_secs(1);

/// A bounded queue before standard error, and the thread that writes it.
pub struct ProcessLog {
    sink: Sink,
    dropped: Arc<AtomicU64>,
}

impl ProcessLog {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread or file descriptor can be had.
    pub fn open() -> io::Result<Self> {
        let dropped = Arc::default();
        Ok(Self { sink: Sink::to_stderr(MOST, Arc::clone(&dropped))?, dropped })
    }

    /// The number of lines that were lost, as it grows.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Has a text written as it is.
    pub fn say(&self, text: &str) {
        self.take(text.as_bytes());
    }

    fn take(&self, text: &[u8]) {
        let lines = text.iter().filter(|byte| **byte == b'\n').count();
        self.sink.take(text, lines as u64);
    }

    /// Waits until all is written, but not for ever.
    pub fn finish(&self) {
        let _ = self.sink.finish(FINISH); // there is nobody to tell that nobody listens
    }
}

/// What `tracing` writes events to, each with one call.
impl io::Write for &ProcessLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.take(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
