//! Which server holds which key: one server, or a cluster whose slots move.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use sluicegate_limiter::Span;
use tokio::sync::Notify;

use super::connection::Connection;
use super::dial::SlotRange;
use super::key_name::SLOTS;
use super::store_state::StoreState;
use crate::{Address, Deployment, Settings};

/// The servers of a store.
pub(super) enum Servers {
    /// One server, or the master that the sentinels name.
    One(Rc<Connection>),
    /// The nodes of a cluster.
    Cluster(SlotMap),
}

/// The slots of a cluster.
pub(super) struct SlotMap {
    /// The nodes by address.
    connections: RefCell<HashMap<String, Rc<Connection>>>,
    /// The owner of each slot.
    slots: RefCell<Slots>,
    /// Notified when the map was fetched, or an attempt to fetch it failed.
    pub(super) refreshed: Notify,
    /// Whether there was such an attempt.
    pub(super) was_refreshed: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    owners: Vec<Rc<Connection>>,
    /// For each slot the index of its owner; beyond the owners if there is none.
    of: Vec<u16>,
}

impl Slots {
    /// The index of a node among the owners, to which it is added if it is new.
    fn place_of(&mut self, owner: &Rc<Connection>) -> u16 {
        let known = self.owners.iter().position(|known| Rc::ptr_eq(known, owner));
        let place = known.unwrap_or_else(|| {
            self.owners.push(Rc::clone(owner));
            self.owners.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }
}

impl Servers {
    pub(super) fn new(state: &StoreState, worker: usize, timeout: Span) -> Self {
        match &state.config().servers {
            Deployment::Single(address) => {
                Self::One(new_connection(state, worker, address.to_string(), Some(address.clone()), timeout))
            }
            Deployment::Sentinel { master, .. } => {
                Self::One(new_connection(state, worker, format!("the master {master}"), None, timeout))
            }
            Deployment::Cluster(_) => {
                state.expects(worker, CLUSTER);
                Self::Cluster(SlotMap {
                    connections: RefCell::default(),
                    slots: RefCell::default(),
                    refreshed: Notify::new(),
                    was_refreshed: Cell::new(false),
                })
            }
        }
    }

    /// The server, if there is only one.
    pub(super) fn single(&self) -> Option<&Rc<Connection>> {
        match self {
            Self::One(connection) => Some(connection),
            Self::Cluster(_) => None,
        }
    }

    /// The server that holds a slot, if it is known.
    pub(super) fn owner_of(&self, slot: u16) -> Option<Rc<Connection>> {
        match self {
            Self::One(connection) => Some(Rc::clone(connection)),
            Self::Cluster(map) => map.owner_of(slot),
        }
    }

    /// All servers.
    pub(super) fn all(&self) -> Vec<Rc<Connection>> {
        match self {
            Self::One(connection) => vec![Rc::clone(connection)],
            Self::Cluster(map) => map.connections.borrow().values().cloned().collect(),
        }
    }

    /// The worker does not connect to these servers any more.
    pub(super) fn stop_expecting(&self, state: &StoreState, worker: usize) {
        for connection in self.all() {
            state.no_longer_expects(worker, &connection.name);
        }
        state.no_longer_expects(worker, CLUSTER);
    }
}

/// The name of the slot map in messages about servers.
pub(super) const CLUSTER: &str = "the cluster";

fn new_connection(
    state: &StoreState,
    worker: usize,
    name: String,
    fixed: Option<Address>,
    timeout: Span,
) -> Rc<Connection> {
    state.expects(worker, &name);
    let (clock, watch) = (state.clock(&name), state.watch(&name));
    let connection = Connection::new(name, fixed, clock, watch);
    connection.set_timeout(timeout);
    connection
}

impl SlotMap {
    fn owner_of(&self, slot: u16) -> Option<Rc<Connection>> {
        let slots = self.slots.borrow();
        slots.owners.get(usize::from(*slots.of.get(usize::from(slot))?)).cloned()
    }

    /// The node at an address, and whether it is new.
    pub(super) fn node(
        &self,
        state: &StoreState,
        worker: usize,
        address: &Address,
        timeout: Span,
    ) -> (Rc<Connection>, bool) {
        let name = address.to_string();
        let mut connections = self.connections.borrow_mut();
        if let Some(connection) = connections.get(&name) {
            return (Rc::clone(connection), false);
        }
        let connection = new_connection(state, worker, name.clone(), Some(address.clone()), timeout);
        connections.insert(name, Rc::clone(&connection));
        (connection, true)
    }

    /// Sets the owner of one slot.
    pub(super) fn set_owner(&self, slot: u16, owner: &Rc<Connection>) {
        let mut slots = self.slots.borrow_mut();
        let place = slots.place_of(owner);
        if let Some(of) = slots.of.get_mut(usize::from(slot)) {
            *of = place;
        }
    }

    /// Takes a whole map. Returns the new nodes; nodes without slots are retired.
    pub(super) fn update(
        &self,
        state: &StoreState,
        worker: usize,
        ranges: &[SlotRange],
        timeout: Span,
    ) -> Vec<Rc<Connection>> {
        let mut fresh = Vec::new();
        let mut slots = Slots { owners: Vec::new(), of: vec![u16::MAX; usize::from(SLOTS)] };
        for range in ranges {
            let (connection, new) = self.node(state, worker, &range.owner, timeout);
            if new {
                fresh.push(Rc::clone(&connection));
            }
            let place = slots.place_of(&connection);
            slots.of[usize::from(range.first)..=usize::from(range.last)].fill(place);
        }
        self.connections.borrow_mut().retain(|name, connection| {
            let owns = slots.owners.iter().any(|owner| Rc::ptr_eq(owner, connection));
            if !owns {
                connection.retire();
                state.no_longer_expects(worker, name);
            }
            owns
        });
        *self.slots.borrow_mut() = slots;
        fresh
    }

    /// The first slot from `after` on that a node owns, or the first of all if there is none.
    pub(super) fn slot_of(&self, connection: &Rc<Connection>, after: u16) -> Option<u16> {
        let slots = self.slots.borrow();
        let place = slots.owners.iter().position(|owner| Rc::ptr_eq(owner, connection))?;
        let owned = |of: &u16| usize::from(*of) == place;
        let (before, behind) = slots.of.split_at(usize::from(after).min(slots.of.len()));
        let at = behind.iter().position(owned).map(|at| before.len() + at);
        u16::try_from(at.or_else(|| before.iter().position(owned))?).ok()
    }
}

/// The configured addresses of a cluster.
pub(super) fn seeds(config: &Settings) -> &[Address] {
    match &config.servers {
        Deployment::Cluster(nodes) => nodes,
        _ => &[],
    }
}
