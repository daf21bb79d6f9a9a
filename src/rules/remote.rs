//! Rules in Redis: the thread that talks to it, and what it does about changes that others make.

use std::sync::Weak;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use sluicegate_config::RedisConfig;
use sluicegate_rules_redis::{Event, RedisRules};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::Rules;
use crate::clock::Clock;
use crate::store_settings::settings;

/// The longest time for an answer to a small question.
const TIMEOUT: Duration = Duration::from_millis(250);
/// How long it takes until patterns that could not be read are read again.
const PAUSE: Duration = Duration::from_millis(250);

/// A connection to rules in Redis.
pub struct Remote {
    /// The rules.
    pub(super) rules: RedisRules,
    runtime: Handle,
    /// The thread ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl Remote {
    /// Begins to connect. The events have to be [followed](follow).
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
            RedisRules::open(settings(config), clock.for_store(), TIMEOUT, tell)
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

/// Forgets what others have changed. `ready` is told when the rules were read for the first time.
pub(super) async fn follow(rules: Weak<Rules>, mut events: UnboundedReceiver<Event>, ready: SyncSender<()>) {
    let mut unread = false;
    let mut reached = None;
    loop {
        let event = match unread {
            true => match tokio::time::timeout(PAUSE, events.recv()).await {
                Ok(event) => event.map(Some),
                Err(_) => Some(None),
            },
            false => events.recv().await.map(Some),
        };
        let (Some(event), Some(rules)) = (event, rules.upgrade()) else { return };
        let mut next = event;
        while let Some(event) = next {
            match event {
                Event::Keys(keys) => {
                    keys.iter().for_each(|(limit, key)| rules.key_changed(limit, key));
                }
                Event::Patterns => unread = true,
                Event::Everything => {
                    rules.forget_all();
                    unread = true;
                }
                Event::At(head) => reached = Some(head.version),
                Event::Away(why) => rules.say(Some(why)),
                Event::Back => rules.say(None),
            }
            next = events.try_recv().ok();
        }
        if unread {
            // Asked by nobody who waits: what fails is asked again.
            match rules.read_patterns().await {
                Ok(()) => {
                    unread = false;
                    let _ = ready.try_send(()); // only the first one is waited for
                }
                Err(why) => tracing::debug!(why, "the patterns of rules cannot be read"),
            }
        }
        if !unread && let Some(version) = reached.take() {
            rules.reached(version);
        }
    }
}
