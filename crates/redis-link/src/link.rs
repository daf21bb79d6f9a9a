//! The connection for commands, which all callers share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sluicegate_counters_redis::{Address, Settings};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::call_error::CallError;

/// One connection.
pub struct Link {
    /// The server.
    pub address: Address,
    /// The connection; its clones share it.
    pub channel: MultiplexedConnection,
    /// Why it is of no use any more.
    fault: OnceLock<String>,
    /// Notified when it is unusable, or a call got no answer in time.
    pub doubted: Notify,
    /// Why it is broken: no answer comes any more.
    broken_by: OnceLock<String>,
    /// Notified when it breaks.
    broken: Notify,
}

impl Link {
    /// A connection that was just opened.
    pub fn new(address: Address, channel: MultiplexedConnection) -> Self {
        let (fault, broken_by) = (OnceLock::new(), OnceLock::new());
        Self { address, channel, fault, doubted: Notify::new(), broken_by, broken: Notify::new() }
    }

    /// The connection is of no use any more: it is broken, or the server does not hold the keys.
    pub fn condemn(&self, why: String) {
        _ = self.fault.set(why); // the first reason counts
        self.doubted.notify_one();
    }

    /// The connection is broken: calls in flight end.
    pub fn set_broken(&self, why: String) {
        _ = self.broken_by.set(why.clone()); // the first reason counts
        self.broken.notify_waiters();
        self.condemn(why);
    }

    /// Waits until the connection is broken, and returns why. A call that is sent while the connection breaks may get neither an
    /// answer nor an error from the client library.
    pub async fn broken(&self) -> String {
        loop {
            let broken = self.broken.notified();
            if let Some(why) = self.broken_by.get() {
                return why.clone();
            }
            broken.await;
        }
    }

    /// Why it is of no use any more.
    pub fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }
}

/// The state of the connection.
#[derive(Clone)]
pub enum State {
    /// It is being opened, and the last attempt did not fail. Calls wait for it.
    Opening,
    /// Calls can be made.
    Up(Arc<Link>),
    /// The last attempt to open it failed, for this reason.
    Down(String),
}

/// The connection that is open now.
pub struct Line {
    state: watch::Sender<State>,
}

impl Default for Line {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::Opening) }
    }
}

impl Line {
    /// Tells all who wait.
    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// To wait for other states.
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// The connection. Waits for it until `until` at most, and not at all if the last attempt to open it has failed.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn link(&self, until: Instant) -> Result<Arc<Link>, CallError> {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| match state {
            State::Opening => false,
            State::Up(link) => link.fault().is_none(),
            State::Down(_) => true,
        });
        match tokio::time::timeout_at(until, settled).await {
            Ok(Ok(state)) => match &*state {
                State::Up(link) => Ok(Arc::clone(link)),
                State::Down(why) => Err(CallError::Unsent(why.clone())),
                State::Opening => Err(CallError::Unsent(NOT_OPEN.into())),
            },
            _ => Err(CallError::Unsent(NOT_OPEN.into())),
        }
    }
}

const NOT_OPEN: &str = "there is no connection to Redis yet";

/// The interval of checks whether a server answers.
pub const PING_INTERVAL: Duration = Duration::from_millis(500);

/// The time that a server has for the answer of a check: as long as a call, and half a second at least.
pub fn ping_timeout(settings: &Settings) -> Duration {
    settings.timeout.max(Duration::from_millis(500))
}

/// The pause before a connection is opened again: 50 to 250 ms, random, so that gateways do not come all at once.
pub fn pause() -> Duration {
    Duration::from_millis(50 + u64::from(sluicegate_counters_redis::random()[0]) * 200 / 255)
}
