//! The queues of a configuration: their files are opened once and kept as long as a configuration names them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::seal::Seal;
use super::state::{QueueState, SharedFile};
use sluicegate_config::{Config, QueueConfig};
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
}

impl Queues {
    /// Opens the queues of a configuration, those of `before` as far as they are the same. Blocks.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(config: &Config, before: Option<&Self>) -> Result<Arc<Self>, String> {
        let mut files: Vec<Arc<SharedFile>> = Vec::new();
        let known = || before.into_iter().flat_map(|before| before.iter());
        let mut queues = Vec::new();
        for limit in &config.limits {
            let Some(of_limit) = &limit.queue else {
                queues.push(None);
                continue;
            };
            let path = &of_limit.file.path;
            let same = known().map(|queue| &queue.state).find(|state| state.shared.path == *path);
            let opened = files.iter().find(|file| file.path == *path);
            let shared = match opened.or_else(|| same.map(|state| &state.shared)) {
                Some(shared) => Arc::clone(shared),
                None => open(path)?,
            };
            files.push(Arc::clone(&shared));
            let state = known().map(|queue| &queue.state);
            let mut state =
                state.filter(|state| state.limit == limit.name && Arc::ptr_eq(&state.shared, &shared));
            let state =
                state.next().map_or_else(|| Arc::new(QueueState::new(&limit.name, &shared)), Arc::clone);
            state.read_figures().map_err(|error| format!("{}: {error}", path.display()))?;
            queues.push(Some(Arc::new(Queue { config: of_limit.clone(), state })));
        }
        let queues = Self(queues);
        queues.warn_of_orphans(&files);
        for gone in known().filter(|gone| !queues.iter().any(|kept| Arc::ptr_eq(&kept.state, &gone.state))) {
            let (state, figures) = (&gone.state, gone.state.read_figures().unwrap_or_default());
            if figures.length > 0 {
                warn_of_orphan(state.path(), &state.limit, figures.length);
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

    /// One queue of each file.
    pub fn files(&self) -> impl Iterator<Item = &Arc<Queue>> {
        let is_first = |at: usize, queue: &Arc<Queue>| {
            !self.iter().take(at).any(|other| Arc::ptr_eq(&other.state.shared, &queue.state.shared))
        };
        self.iter().enumerate().filter(move |(at, queue)| is_first(*at, queue)).map(|(_, queue)| queue)
    }

    /// Lets another process have the files. Nothing is accepted or delivered here from now on. Blocks.
    pub fn hand_over(&self) {
        self.files().for_each(|queue| queue.state.file().release_lock());
    }

    /// Opens the files again after [`hand_over`](Self::hand_over). Blocks.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn take_back(&self) -> Result<(), String> {
        for queue in self.files() {
            let shared = &queue.state.shared;
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
                |name: &str| self.named(name).is_some_and(|queue| Arc::ptr_eq(&queue.state.shared, file));
            for (limit, figures) in file.file.load().figures().unwrap_or_default() {
                if figures.length > 0 && !has_queue(&limit) {
                    warn_of_orphan(&file.path, &limit, figures.length);
                }
            }
        }
    }
}

fn warn_of_orphan(path: &Path, limit: &str, length: u64) {
    tracing::warn!(
        "{}: {length} requests of the limit `{limit}` are not delivered, because it has no queue in this file any more; they \
         are delivered if it has one again before their `ttl` ends",
        path.display()
    );
}

fn open(path: &Path) -> Result<Arc<SharedFile>, String> {
    let file = QueueFile::open(path, PATIENCE).map_err(|error| error.to_string())?;
    let seal = Seal::beside(path)?;
    Ok(Arc::new(SharedFile { path: path.to_owned(), file: ArcSwap::from_pointee(file), seal }))
}
