//! The listeners of one worker thread, and the state that their connections share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::connection_budget::ConnectionBudget;
use super::handshake::Handshakes;
use crate::request::Services;
use crate::snapshot::Snapshot;
use sluicegate_base::critical_task::CriticalTasks;
use sluicegate_downstream::Listener;

/// The listeners of one worker thread, and the state that their connections share.
pub struct Server {
    /// Serves the requests.
    pub(super) services: Rc<Services>,
    pub(super) listeners: RefCell<Vec<Rc<Listener>>>,
    /// The TLS handshakes.
    pub(crate) handshakes: Handshakes,
    /// Limits the client connections of the process.
    pub(super) budget: Arc<ConnectionBudget>,
    pub(super) critical: CriticalTasks,
    last_group: Cell<u64>,
}

impl Server {
    /// A server without listeners, whose requests `services` serves. `budget` counts the client connections of the
    /// process.
    pub(crate) fn new(
        services: &Rc<Services>,
        budget: Arc<ConnectionBudget>,
        critical: CriticalTasks,
    ) -> Rc<Self> {
        let server = Rc::new(Self {
            services: Rc::clone(services),
            listeners: RefCell::default(),
            handshakes: Handshakes::default(),
            budget,
            critical,
            last_group: Cell::new(0),
        });
        let weak = Rc::downgrade(&server);
        services.on_reload(move |snapshot| {
            if let Some(server) = weak.upgrade() {
                server.listeners.borrow().iter().for_each(|listener| server.find(listener, snapshot));
            }
        });
        server
    }

    /// Updates index and state of a listener from a snapshot.
    pub(super) fn find(&self, listener: &Listener, snapshot: &Snapshot) {
        let Services { process, index, .. } = &*self.services;
        listener.find_in(&snapshot.config.listeners, &snapshot.listener_states, &process.metrics, *index);
    }

    /// A unique number for the connections of a listener.
    pub(super) fn next_group(&self) -> u64 {
        self.last_group.set(self.last_group.get() + 1);
        self.last_group.get()
    }
}
