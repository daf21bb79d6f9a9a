//! One thread's access to the shared counters.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_counters::{Ask, CallsInFlight, Decision};
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;
use tokio::task::{AbortHandle, JoinHandle};

use super::batches::Batches;
use super::cluster::Servers;
use super::connection::Connection;
use super::held_places::Leases;
use super::item::{FinalCharge, Item, Items};
use super::key_name::Tag;
use super::metrics::CallMetrics;
use super::store_state::StoreState;
use super::token_leases::WorkerLeases;
use crate::Clock;

/// One worker's access to the shared counters.
pub struct Store {
    pub(super) state: Arc<StoreState>,
    pub(super) clock: Clock,
    /// The number of the worker.
    pub(super) worker: usize,
    pub(super) metrics: Arc<dyn CallMetrics>,
    pub(super) servers: Servers,
    pub(super) batches: Batches<Delivery>,
    pub(super) leases: Leases,
    pub(super) worker_leases: RefCell<WorkerLeases>,
    /// The longest that a request waits for a decision.
    pub(super) timeout: Cell<Span>,
    /// The tasks that end with the store.
    tasks: RefCell<Vec<AbortHandle>>,
    /// The number of pardons by limit, as the store returned it last.
    pub(super) pardons: RefCell<Option<HashMap<String, i64>>>,
}

/// The known state of a server at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ServerView {
    /// The earliest time that its clock can show.
    pub earliest: Time,
    /// The latest time that its clock can show.
    pub latest: Time,
    /// Whether it can be called.
    pub is_up: bool,
}

impl Store {
    /// Begins to connect. `metrics` counts the calls.
    ///
    /// # Panics
    /// Outside of a tokio `LocalSet`.
    pub fn new(
        state: Arc<StoreState>,
        clock: Clock,
        worker: usize,
        metrics: Arc<dyn CallMetrics>,
    ) -> Rc<Self> {
        let timeout = state.config().timeout.into();
        let servers = Servers::new(&state, worker, timeout);
        let store = Rc::new(Self {
            state,
            clock,
            worker,
            metrics,
            servers,
            batches: Batches::default(),
            leases: Leases::default(),
            worker_leases: RefCell::default(),
            timeout: Cell::new(timeout),
            tasks: RefCell::default(),
            pardons: RefCell::default(),
        });
        store.state.stores.fetch_add(1, Ordering::Relaxed);
        store.begin();
        store
    }

    /// The longest that a request waits for the store.
    pub fn timeout(&self) -> Span {
        self.timeout.get()
    }

    /// The longest that a call takes for which no request waits.
    pub(super) fn background_timeout(&self) -> Span {
        self.timeout().max(Span::SECOND)
    }

    /// What all workers share about the store.
    pub fn state(&self) -> &Arc<StoreState> {
        &self.state
    }

    /// Takes the settings in force; credentials are used for the next connection.
    pub fn follow_config(&self) {
        self.timeout.set(self.state.config().timeout.into());
        self.servers.all().iter().for_each(|connection| connection.set_timeout(self.timeout()));
    }

    /// Closes the connections; calls in flight are completed.
    pub fn close(&self) {
        for task in self.tasks.take() {
            task.abort();
        }
        self.servers.stop_expecting(&self.state, self.worker);
    }

    /// Decides about the shared limits of a request within the configured timeout, which counts from `since`; `None` if the
    /// store cannot decide in time.
    pub async fn decide<'a>(
        self: &Rc<Self>,
        asks: impl Iterator<Item = &'a Ask<'a>>,
        since: Time,
    ) -> Option<Decision> {
        let items: Items = asks.map(Item::of).collect();
        self.submit(items, since).await
    }

    /// The time on the clock of this process.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The server that counts a key, at `now`; `None` while it is not known.
    pub fn server_of(&self, ask: &Ask<'_>, now: Time) -> Option<ServerView> {
        let connection = self.connection_of(ask)?;
        let (earliest, latest) = (connection.clock.earliest(now), connection.clock.latest(now));
        Some(ServerView { earliest, latest, is_up: connection.is_up() })
    }

    /// Changes an ask to one that is decided without the store: on the store's clock, with each request counting once for
    /// every live gateway, and with the costs that the store may still admit.
    pub fn divide(&self, ask: &mut Ask<'_>, now: Time) {
        ask.at = self.server_of(ask, now).map_or(now, |server| server.earliest);
        ask.share = u16::try_from(self.state.gateways()).unwrap_or(u16::MAX);
        let calls: Arc<dyn CallsInFlight> = Arc::clone(&self.state.in_flight) as _;
        ask.calls = Some(calls);
    }

    /// Counts a request that was refused without a call.
    pub fn count_remembered(&self) {
        self.metrics.remembered();
    }

    /// The connection to the server that holds the ask's counter.
    pub(super) fn connection_of(&self, ask: &Ask<'_>) -> Option<Rc<Connection>> {
        match self.servers.single() {
            Some(connection) => Some(Rc::clone(connection)),
            None => self.servers.owner_of(Tag::of(&ask.text).slot()),
        }
    }

    /// The connection to the server that holds a tag.
    pub(super) fn connection_of_tag(&self, tag: Tag) -> Option<Rc<Connection>> {
        self.servers.owner_of(self.slot(tag))
    }

    /// The slot of a tag; 0 if there is no cluster.
    pub(super) fn slot(&self, tag: Tag) -> u16 {
        if self.servers.single().is_some() { 0 } else { tag.slot() }
    }

    pub(super) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let task = spawn_local(task).abort_handle();
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.state.stores.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A decision that no request has taken yet. If its client has left, dropping it gives back what the store has charged.
pub(super) struct Delivery {
    decision: Option<Decision>,
    charges: SmallVec<[FinalCharge; 2]>,
    items: Rc<Items>,
    store: Rc<Store>,
}

impl Delivery {
    pub(super) fn new(
        store: &Rc<Store>,
        items: &Rc<Items>,
        decision: Decision,
        charges: SmallVec<[FinalCharge; 2]>,
    ) -> Self {
        Self { decision: Some(decision), charges, items: Rc::clone(items), store: Rc::clone(store) }
    }

    /// The request takes its decision.
    pub(super) fn take(mut self) -> Option<Decision> {
        self.decision.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(mut decision) = self.decision.take() else { return };
        decision.holds.undo(self.store.clock.now());
        for (item, receipt, holder) in self.charges.drain(..) {
            let item = &self.items[item];
            self.store.refund(&item.key, item.cost, (receipt, holder));
        }
    }
}

/// Spawns a task on this thread. Tokio compiles its task code anew for each type of future, and boxes large ones anyway:
/// behind a pointer all of them share one copy.
pub(super) fn spawn_local(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
    tokio::task::spawn_local(future)
}
