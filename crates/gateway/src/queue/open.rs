//! The queues of a configuration: their files are opened once and kept as long as a configuration names them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::remote::Remote;
use super::seal::Seal;
use super::state::{QueueState, SharedFile, Storage};
use super::storage::figures_of;
use sluicegate_base::clock::Clock;
use sluicegate_config::{Config, QueueConfig, QueueStorage};
use sluicegate_queue_sqlite::QueueFile;

/// How long a file is waited for that another process uses: the one that this process takes over from.
const PATIENCE: Duration = Duration::from_secs(10);

/// The queues of a configuration.
#[derive(Debug, Default)]
pub struct Queues(Vec<Option<Arc<Queue>>>);

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
            let state = match &of_limit.storage {
                QueueStorage::File(file) => {
                    let opened = || known().find_map(|state| state.file_at(&file.path));
                    let opened = files.iter().find(|known| known.path == file.path).or_else(opened);
                    let shared = opened.map_or_else(|| open(&file.path), |file| Ok(Arc::clone(file)))?;
                    files.push(Arc::clone(&shared));
                    let mut same = known().filter(|state| {
                        let is_same =
                            state.file_at(&file.path).is_some_and(|known| Arc::ptr_eq(known, &shared));
                        is_same && state.limit() == limit.name
                    });
                    let new = || Arc::new(QueueState::new(&limit.name, Storage::File(Arc::clone(&shared))));
                    let state = same.next().map_or_else(new, Arc::clone);
                    let figures = figures_of(&shared.file.load(), &limit.name);
                    let figures = figures.map_err(|error| format!("{}: {error}", file.path.display()))?;
                    state.set_figures(figures, state.accepted());
                    state
                }
                QueueStorage::Redis(shared) => {
                    let mut same = known().filter(|state| match &state.storage {
                        Storage::Redis(remote) => remote.is(shared) && state.limit() == limit.name,
                        Storage::File(_) => false,
                    });
                    match same.next() {
                        Some(state) => Arc::clone(state),
                        None => {
                            let remote = Remote::open(shared, &limit.name, clock)?;
                            Arc::new(QueueState::new(&limit.name, Storage::Redis(Arc::new(remote))))
                        }
                    }
                }
            };
            let seal = match (&of_limit.key_file, &of_limit.storage) {
                (Some(key), storage) => {
                    Some(Seal::open_file(&key.path, matches!(storage, QueueStorage::File(_)))?)
                }
                (None, QueueStorage::File(file)) => Some(Seal::beside(&file.path)?),
                (None, QueueStorage::Redis(_)) => None,
            };
            queues.push(Some(Arc::new(Queue { config: of_limit.clone(), state, seal })));
        }
        let queues = Self(queues);
        queues.warn_of_orphans(&files);
        for gone in known().filter(|gone| !queues.iter().any(|kept| Arc::ptr_eq(&kept.state, gone))) {
            let figures = match &gone.storage {
                Storage::File(shared) => figures_of(&shared.file.load(), gone.limit()).unwrap_or_default(),
                Storage::Redis(_) => gone.standing().figures,
            };
            let length = figures.length;
            if length > 0 {
                warn_of_orphan(&gone.place(), gone.limit(), length);
            }
        }
        Ok(Arc::new(queues))
    }

    /// The queue of the limit with this index.
    pub fn of(&self, limit: usize) -> Option<&Arc<Queue>> {
        self.0.get(limit)?.as_ref()
    }

    /// The queue of the limit of this name.
    pub fn named(&self, limit: &str) -> Option<&Arc<Queue>> {
        self.iter().find(|queue| queue.state.limit == limit)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.0.iter().flatten()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
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

    /// Lets another process have the files. Nothing is accepted there from now on. Blocks.
    pub fn hand_over(&self) {
        self.files().for_each(|shared| shared.file.load().release_lock());
    }

    /// Opens the files again after [`hand_over`](Self::hand_over), and delivers again. Blocks.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn take_back(&self) -> Result<(), String> {
        for shared in self.files() {
            let opened = QueueFile::open(&shared.path, PATIENCE).map_err(|error| error.to_string())?;
            shared.file.store(Arc::new(opened));
        }
        self.iter().for_each(|queue| queue.state.lend(false));
        Ok(())
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
                if figures.length > 0 && !has_queue(&limit) {
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
        // Of a queue that others fill, too, only the storage knows that.
        self.state.is_empty() && !(self.config.ordered && self.state.is_shared())
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn warn_of_orphan(place: &str, limit: &str, length: u64) {
    tracing::warn!(
        "{place}: {length} requests of the limit `{limit}` are not delivered, because it has no queue there any more; they \
         are delivered if it has one again before their `ttl` ends"
    );
}

fn open(path: &Path) -> Result<Arc<SharedFile>, String> {
    let file = QueueFile::open(path, PATIENCE).map_err(|error| error.to_string())?;
    Ok(Arc::new(SharedFile { path: path.to_owned(), file: ArcSwap::from_pointee(file) }))
}
