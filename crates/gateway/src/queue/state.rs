//! The state of a queue that lasts from one configuration to the next.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::counts::Counts;
use super::remote::Remote;
use sluicegate_queue::Figures;
use sluicegate_queue_sqlite::QueueFile;

/// The interval between warnings in the log, in milliseconds.
const WARN_EVERY: u64 = 10_000;

/// Where a queue is kept.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    File(Arc<SharedFile>),
    Redis(Arc<Remote>),
}

/// A file with the queues of some limits.
#[derive(Debug)]
pub(super) struct SharedFile {
    pub(super) path: PathBuf,
    pub(super) file: ArcSwap<QueueFile>,
}

/// The state of the queue of a limit.
#[derive(Debug)]
pub struct QueueState {
    pub(super) limit: String,
    pub(super) storage: Storage,
    /// Notified when something may be delivered.
    pub wake: Notify,
    /// Notified when attempts in progress have to end at once.
    pub cut: Notify,
    /// What became of its requests.
    pub counts: Counts,
    /// Whether a worker delivers its requests.
    is_served: AtomicBool,
    /// Whether another process has taken the file over, or is going to.
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
    /// How many requests were accepted since the gateway started. Figures that were read before the latest one are discarded.
    accepted: u64,
}

/// Says that a worker delivers the requests of a queue, until it is dropped.
pub struct Serving(Arc<QueueState>);

impl QueueState {
    pub(super) fn new(limit: &str, storage: Storage) -> Self {
        Self {
            limit: limit.to_owned(),
            storage,
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

    /// Where it is kept, for messages.
    pub fn place(&self) -> String {
        match &self.storage {
            Storage::File(shared) => shared.path.display().to_string(),
            Storage::Redis(remote) => format!("Redis, {}", remote.config.stream),
        }
    }

    /// Its file, if it is in the one at this path.
    pub(super) fn file_at(&self, path: &Path) -> Option<&Arc<SharedFile>> {
        match &self.storage {
            Storage::File(shared) if shared.path == path => Some(shared),
            _ => None,
        }
    }

    /// Whether other gateways have the same queue.
    pub fn is_shared(&self) -> bool {
        matches!(self.storage, Storage::Redis(_))
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

    /// The number of requests that were accepted so far: to be passed to [`set_figures`](Self::set_figures).
    pub(super) fn accepted(&self) -> u64 {
        self.lock().accepted
    }

    /// Sets its figures, which were read when `accepted` requests had been accepted.
    pub(super) fn set_figures(&self, figures: Figures, accepted: u64) {
        let mut standing = self.lock();
        standing.figures = figures;
        let length = if standing.accepted == accepted { figures.length } else { figures.length.max(1) };
        self.length.store(length, Ordering::Release);
    }

    /// Warns that requests of its limit have a problem, once in ten seconds.
    #[cold]
    pub fn warn(&self, now: u64, problem: &str) {
        let last = self.warned.load(Ordering::Relaxed);
        let is_next = now.saturating_sub(last) >= WARN_EVERY;
        if is_next && self.warned.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::error!("{}: requests of the limit `{}` {problem}", self.place(), self.limit);
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
