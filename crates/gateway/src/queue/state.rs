//! The state of a queue that lasts from one configuration to the next.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::counts::Counts;
use super::seal::Seal;
use sluicegate_queue::Figures;
use sluicegate_queue_sqlite::{QueueError, QueueFile};

/// The log is warned once in so many milliseconds.
const WARN_EVERY: u64 = 10_000;

/// A file with the queues of some limits.
#[derive(Debug)]
pub(super) struct SharedFile {
    pub(super) path: PathBuf,
    pub(super) file: ArcSwap<QueueFile>,
    pub(super) seal: Seal,
}

/// The state of the queue of a limit.
#[derive(Debug)]
pub struct QueueState {
    pub(super) limit: String,
    pub(super) shared: Arc<SharedFile>,
    /// Notified when something may be delivered.
    pub wake: Notify,
    /// Notified when attempts in progress have to end at once.
    pub cut: Notify,
    /// What became of its requests.
    pub counts: Counts,
    /// Whether a worker delivers its requests.
    is_served: AtomicBool,
    /// Whether another process has the file, or will have it.
    is_lent: AtomicBool,
    /// Whether it may have requests: 0 if it has none.
    length: AtomicU64,
    standing: Mutex<Standing>,
    /// When the log was warned last, in milliseconds since 1970.
    warned: AtomicU64,
}

/// What is known of a queue without reading it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// Its figures when they were read last.
    pub figures: Figures,
    /// Until when its limit admits nothing, in milliseconds since 1970.
    pub paused_until: u64,
    /// How many requests were accepted since the gateway started: figures that were read before one are not kept.
    accepted: u64,
}

/// Says that a worker delivers the requests of a queue, until it is dropped.
pub struct Serving(Arc<QueueState>);

impl QueueState {
    pub(super) fn new(limit: &str, shared: &Arc<SharedFile>) -> Self {
        Self {
            limit: limit.to_owned(),
            shared: Arc::clone(shared),
            wake: Notify::new(),
            cut: Notify::new(),
            counts: Counts::default(),
            is_served: AtomicBool::new(false),
            is_lent: AtomicBool::new(false),
            length: AtomicU64::new(1), // not known yet
            standing: Mutex::default(),
            warned: AtomicU64::new(0),
        }
    }

    /// The name of its limit.
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Its file.
    pub(super) fn file(&self) -> Arc<QueueFile> {
        self.shared.file.load_full()
    }

    /// The key that seals secrets in it.
    pub fn seal(&self) -> &Seal {
        &self.shared.seal
    }

    /// Whether it is certain that it has no requests.
    pub fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// What is known of it.
    pub fn standing(&self) -> Standing {
        *self.lock()
    }

    /// Its limit admits nothing before this time.
    pub fn pause_until(&self, millis: u64) {
        self.lock().paused_until = millis;
    }

    /// A request is going to be accepted.
    pub(super) fn begin_accept(&self) {
        let mut standing = self.lock();
        standing.accepted += 1;
        self.length.store(standing.figures.length.max(1), Ordering::Release);
    }

    /// Reads its figures. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read_figures(&self) -> Result<Figures, QueueError> {
        let before = self.lock().accepted;
        let all = self.file().figures()?;
        let figures = all.into_iter().find(|(limit, _)| *limit == self.limit);
        let figures = figures.map(|(_, figures)| figures).unwrap_or_default();
        let mut standing = self.lock();
        standing.figures = figures;
        let length = if standing.accepted == before { figures.length } else { figures.length.max(1) };
        self.length.store(length, Ordering::Release);
        Ok(figures)
    }

    /// Warns that requests of its limit have a problem, once in ten seconds.
    #[cold]
    pub fn warn(&self, now: u64, problem: &str) {
        let last = self.warned.load(Ordering::Relaxed);
        let is_next = now.saturating_sub(last) >= WARN_EVERY;
        if is_next && self.warned.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::error!("{}: requests of the limit `{}` {problem}", self.path().display(), self.limit);
        }
    }

    /// Lets one worker deliver its requests; `None` if another one does.
    pub fn serve(self: &Arc<Self>) -> Option<Serving> {
        let was_served = self.is_served.swap(true, Ordering::AcqRel);
        (!was_served).then(|| Serving(Arc::clone(self)))
    }

    /// Whether a worker delivers its requests.
    pub fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire)
    }

    /// Nothing is delivered any more: another process takes over.
    pub fn lend(&self, is_lent: bool) {
        self.is_lent.store(is_lent, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether another process takes over.
    pub fn is_lent(&self) -> bool {
        self.is_lent.load(Ordering::Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.is_served.store(false, Ordering::Release);
    }
}
