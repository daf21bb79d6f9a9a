//! The client side of one worker thread: its listeners, and what their connections share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::connection_budget::ConnectionBudget;
use super::handshake::Handshakes;
use crate::client_connection::Listener;
use crate::critical_task::CriticalTasks;
use crate::request::Services;
use crate::snapshot::Snapshot;

/// The listeners of one worker thread, and what their connections share.
pub struct Server {
    /// What serves the requests.
    pub(super) services: Rc<Services>,
    pub(super) listeners: RefCell<Vec<Rc<Listener>>>,
    /// TLS handshakes that are not finished.
    pub(super) handshakes: Handshakes,
    /// The client connections of the process.
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

    /// Has a listener take its index and its state from a snapshot.
    pub(super) fn find(&self, listener: &Listener, snapshot: &Snapshot) {
        let Services { process, index, .. } = &*self.services;
        listener.find_in(&snapshot.config.listeners, &snapshot.listener_states, &process.metrics, *index);
    }

    /// A number for the connections of a listener, never given twice.
    pub(super) fn next_group(&self) -> u64 {
        self.last_group.set(self.last_group.get() + 1);
        self.last_group.get()
    }
}
