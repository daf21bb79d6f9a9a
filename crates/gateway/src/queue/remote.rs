//! A queue in Redis: the thread that keeps its connections open.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::store_settings::{settings, store_clock};
use sluicegate_base::clock::Clock;
use sluicegate_config::SharedQueue;
use sluicegate_queue_redis::{Durability, RedisQueue};

/// How long to wait for the persistence settings of a Redis.
const PATIENCE: Duration = Duration::from_secs(5);

/// A queue in Redis.
#[derive(Debug)]
pub(super) struct Remote {
    /// Its name and its Redis.
    pub(super) config: SharedQueue,
    pub(super) queue: RedisQueue,
    /// The thread ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl Remote {
    /// Begins to connect.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub(super) fn open(config: &SharedQueue, limit: &str, clock: Clock) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("queue: cannot start a thread: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let queue = {
            let _inside = runtime.enter();
            RedisQueue::open(&settings(&config.redis), &store_clock(&clock), &config.stream, limit)
        };
        let (running, ended) = oneshot::channel::<()>();
        let run = move || _ = runtime.block_on(ended);
        std::thread::Builder::new().name("queue".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { config: config.clone(), queue, _running: running })
    }

    /// Whether it is the queue of this name, in the same Redis.
    pub(super) fn is(&self, config: &SharedQueue) -> bool {
        let same = settings(&self.config.redis) == settings(&config.redis);
        self.config.stream == config.stream && same
    }
}

/// How safely the Redis of a queue keeps what it has accepted. Blocks for some seconds at most.
///
/// # Errors
/// If it cannot be reached.
pub fn durability(config: &SharedQueue) -> Result<Durability, String> {
    let clock = Clock::start();
    let remote = Remote::open(config, "", clock)?;
    let begun = clock.uptime();
    loop {
        if let Some(found) = remote.queue.durability() {
            return Ok(found);
        }
        if clock.uptime() - begun > PATIENCE {
            return Err("it does not answer".to_owned());
        }
        #[allow(clippy::disallowed_methods, reason = "a command has nobody to serve")]
        std::thread::sleep(Duration::from_millis(10));
    }
}
