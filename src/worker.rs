//! A worker: one thread with its own runtime, its own sockets and its own upstream connections. Nothing on the
//! path of a request crosses threads.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use sluicegate_limiter::{Standing, Time};
use tokio::sync::mpsc;

use crate::access_log::{AccessLog, Sink};
use crate::clock::Clock;
use crate::config::ClientConfig;
use crate::critical_task::CriticalTasks;
use crate::limit::{self, Ask, Decision, Store, StoreState};
use crate::message::RequestId;
use crate::metrics::{LimitMetrics, Metrics, Outcome, RouteMetrics};
use crate::request::verdict::{AskedLimit, Found, Judged, Spared};
use crate::server::{Budget, Buffers, Deadlines, Handshakes, Listener, Opened};
use crate::snapshot::Snapshot;
use crate::upstream::Upstream;

/// What all threads of the gateway share.
pub struct Shared {
    /// The configuration in force.
    pub snapshot: ArcSwap<Snapshot>,
    /// Its generation, cheaper to look at than the snapshot.
    pub generation: AtomicU64,
    /// Whether the gateway is going down.
    pub draining: AtomicBool,
    /// What is counted.
    pub metrics: Metrics,
    /// The clock.
    pub clock: Clock,
    /// How many connections of clients there may be.
    pub budget: Budget,
    /// What writes the access log, if there is one.
    pub access_log: ArcSwapOption<Sink>,
    /// What /status tells.
    pub status: Mutex<Status>,
}

/// How the configuration came to be in force.
#[derive(Debug, Default)]
pub struct Status {
    /// The file.
    pub file: String,
    /// When it was loaded (RFC 3339).
    pub loaded_at: String,
    /// The report on the last file, if that one was refused.
    pub last_error: Option<String>,
    /// What is wrong with files beside it, of consumers or addresses, that were refused.
    pub file_errors: BTreeMap<String, String>,
}

impl Shared {
    /// A worker's way to the store: the one that it has, if that leads there.
    pub fn store(&self, state: &Arc<StoreState>, worker: usize, before: Option<&Rc<Store>>) -> Rc<Store> {
        match before.filter(|before| Arc::ptr_eq(before.state(), state)) {
            Some(same) => {
                same.follow_config();
                Rc::clone(same)
            }
            None => Store::new(Arc::clone(state), self.clock.for_store(), worker, self.metrics.store(worker)),
        }
    }
}

/// What the thread that wires the gateway tells a worker.
pub enum Command {
    /// Serve on these sockets from now on.
    Open(Vec<Opened>),
    /// Stop serving on the listener of this id, and end its connections when they are idle.
    Close(String),
    /// Hand over the lines of the access log; the sender is dropped when that is done.
    HandOver(mpsc::Sender<()>),
    /// Stop accepting, and end all connections when they are idle.
    Drain(Draining),
}

/// How all listeners are closed.
#[derive(Clone)]
pub struct Draining {
    /// The ids of the listeners whose sockets others have too, who take in whoever waits there.
    pub left: Arc<[String]>,
    /// How long a connection may be idle before it is closed.
    pub grace: Duration,
    /// Dropped when all connections have been told.
    pub done: mpsc::Sender<()>,
}

/// How long a connection of a removed listener may be idle before it is closed. Nobody waits for it, and a client
/// that comes back within this time is told instead of cut off.
const UNHURRIED: Duration = Duration::from_secs(2);

/// One serving thread.
pub struct Worker {
    shared: Arc<Shared>,
    view: RefCell<Rc<View>>,
    /// How long clients may take, of the configuration in force.
    client: Cell<ClientConfig>,
    /// Coarse deadlines of all connections.
    pub deadlines: Deadlines,
    /// Memory that connections read into and write from.
    pub buffers: Buffers,
    pub(crate) listeners: RefCell<Vec<Rc<Listener>>>,
    ids: Cell<u64>,
    groups: Cell<u64>,
    /// Handshakes of TLS that are not finished.
    pub(crate) handshakes: Handshakes,
    /// Tells the workers apart.
    pub(crate) index: usize,
    pub(crate) critical: CriticalTasks,
}

/// A snapshot as one worker sees it: with its own counters and its own upstream connections.
pub struct View {
    /// The configuration in force.
    pub snapshot: Arc<Snapshot>,
    routes: Vec<Arc<RouteMetrics>>,
    /// Requests that no route matched.
    unrouted: Arc<RouteMetrics>,
    limits: Vec<Arc<LimitMetrics>>,
    upstreams: Vec<Rc<Upstream>>,
    store: Option<Rc<Store>>,
    /// Where a line of each request goes.
    pub access_log: Option<AccessLog>,
}

impl Worker {
    /// A worker that serves nothing yet.
    pub fn new(shared: Arc<Shared>, index: usize, critical: CriticalTasks) -> Rc<Self> {
        let snapshot = shared.snapshot.load_full();
        let view = View::new(snapshot, &shared, index, None);
        let seed = shared.clock.now().as_nanos() ^ ((index as u64) << 48);
        Rc::new(Self {
            client: Cell::new(view.snapshot.config.client),
            view: RefCell::new(Rc::new(view)),
            deadlines: Deadlines::new(),
            buffers: Buffers::new(shared.clock.wall()),
            listeners: RefCell::new(Vec::new()),
            ids: Cell::new(seed),
            groups: Cell::new(0),
            handshakes: Handshakes::default(),
            index,
            critical,
            shared,
        })
    }

    /// Carries out commands until the channel closes.
    pub async fn run(self: Rc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        tokio::task::spawn_local(Rc::clone(&self).tick());
        while let Some(command) = commands.recv().await {
            match command {
                Command::Open(sockets) => {
                    for socket in sockets {
                        self.open(socket);
                    }
                }
                Command::HandOver(done) => {
                    self.hand_over();
                    drop(done);
                }
                Command::Close(id) => self.close(|listener| listener.id == id, &[], UNHURRIED, None),
                Command::Drain(Draining { left, grace, done }) => {
                    self.close(|_| true, &left, grace, Some(done));
                }
            }
        }
    }

    /// Sweeps deadlines and idle upstream connections.
    async fn tick(self: Rc<Self>) {
        let _guard = self.critical.guard("keeps deadlines");
        let mut tick = tokio::time::interval(Deadlines::TICK);
        for turn in 0_u64.. {
            tick.tick().await;
            self.deadlines.sweep(self.shared.clock.uptime());
            self.buffers.set_date(self.shared.clock.wall());
            self.hand_over();
            if turn % 10 == 0 {
                self.view(); // drops what an old configuration held, also without requests
                for upstream in &self.view.borrow().upstreams {
                    upstream.reap(self.deadlines.now());
                }
            }
        }
    }

    /// Hands over what waits to be logged.
    fn hand_over(&self) {
        if let Some(log) = &self.view.borrow().access_log {
            log.flush();
        }
    }

    /// The configuration in force, with what this worker resolved of it.
    pub fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        if self.shared.generation.load(Ordering::Acquire) != view.snapshot.generation {
            let snapshot = self.shared.snapshot.load_full();
            for listener in self.listeners.borrow().iter() {
                listener.find_in(&snapshot, &self.shared.metrics, self.index);
            }
            self.client.set(snapshot.config.client);
            *view = Rc::new(View::new(snapshot, &self.shared, self.index, Some(&view)));
        }
        Rc::clone(&view)
    }

    /// A number for the connections of a listener, never given twice.
    pub(crate) fn next_group(&self) -> u64 {
        self.groups.set(self.groups.get() + 1);
        self.groups.get()
    }

    /// How long clients may take, and how much they may send.
    pub(crate) fn client(&self) -> ClientConfig {
        self.client.get()
    }

    /// What all threads share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// An id for a request: unique in practice (SplitMix64 of the time of the start), and no secret.
    pub fn request_id(&self) -> RequestId {
        RequestId::of(self.number())
    }

    /// A number that no other request has in practice, and no secret.
    pub(crate) fn number(&self) -> u64 {
        let id = self.ids.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.ids.set(id);
        let mut mixed = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl View {
    fn new(snapshot: Arc<Snapshot>, shared: &Shared, worker: usize, before: Option<&View>) -> Self {
        let metrics = &shared.metrics;
        let routes = snapshot.routes.iter().map(|route| metrics.route(&route.name, worker));
        let limits = snapshot.limits.iter().map(|limit| metrics.limit(&limit.config.name, worker));
        let standing = before.map(|before| &before.upstreams[..]).unwrap_or_default();
        let standing: HashMap<&str, &Rc<Upstream>> =
            standing.iter().map(|old| (old.config().name.as_str(), old)).collect();
        let upstreams = snapshot.upstreams.iter().map(|state| {
            let name = &state.config.name;
            let old = standing.get(name.as_str()).copied();
            if let Some(same) = old.filter(|old| Arc::ptr_eq(old.state(), state)) {
                return Rc::clone(same);
            }
            let seed = shared.clock.now().as_nanos() ^ worker as u64;
            Rc::new(Upstream::new(state, metrics.upstream(name, worker), seed, old.map(Rc::as_ref)))
        });
        let log_before = before.and_then(|before| before.access_log.as_ref());
        let log = snapshot.config.access_log.clone().zip(shared.access_log.load_full());
        let access_log = log.map(|(config, sink)| AccessLog::new(config, sink, log_before));
        let before = before.and_then(|before| before.store.as_ref());
        let store = snapshot.store.as_ref().map(|state| shared.store(state, worker, before));
        if let Some(before) =
            before.filter(|before| !store.as_ref().is_some_and(|store| Rc::ptr_eq(store, before)))
        {
            before.close();
        }
        Self {
            store,
            access_log,
            routes: routes.collect(),
            unrouted: metrics.route("", worker),
            limits: limits.collect(),
            upstreams: upstreams.collect(),
            snapshot,
        }
    }

    /// The counters of a route, or of requests without one.
    pub fn route_metrics(&self, route: Option<usize>) -> &RouteMetrics {
        route.map_or(&self.unrouted, |index| &self.routes[index])
    }

    /// An upstream of the configuration.
    pub fn upstream(&self, index: usize) -> &Rc<Upstream> {
        &self.upstreams[index]
    }

    /// The store that decides on a request; `None` if all its limits are counted here.
    pub fn store_of(&self, found: &Found<'_>) -> Option<&Rc<Store>> {
        self.store.as_ref().filter(|_| found.asks.iter().any(|ask| ask.limit.shared.is_some()))
    }

    /// Whether a limit that is asked this may refuse it, as far as that is known without asking: nothing is charged.
    pub fn may_refuse(&self, asks: &[Ask<'_>], now: Time) -> bool {
        let store = self.store.as_ref().filter(|_| asks.iter().any(|ask| ask.limit.shared.is_some()));
        store.map_or_else(|| limit::may_refuse(asks), |store| limit::shared::may_refuse(store, asks, now))
    }

    /// What is left of each enforced limit of a request, which spends nothing.
    pub async fn usage<'s>(&self, found: &Found<'s>) -> Vec<(AskedLimit<'s>, Standing)> {
        let mut usage = Vec::new();
        for (asked, ask) in found.asked.iter().zip(&found.asks).filter(|(asked, _)| asked.limit.enforces()) {
            let told = match self.store.as_ref().filter(|_| ask.limit.shared.is_some()) {
                Some(store) => store.peek(ask.limit, ask.key, &ask.text, store.timeout()).await,
                None => None,
            };
            let here = || ask.limit.counters.standing(ask.key, ask.now);
            let banned_for = match told {
                Some(told) => told.banned_for,
                None => ask.limit.banned_for(ask.key, ask.now),
            };
            let standing = told.map(|told| told.standing).or_else(here);
            let standing = standing.unwrap_or_else(|| ask.limit.counters.fresh(ask.now));
            usage.push((*asked, banned_for.map_or(standing, |left| limit::while_banned(standing, left))));
        }
        usage
    }

    /// Counts what the limits of a request said.
    pub fn observe(&self, judged: &Judged<'_>) {
        let Decision { verdicts, admitted, fallen_back, unavailable, .. } = &judged.decision;
        if *fallen_back {
            for asked in judged.asked.iter().filter(|asked| asked.limit.config.shared && !asked.candidate) {
                self.limits[asked.index].fell_back(asked.limit.config.on_store_failure);
            }
        }
        if *unavailable {
            return; // no limit said anything
        }
        for (asked, verdict) in judged.asked.iter().zip(verdicts) {
            let stripe = &self.limits[asked.index];
            stripe.count(match (verdict.answer, asked.limit.enforces()) {
                (Err(_), _) if asked.candidate => Outcome::CandidateRefused,
                (Ok(_), _) if asked.candidate => continue, // the limit itself is counted
                (Err(_), true) => Outcome::Refused,
                (Err(_), false) => Outcome::ShadowRefused,
                // Admitted by this limit but refused by another: nothing was taken, nothing is counted.
                (Ok(_), _) if !admitted => continue,
                (Ok(delay), enforces) => {
                    if enforces {
                        stripe.delay(delay);
                    }
                    Outcome::Admitted
                }
            });
        }
        for (index, spared) in &judged.spared {
            let outcome = match spared {
                Spared::Exempt => Outcome::Exempt,
                Spared::Skipped => Outcome::Skipped,
                Spared::Elsewhere => continue, // it is none of its requests
            };
            self.limits[*index].count(outcome);
        }
    }
}
