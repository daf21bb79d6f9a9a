//! Which server holds which key: one server, or a cluster whose slots move.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use sluicegate_limiter::Span;
use tokio::sync::Notify;

use super::connection::Link;
use super::dial::SlotRange;
use super::key_name::SLOTS;
use super::store_state::StoreState;
use crate::{Address, Deployment, Settings};

/// The servers of a store.
pub(super) enum Servers {
    /// One server, or whoever the sentinels say is the master.
    One(Rc<Link>),
    /// The nodes of a cluster.
    Cluster(Map),
}

/// The slots of a cluster.
pub(super) struct Map {
    /// The nodes by address.
    links: RefCell<HashMap<String, Rc<Link>>>,
    /// The owner of each slot, by its place among `owners`; nobody's are beyond it.
    slots: RefCell<Slots>,
    /// Told when the map was fetched, or could not be.
    pub(super) looked: Notify,
    /// Whether that was ever tried.
    pub(super) ever: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    owners: Vec<Rc<Link>>,
    of: Vec<u16>,
}

impl Servers {
    pub(super) fn new(state: &StoreState, worker: usize, timeout: Span) -> Self {
        match &state.config().servers {
            Deployment::Single(address) => {
                Self::One(new_link(state, worker, address.to_string(), Some(address.clone()), timeout))
            }
            Deployment::Sentinel { master, .. } => {
                Self::One(new_link(state, worker, format!("the master {master}"), None, timeout))
            }
            Deployment::Cluster(_) => {
                state.expects(worker, CLUSTER);
                Self::Cluster(Map {
                    links: RefCell::default(),
                    slots: RefCell::default(),
                    looked: Notify::new(),
                    ever: Cell::new(false),
                })
            }
        }
    }

    /// The server, if there is only one.
    pub(super) fn only(&self) -> Option<&Rc<Link>> {
        match self {
            Self::One(link) => Some(link),
            Self::Cluster(_) => None,
        }
    }

    /// The server that holds a slot, as far as is known.
    pub(super) fn of(&self, slot: u16) -> Option<Rc<Link>> {
        match self {
            Self::One(link) => Some(Rc::clone(link)),
            Self::Cluster(map) => map.of(slot),
        }
    }

    /// All servers.
    pub(super) fn all(&self) -> Vec<Rc<Link>> {
        match self {
            Self::One(link) => vec![Rc::clone(link)],
            Self::Cluster(map) => map.links.borrow().values().cloned().collect(),
        }
    }

    /// Nobody waits for these servers any more.
    pub(super) fn forget(&self, state: &StoreState, worker: usize) {
        for link in self.all() {
            state.no_longer_expects(worker, &link.name);
        }
        state.no_longer_expects(worker, CLUSTER);
    }
}

/// What the map of a cluster is called where servers are named.
pub(super) const CLUSTER: &str = "the cluster";

fn new_link(
    state: &StoreState,
    worker: usize,
    name: String,
    fixed: Option<Address>,
    timeout: Span,
) -> Rc<Link> {
    state.expects(worker, &name);
    let (clock, watch) = (state.clock(&name), state.watch(&name));
    let link = Link::new(name, fixed, clock, watch);
    link.set_timeout(timeout);
    link
}

impl Map {
    fn of(&self, slot: u16) -> Option<Rc<Link>> {
        let slots = self.slots.borrow();
        slots.owners.get(usize::from(*slots.of.get(usize::from(slot))?)).cloned()
    }

    /// The node at an address; whether it is new.
    pub(super) fn node(
        &self,
        state: &StoreState,
        worker: usize,
        address: &Address,
        timeout: Span,
    ) -> (Rc<Link>, bool) {
        let name = address.to_string();
        let mut links = self.links.borrow_mut();
        if let Some(link) = links.get(&name) {
            return (Rc::clone(link), false);
        }
        let link = new_link(state, worker, name.clone(), Some(address.clone()), timeout);
        links.insert(name, Rc::clone(&link));
        (link, true)
    }

    /// Notes one slot's owner.
    pub(super) fn moved(&self, slot: u16, owner: &Rc<Link>) {
        let mut slots = self.slots.borrow_mut();
        let place = slots.owners.iter().position(|known| Rc::ptr_eq(known, owner));
        let place = place.unwrap_or_else(|| {
            slots.owners.push(Rc::clone(owner));
            slots.owners.len() - 1
        });
        if let (Some(of), Ok(place)) = (slots.of.get_mut(usize::from(slot)), u16::try_from(place)) {
            *of = place;
        }
    }

    /// Takes a whole map: the nodes that are new are returned, those that hold nothing any more are dropped.
    pub(super) fn update(
        &self,
        state: &StoreState,
        worker: usize,
        ranges: &[SlotRange],
        timeout: Span,
    ) -> Vec<Rc<Link>> {
        let mut fresh = Vec::new();
        let mut slots = Slots { owners: Vec::new(), of: vec![u16::MAX; usize::from(SLOTS)] };
        for range in ranges {
            let (link, new) = self.node(state, worker, &range.owner, timeout);
            if new {
                fresh.push(Rc::clone(&link));
            }
            let place = slots.owners.iter().position(|known| Rc::ptr_eq(known, &link)).unwrap_or_else(|| {
                slots.owners.push(link);
                slots.owners.len() - 1
            });
            slots.of[usize::from(range.first)..=usize::from(range.last)]
                .fill(u16::try_from(place).unwrap_or(u16::MAX));
        }
        self.links.borrow_mut().retain(|name, link| {
            let owns = slots.owners.iter().any(|owner| Rc::ptr_eq(owner, link));
            if !owns {
                link.retire();
                state.no_longer_expects(worker, name);
            }
            owns
        });
        *self.slots.borrow_mut() = slots;
        fresh
    }

    /// The slot that a node owns next after `after`, for what is to be written there and nowhere else.
    pub(super) fn slot_of(&self, link: &Rc<Link>, after: u16) -> Option<u16> {
        let slots = self.slots.borrow();
        let place = slots.owners.iter().position(|owner| Rc::ptr_eq(owner, link))?;
        let owned = |of: &u16| usize::from(*of) == place;
        let (before, behind) = slots.of.split_at(usize::from(after).min(slots.of.len()));
        let at = behind.iter().position(owned).map(|at| before.len() + at);
        u16::try_from(at.or_else(|| before.iter().position(owned))?).ok()
    }
}

/// The addresses that the file names.
pub(super) fn seeds(config: &Settings) -> &[Address] {
    match &config.servers {
        Deployment::Cluster(nodes) => nodes,
        _ => &[],
    }
}
