//! A thread that writes a log, and its bounded queue. The access log and the process log use it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};

use sluicegate_config::LogTarget;

/// The permissions of a new log file.
const MODE: u32 = 0o640;
/// The memory that the thread keeps for its next batch.
const MAX_IDLE_BATCH: usize = 256 << 10;

/// Queues lines for the thread that writes them. When it is dropped, the thread writes what is queued and ends.
pub struct LogWriter(Arc<Queue>);

struct Queue {
    /// `None` is standard error, the process log, which cannot report its own errors.
    target: Option<LogTarget>,
    state: Mutex<State>,
    /// Signalled when there is something to do.
    work: Condvar,
    /// Signalled when the thread has ended.
    over: Condvar,
    /// The number of lines that were dropped.
    dropped: Arc<AtomicU64>,
}

struct State {
    bytes: Vec<u8>,
    /// The maximum of queued bytes.
    capacity: usize,
    reopen: bool,
    closing: bool,
    ended: bool,
}

/// The open log.
struct Output {
    file: File,
    /// Whether the last line was written in part.
    torn: bool,
    /// Whether the last write failed, which is logged once.
    failing: bool,
}

impl LogWriter {
    /// Opens the log and starts the thread that writes it. At most `capacity` bytes are queued; `dropped` counts lines that
    /// are lost.
    ///
    /// # Errors
    /// If the file cannot be opened or the thread cannot be started.
    pub fn open(target: &LogTarget, capacity: usize, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let file = match target {
            // Without the buffer of the standard library, which would keep bytes that could not be written.
            LogTarget::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            LogTarget::File(path) => open(path)?,
        };
        Self::start(file, Some(target.clone()), capacity, dropped)
    }

    /// Starts a thread that writes standard error.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated or the thread cannot be started.
    pub fn to_stderr(capacity: usize, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Self::start(file, None, capacity, dropped)
    }

    fn start(
        file: File,
        target: Option<LogTarget>,
        capacity: usize,
        dropped: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let name = if target.is_some() { "access-log" } else { "log" };
        let state = State { bytes: Vec::new(), capacity, reopen: false, closing: false, ended: false };
        let queue = Arc::new(Queue {
            target,
            state: Mutex::new(state),
            work: Condvar::new(),
            over: Condvar::new(),
            dropped,
        });
        let own = Arc::clone(&queue);
        let output = Output { file, torn: false, failing: false };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || own.write(output))?;
        Ok(Self(queue))
    }

    /// Whether it writes to this target.
    pub fn is_for(&self, target: &LogTarget) -> bool {
        self.0.target.as_ref() == Some(target)
    }

    /// Sets the maximum of queued bytes.
    pub fn set_capacity(&self, capacity: usize) {
        self.0.lock().capacity = capacity;
    }

    /// Queues `count` complete lines, or drops them if the queue is full. It never waits for the disk.
    pub fn push(&self, lines: &[u8], count: u64) {
        let mut state = self.0.lock();
        if state.bytes.len() + lines.len() > state.capacity {
            drop(state);
            self.0.dropped.fetch_add(count, Ordering::Relaxed);
            return;
        }
        state.bytes.extend_from_slice(lines);
        drop(state);
        self.0.work.notify_one();
    }

    /// Reopens the file after the queued lines are written, because it was renamed.
    pub fn reopen(&self) {
        self.0.lock().reopen = true;
        self.0.work.notify_one();
    }

    /// Ends the thread when all queued lines are written. Returns whether that was within the given time.
    pub fn finish(&self, within: Duration) -> bool {
        self.0.close();
        let state = self.0.lock();
        let waited = self.0.over.wait_timeout_while(state, within, |state| !state.ended);
        waited.is_ok_and(|(state, _)| state.ended)
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Writes queued lines until the queue is closed.
    fn write(&self, mut output: Output) {
        let mut batch = Vec::new();
        loop {
            let reopen = {
                let is_idle = |state: &mut State| state.bytes.is_empty() && !state.reopen && !state.closing;
                let state = self.work.wait_while(self.lock(), is_idle);
                let mut state = state.unwrap_or_else(PoisonError::into_inner);
                if state.bytes.is_empty() && state.closing {
                    state.ended = true;
                    self.over.notify_all();
                    return;
                }
                std::mem::swap(&mut state.bytes, &mut batch);
                std::mem::take(&mut state.reopen)
            };
            let lost = output.write(&batch, self.target.as_ref());
            self.dropped.fetch_add(lost, Ordering::Relaxed);
            batch.clear();
            batch.shrink_to(MAX_IDLE_BATCH);
            if let (Some(LogTarget::File(path)), true) = (&self.target, reopen) {
                output.reopen(path);
            }
        }
    }
}

impl Output {
    /// Writes lines and returns the number that was lost. After an error the next lines are tried again.
    fn write(&mut self, lines: &[u8], target: Option<&LogTarget>) -> u64 {
        let mut left = lines;
        let failed = loop {
            if left.is_empty() {
                break None;
            }
            let piece = if self.torn { &b"\n"[..] } else { left };
            match self.file.write(piece) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(_) if self.torn => self.torn = false, // the partial line has ended
                Ok(length) => left = &left[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process has made the shared pipe or terminal non-blocking. This thread may wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None); // tried again in any case
                }
                Err(error) => break Some(error),
            }
        };
        let written = &lines[..lines.len() - left.len()];
        self.torn |= written.last().is_some_and(|byte| *byte != b'\n');
        if let Some(target) = target {
            self.report(failed, !lines.is_empty(), target);
        }
        left.iter().filter(|byte| **byte == b'\n').count() as u64
    }

    /// Logs once that writing fails, and once that it works again.
    fn report(&mut self, failed: Option<io::Error>, wrote: bool, target: &LogTarget) {
        let name = match target {
            LogTarget::Stdout => "to standard output".to_owned(),
            LogTarget::File(path) => path.display().to_string(),
        };
        match failed {
            Some(error) if !self.failing => {
                tracing::error!("the access log {name} cannot be written, and lines are lost: {error}");
                self.failing = true;
            }
            None if self.failing && wrote => {
                tracing::info!("the access log {name} is written again");
                self.failing = false;
            }
            _ => {}
        }
    }

    fn reopen(&mut self, path: &Path) {
        match open(path) {
            Ok(file) => {
                (self.file, self.torn) = (file, false);
                tracing::info!("the access log {} is opened again", path.display());
            }
            Err(error) => {
                tracing::error!("the access log {} cannot be opened again: {error}", path.display());
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a named pipe without a reader fails instead of blocking the thread.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)
}

/// Checks whether a log could be opened at `path`, without creating the file or opening a pipe, which its reader would
/// notice.
///
/// # Errors
/// If the file is not writable, or cannot be created.
pub fn try_open(path: &Path) -> io::Result<()> {
    let writable = |path: &Path, how| Ok(accessat(CWD, path, how, AtFlags::EACCESS)?);
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => writable(path, Access::WRITE_OK),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            writable(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
                io::Error::new(error.kind(), format!("the folder {}: {error}", folder.display()))
            })
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_line_is_ended_before_the_next() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("log");
        let target = LogTarget::File(path.clone());
        let mut output = Output { file: open(&path).unwrap(), torn: false, failing: false };
        assert_eq!(output.write(b"one\ntw", Some(&target)), 0);
        output.torn = true;
        assert_eq!(output.write(b"three\n", Some(&target)), 0);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntw\nthree\n");
    }

    #[test]
    fn lines_are_counted_as_dropped_when_the_disk_is_full() {
        let target = LogTarget::File("/dev/full".into());
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = LogWriter::open(&target, 1 << 20, Arc::clone(&dropped)).unwrap();
        writer.push(b"one\ntwo\n", 2);
        assert!(writer.finish(Duration::from_secs(10)));
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn lines_that_exceed_the_capacity_are_dropped_and_counted() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("log");
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = LogWriter::open(&LogTarget::File(path.clone()), 8, Arc::clone(&dropped)).unwrap();
        writer.push(b"too long for it\n", 1);
        writer.push(b"fits\n", 1);
        assert!(writer.finish(Duration::from_secs(10)));
        assert_eq!(
            (dropped.load(Ordering::Relaxed), std::fs::read_to_string(path).unwrap()),
            (1, "fits\n".into())
        );
    }
}
