//! The queues of a configuration: their files are opened once and kept as long as a configuration names them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::remote::Remote;
use super::seal::Seal;
use super::state::{QueueState, SharedFile, Storage};
use super::storage::figures_of;
use sluicegate_base::clock::Clock;
use sluicegate_config::{Config, QueueConfig, QueueStorage, SharedQueue};
use sluicegate_queue_sqlite::QueueFile;

/// How long to wait for a file that another process still uses: the one that this process takes over from.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most lookups of clients at a time: each reads the storage.
const MAX_LOOKUPS: usize = 32;

/// The queues of a configuration.
#[derive(Debug)]
pub struct Queues {
    /// By the index of their limit.
    all: Vec<Option<Arc<Queue>>>,
    lookups: Semaphore,
}

/// The queue of one limit.
#[derive(Debug)]
pub struct Queue {
    /// What the file says of it.
    pub config: QueueConfig,
    /// What lasts from one configuration to the next.
    pub state: Arc<QueueState>,
    /// The key that seals secrets in it, if there is one.
    pub seal: Option<Seal>,
}

impl Queues {
    /// Opens the queues of a configuration, those of `before` as far as they are the same. Blocks.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(config: &Config, before: Option<&Self>, clock: Clock) -> Result<Arc<Self>, String> {
        let mut files: Vec<Arc<SharedFile>> = Vec::new();
        let known = || before.into_iter().flat_map(|before| before.iter()).map(|queue| &queue.state);
        let mut queues = Vec::new();
        for limit in &config.limits {
            let Some(of_limit) = &limit.queue else {
                queues.push(None);
                continue;
            };
            let failed = |why: String| format!("limit `{}`: queue: {why}", limit.name);
            let state = match &of_limit.storage {
                QueueStorage::File(file) => {
                    in_file(&limit.name, &file.path, &mut files, known).map_err(failed)?
                }
                QueueStorage::Redis(shared) => in_redis(&limit.name, shared, known, clock).map_err(failed)?,
            };
            let seal = match (&of_limit.key_file, &of_limit.storage) {
                (Some(key), storage) => {
                    let create = matches!(storage, QueueStorage::File(_));
                    Some(Seal::open_file(&key.path, create).map_err(failed)?)
                }
                (None, QueueStorage::File(file)) => Some(Seal::beside(&file.path).map_err(failed)?),
                (None, QueueStorage::Redis(_)) => None,
            };
            queues.push(Some(Arc::new(Queue { config: of_limit.clone(), state, seal })));
        }
        let queues = Self { all: queues, lookups: Semaphore::new(MAX_LOOKUPS) };
        queues.warn_of_orphans(&files);
        for gone in known().filter(|gone| !queues.iter().any(|kept| Arc::ptr_eq(&kept.state, gone))) {
            let figures = match &gone.storage {
                Storage::File(shared) if files.iter().any(|file| Arc::ptr_eq(file, shared)) => continue,
                Storage::File(shared) => figures_of(&shared.file.load(), gone.limit()).unwrap_or_default(),
                Storage::Redis(_) => gone.standing().figures,
            };
            warn_of_orphan(&gone.place(), gone.limit(), figures.length);
        }
        Ok(Arc::new(queues))
    }

    /// The queue of the limit with this index.
    pub fn of(&self, limit: usize) -> Option<&Arc<Queue>> {
        self.all.get(limit)?.as_ref()
    }

    /// The queue of the limit of this name.
    pub fn named(&self, limit: &str) -> Option<&Arc<Queue>> {
        self.iter().find(|queue| queue.state.limit == limit)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.all.iter().flatten()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// A permit to look up the request of a client; `None` if too many lookups are in progress.
    pub fn lookup(&self) -> Option<SemaphorePermit<'_>> {
        self.lookups.try_acquire().ok()
    }

    /// One queue of each file, and those in Redis.
    pub fn storages(&self) -> impl Iterator<Item = &Arc<Queue>> {
        let is_same = |one: &Queue, other: &Queue| match (&one.state.storage, &other.state.storage) {
            (Storage::File(one), Storage::File(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        let is_first =
            move |at: usize, queue: &Arc<Queue>| !self.iter().take(at).any(|other| is_same(other, queue));
        self.iter().enumerate().filter(move |(at, queue)| is_first(*at, queue)).map(|(_, queue)| queue)
    }

    fn files(&self) -> impl Iterator<Item = &Arc<SharedFile>> {
        self.storages().filter_map(|queue| match &queue.state.storage {
            Storage::File(shared) => Some(shared),
            Storage::Redis(_) => None,
        })
    }

    /// Closes the files for another process. Nothing is accepted from now on. Blocks.
    pub fn hand_over(&self) {
        self.files().for_each(|shared| shared.file.load().release_lock());
    }

    /// Opens the files again after [`hand_over`](Self::hand_over), and delivers again. Blocks.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn take_back(&self) -> Result<(), String> {
        let mut failed = Vec::new();
        for shared in self.files() {
            match QueueFile::open(&shared.path, PATIENCE) {
                Ok(opened) => shared.file.store(Arc::new(opened)),
                Err(error) => failed.push(error.to_string()),
            }
        }
        self.iter().for_each(|queue| queue.state.lend(false));
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    /// Warns of requests in these files whose limit has no queue any more.
    fn warn_of_orphans(&self, files: &[Arc<SharedFile>]) {
        for (at, file) in files.iter().enumerate() {
            if files[..at].iter().any(|other| Arc::ptr_eq(other, file)) {
                continue;
            }
            let has_queue =
                |name: &str| self.named(name).is_some_and(|queue| queue.state.file_at(&file.path).is_some());
            for (limit, figures) in file.file.load().figures().unwrap_or_default() {
                if !has_queue(&limit) {
                    warn_of_orphan(&file.path.display().to_string(), &limit, figures.length);
                }
            }
        }
    }
}

impl Queue {
    /// How long a request may wait, in milliseconds.
    pub fn ttl(&self) -> u64 {
        milliseconds(self.config.ttl)
    }

    /// How long the outcome of a request can be read, in milliseconds.
    pub fn keep(&self) -> u64 {
        milliseconds(self.config.keep)
    }

    /// Whether it is certain that no request waits in it.
    pub fn is_empty(&self) -> bool {
        // Other gateways may have filled a shared queue, which only the storage knows.
        self.state.is_empty() && !(self.config.ordered && self.state.is_shared())
    }
}

/// The state of a queue in a file; the existing state if the queue is the same. `files` are the files that are open already.
fn in_file<'q, K: Iterator<Item = &'q Arc<QueueState>>>(
    limit: &str,
    path: &Path,
    files: &mut Vec<Arc<SharedFile>>,
    known: impl Fn() -> K,
) -> Result<Arc<QueueState>, String> {
    let of_before = || known().find_map(|state| state.file_at(path));
    let opened = files.iter().find(|file| file.path == path).or_else(of_before);
    let shared = opened.map_or_else(|| open(path), |file| Ok(Arc::clone(file)))?;
    files.push(Arc::clone(&shared));
    let is_same = |state: &&Arc<QueueState>| {
        state.limit() == limit && state.file_at(path).is_some_and(|file| Arc::ptr_eq(file, &shared))
    };
    let new = || Arc::new(QueueState::new(limit, Storage::File(Arc::clone(&shared))));
    let state = known().find(is_same).map_or_else(new, Arc::clone);
    let accepted = state.accepted();
    let figures = figures_of(&shared.file.load(), limit);
    state.set_figures(figures.map_err(|error| format!("{}: {error}", path.display()))?, accepted);
    Ok(state)
}

/// The state of a queue in Redis; the existing state if the queue is the same.
fn in_redis<'q, K: Iterator<Item = &'q Arc<QueueState>>>(
    limit: &str,
    shared: &SharedQueue,
    known: impl Fn() -> K,
    clock: Clock,
) -> Result<Arc<QueueState>, String> {
    let is_same = |state: &&Arc<QueueState>| match &state.storage {
        Storage::Redis(remote) => remote.is(shared) && state.limit() == limit,
        Storage::File(_) => false,
    };
    match known().find(is_same) {
        Some(state) => Ok(Arc::clone(state)),
        None => {
            let remote = Remote::open(shared, limit, clock)?;
            Ok(Arc::new(QueueState::new(limit, Storage::Redis(Arc::new(remote)))))
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn warn_of_orphan(place: &str, limit: &str, length: u64) {
    let requests = match length {
        0 => return,
        1 => "1 request".to_owned(),
        _ => format!("{length} requests"),
    };
    tracing::warn!(
        "{place}: {requests} of the limit `{limit}` will not be delivered, because it no longer has a queue there; give it one \
         again before their `ttl` ends"
    );
}

fn open(path: &Path) -> Result<Arc<SharedFile>, String> {
    let file = QueueFile::open(path, PATIENCE).map_err(|error| error.to_string())?;
    Ok(Arc::new(SharedFile { path: path.to_owned(), file: ArcSwap::from_pointee(file) }))
}
