//! A listener as one worker serves it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tokio::sync::Notify;

use super::listener_state::{CountGuard, ListenerState};
use sluicegate_config::ListenerConfig;
use sluicegate_observe::metrics::{Handshake, ListenerMetrics, Metrics, Refusal};

/// The index of a listener that the configuration in force does not have. No route matches it.
const REMOVED: usize = usize::MAX;

/// A listener as one worker serves it.
pub struct Listener {
    /// Identifies it across reloads, also if its name changes.
    pub id: String,
    /// Its index in the snapshot in force, or [`REMOVED`].
    index: Cell<usize>,
    /// The group of the deadlines of its connections.
    pub group: u64,
    /// Notified when it is closed.
    pub closed: Notify,
    /// Whether its connections end with their next response.
    pub ending: Cell<bool>,
    /// Whether it decides for other proxies, in the last configuration that had it.
    is_served: Cell<bool>,
    /// Whether another owner of its socket continues to accept when it is closed here.
    pub left: Cell<bool>,
    /// Its open connections, on all workers.
    connections: RefCell<Arc<AtomicI64>>,
    metrics: RefCell<Arc<ListenerMetrics>>,
    /// Its state in the configuration in force, or in the last configuration that had it.
    state: RefCell<Option<Arc<ListenerState>>>,
}

impl Listener {
    /// A listener that has no state yet.
    pub fn new(id: String, group: u64) -> Self {
        Self {
            id,
            index: Cell::new(REMOVED),
            group,
            closed: Notify::new(),
            connections: RefCell::default(),
            metrics: RefCell::default(),
            state: RefCell::default(),
            ending: Cell::new(false),
            is_served: Cell::new(false),
            left: Cell::new(false),
        }
    }

    /// Its index in the configuration in force; `usize::MAX` if that does not have the listener.
    pub(crate) fn index(&self) -> usize {
        self.index.get()
    }

    /// Takes its index and its state from the configuration that is now in force. `states` are in the order of `configs`.
    pub fn find_in(
        &self,
        configs: &[ListenerConfig],
        states: &[Arc<ListenerState>],
        metrics: &Metrics,
        worker: usize,
    ) {
        let found = configs.iter().enumerate().find(|(_, listener)| listener.id() == self.id);
        self.index.set(found.map_or(REMOVED, |(index, _)| index));
        if let Some((index, listener)) = found {
            self.connections.replace(metrics.connections(&listener.name));
            self.metrics.replace(metrics.listener(&listener.name, worker));
            self.state.replace(Some(Arc::clone(&states[index])));
            self.is_served.set(listener.served.is_some());
        }
    }

    /// Whether it decides for other proxies. It stays so for connections of a listener that a reload has removed.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.is_served.get()
    }

    /// Its state for new connections.
    pub fn state(&self) -> Option<Arc<ListenerState>> {
        self.state.borrow().clone()
    }

    /// Counts one more connection; `None` if there are `most` already.
    pub fn acquire(&self, most: i64) -> Option<CountGuard> {
        CountGuard::one(&self.connections.borrow(), most)
    }

    /// Counts a refused connection in the metrics.
    pub fn count_refusal(&self, why: Refusal) {
        self.metrics.borrow().refused(why);
    }

    /// Counts a TLS handshake in the metrics.
    pub fn count_handshake(&self, outcome: Handshake) {
        self.metrics.borrow().handshake(outcome);
    }
}
