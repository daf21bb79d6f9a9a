//! Rules in Redis: the thread that talks to it, and what it does about changes that others make.

use std::time::Duration;

use sluicegate_config::RedisConfig;
use sluicegate_rules_redis::{Event, RedisRules};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use crate::store_settings::{settings, store_clock};
use sluicegate_base::clock::Clock;

/// The longest time for an answer to a small question.
const TIMEOUT: Duration = Duration::from_millis(250);

/// A connection to rules in Redis.
pub struct Remote {
    /// The rules.
    pub(super) rules: RedisRules,
    runtime: Handle,
    /// The thread ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl Remote {
    /// Begins to connect. The events have to be [followed](super::follow::follow).
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub(super) fn open(
        config: &RedisConfig,
        clock: Clock,
    ) -> Result<(Self, UnboundedReceiver<Event>), String> {
        let failed = |error: std::io::Error| format!("rules: cannot start a thread: {error}");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let run = move || _ = runtime.block_on(ended);
        std::thread::Builder::new().name("rules".to_owned()).spawn(run).map_err(failed)?;
        let (sender, events) = unbounded_channel();
        let rules = {
            let _inside = handle.enter();
            let tell = move |event| _ = sender.send(event); // nobody listens any more at the end
            RedisRules::open(settings(config), store_clock(&clock), TIMEOUT, tell)
        };
        Ok((Self { rules, runtime: handle, _running: running }, events))
    }

    /// Runs a question on this thread.
    ///
    /// # Panics
    /// On a thread that runs tasks.
    pub(super) fn wait_for<T>(&self, question: impl Future<Output = T>) -> T {
        self.runtime.block_on(question)
    }

    /// Runs a task on the thread of this connection.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }
}
