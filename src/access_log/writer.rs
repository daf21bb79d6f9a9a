//! A thread that writes a log, and the bounded queue before it. The access log and the gateway's own log use it.

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

/// Who may read a log that is made here.
const MODE: u32 = 0o640;
/// A batch that was larger gives its memory back.
const KEPT: usize = 256 << 10;

/// Where the lines of all workers go. The last one who drops it ends the thread, when all is written.
pub struct Sink(Arc<Queue>);

struct Queue {
    /// `None` is standard error: the log in which the trouble of all others is told.
    target: Option<LogTarget>,
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    /// The thread has ended.
    over: Condvar,
    /// Lines that nobody will ever see.
    dropped: Arc<AtomicU64>,
}

struct State {
    bytes: Vec<u8>,
    /// Bytes that may wait.
    most: usize,
    reopen: bool,
    closing: bool,
    ended: bool,
}

/// What is written to.
struct Output {
    file: File,
    /// Whether the last line is only half there.
    torn: bool,
    /// Whether the last attempt failed: that is said once.
    failing: bool,
}

impl Sink {
    /// Opens the log and starts the thread that writes it. At most `most` bytes wait; lines that are lost count in
    /// `dropped`.
    ///
    /// # Errors
    /// When the file cannot be opened, or no thread be had.
    pub fn open(target: &LogTarget, most: usize, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let file = match target {
            // Past the buffer of the standard library, which would keep what could not be written.
            LogTarget::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            LogTarget::File(path) => open(path)?,
        };
        Self::start(file, Some(target.clone()), most, dropped)
    }

    /// The same for standard error.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn to_stderr(most: usize, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Self::start(file, None, most, dropped)
    }

    fn start(
        file: File,
        target: Option<LogTarget>,
        most: usize,
        dropped: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let name = if target.is_some() { "access-log" } else { "log" };
        let state = State { bytes: Vec::new(), most, reopen: false, closing: false, ended: false };
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

    /// Whether it writes there.
    pub fn is_for(&self, target: &LogTarget) -> bool {
        self.0.target.as_ref() == Some(target)
    }

    /// So many bytes may wait from now on.
    pub fn hold(&self, most: usize) {
        self.0.lock().most = most;
    }

    /// Takes whole lines to be written, so many, or drops them. It never waits for the disk.
    pub fn take(&self, lines: &[u8], count: u64) {
        let mut state = self.0.lock();
        if state.bytes.len() + lines.len() > state.most {
            drop(state);
            self.0.dropped.fetch_add(count, Ordering::Relaxed);
            return;
        }
        state.bytes.extend_from_slice(lines);
        drop(state);
        self.0.work.notify_one();
    }

    /// Has the file opened anew, after what waits is written: it was moved away.
    pub fn reopen(&self) {
        self.0.lock().reopen = true;
        self.0.work.notify_one();
    }

    /// Waits until all is written, at most so long: whether it was. Nothing is taken afterwards.
    pub fn finish(&self, within: Duration) -> bool {
        self.0.close();
        let state = self.0.lock();
        let waited = self.0.over.wait_timeout_while(state, within, |state| !state.ended);
        waited.is_ok_and(|(state, _)| state.ended)
    }
}

impl Drop for Sink {
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

    /// Writes what comes until there is no more to come.
    fn write(&self, mut output: Output) {
        let mut batch = Vec::new();
        loop {
            let reopen = {
                let nothing = |state: &mut State| state.bytes.is_empty() && !state.reopen && !state.closing;
                let state = self.work.wait_while(self.lock(), nothing);
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
            batch.shrink_to(KEPT);
            if let (Some(LogTarget::File(path)), true) = (&self.target, reopen) {
                output.reopen(path);
            }
        }
    }
}

impl Output {
    /// Writes lines; how many of them were lost. A disk that is full or a pipe that broke is tried again with the next.
    fn write(&mut self, lines: &[u8], target: Option<&LogTarget>) -> u64 {
        let mut left = lines;
        let failed = loop {
            if left.is_empty() {
                break None;
            }
            let piece = if self.torn { &b"\n"[..] } else { left };
            match self.file.write(piece) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(_) if self.torn => self.torn = false, // what was half there is a line of its own
                Ok(length) => left = &left[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The process that shares the pipe or terminal has made it non-blocking. This thread may wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None); // tried again in any case
                }
                Err(error) => break Some(error),
            }
        };
        let written = &lines[..lines.len() - left.len()];
        self.torn |= written.last().is_some_and(|byte| *byte != b'\n');
        if let Some(target) = target {
            self.tell(failed, !lines.is_empty(), target);
        }
        left.iter().filter(|byte| **byte == b'\n').count() as u64
    }

    /// Says once that writing fails, and once that it works again.
    fn tell(&mut self, failed: Option<io::Error>, wrote: bool, target: &LogTarget) {
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
                tracing::info!("the access log {} is opened anew", path.display());
            }
            Err(error) => {
                tracing::error!("the access log {} cannot be opened anew: {error}", path.display());
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A named pipe that nobody reads is an error, instead of a thread that waits for a reader.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)
}

/// Whether a log could be opened here, as far as that can be told without making the file or opening a pipe, which its
/// reader would notice.
///
/// # Errors
/// Why it could not.
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
    fn a_line_that_was_torn_is_ended_before_the_next() {
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
    fn a_full_disk_costs_lines_and_nothing_else() {
        let target = LogTarget::File("/dev/full".into());
        let dropped = Arc::new(AtomicU64::new(0));
        let sink = Sink::open(&target, 1 << 20, Arc::clone(&dropped)).unwrap();
        sink.take(b"one\ntwo\n", 2);
        assert!(sink.finish(Duration::from_secs(10)));
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("log");
        let dropped = Arc::new(AtomicU64::new(0));
        let sink = Sink::open(&LogTarget::File(path.clone()), 8, Arc::clone(&dropped)).unwrap();
        sink.take(b"too long for it\n", 1);
        sink.take(b"fits\n", 1);
        assert!(sink.finish(Duration::from_secs(10)));
        assert_eq!(
            (dropped.load(Ordering::Relaxed), std::fs::read_to_string(path).unwrap()),
            (1, "fits\n".into())
        );
    }
}
