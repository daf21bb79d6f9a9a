//! Counters that several gateways share, in Redis.
//!
//! A [`Store`] is one worker's way to them. A decision is one call of one script for all limits of a request
//! (`flight`), made on the server's own clock. The script tells the state that it found; what clients are told is
//! computed here from that state, by the same code that answers for local counters (`remote`). What the store told
//! last is kept in the limits' own tables: a refusal is remembered there until the moment that it named, and an
//! outage starts from there (`fallback`).

mod call;
mod census;
mod check;
mod cluster;
mod connect;
mod failures;
mod fallback;
mod flight;
mod keeper;
mod lease;
mod link;
mod name;
mod outcome;
mod outstanding;
mod places;
mod redirect;
mod remote;
mod script;
mod scripts;
mod sentinel;
mod server_clock;
mod state;
mod tend;
#[cfg(all(test, not(feature = "model")))]
mod tests;
mod topology;
mod under_way;
mod watch;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_limiter::{Refusal, Span, Time};
use smallvec::SmallVec;
use tokio::task::AbortHandle;

use self::call::Items;
pub(super) use self::call::{Item, NOBODY};
pub use self::check::try_store;
use self::cluster::Servers;
use self::flight::Flights;
pub use self::keeper::Peeked;
pub(super) use self::lease::Lease;
use self::lease::Leases;
use self::link::Link;
pub(super) use self::name::Tag;
pub(super) use self::remote::RemoteKey;
pub use self::state::{StoreState, StoreStatus};
pub use self::wire::can_be_shared;
pub(super) use self::wire::limit_argument;
use super::{Ask, Decision, Holds, Verdict, decide_here, refuse_here};
use crate::clock::Clock;
use crate::config::OnStoreFailure;
use crate::metrics::StoreMetrics;

/// One worker's way to the shared counters.
pub struct Store {
    state: Arc<StoreState>,
    clock: Clock,
    /// Tells the workers apart.
    worker: usize,
    metrics: Arc<StoreMetrics>,
    servers: Servers,
    flights: Flights,
    leases: Leases,
    /// The longest that a request waits for a decision.
    timeout: Cell<Span>,
    /// What ends with the store.
    tasks: RefCell<Vec<AbortHandle>>,
    /// How often each limit had a key pardoned, as last heard.
    pardons: RefCell<Option<HashMap<String, i64>>>,
}

impl Store {
    /// A store that begins to connect. Call it inside a `LocalSet`.
    pub fn new(state: Arc<StoreState>, clock: Clock, worker: usize, metrics: Arc<StoreMetrics>) -> Rc<Self> {
        let timeout = timeout(&state);
        let servers = Servers::new(&state, worker, timeout);
        let store = Rc::new(Self {
            state,
            clock,
            worker,
            metrics,
            servers,
            flights: Flights::default(),
            leases: Leases::default(),
            timeout: Cell::new(timeout),
            tasks: RefCell::default(),
            pardons: RefCell::default(),
        });
        store.begin();
        store
    }

    /// The longest that a request waits for the store.
    pub fn timeout(&self) -> Span {
        self.timeout.get()
    }

    /// What the gateway's threads share of it.
    pub fn state(&self) -> &Arc<StoreState> {
        &self.state
    }

    /// Takes what the file says now; credentials are used for the next connection.
    pub fn follow_config(&self) {
        self.timeout.set(timeout(&self.state));
        self.servers.all().iter().for_each(|link| link.set_timeout(self.timeout()));
    }

    /// Ends the store's connections; calls under way come to their end.
    pub fn close(&self) {
        for task in self.tasks.take() {
            task.abort();
        }
        self.servers.forget(&self.state, self.worker);
    }

    /// Decides a request at `now`, of whose limits some are shared. Takes no longer than the configured timeout, and
    /// never fails: without the store each limit follows its policy for that.
    pub async fn decide(self: &Rc<Self>, mut asks: SmallVec<[Ask<'_>; 2]>, now: Time) -> Decision {
        if let Some(refusal) = self.remembered(&mut asks, now) {
            self.metrics.remembered();
            return refusal;
        }
        let mixed = asks.iter().any(|ask| !ask.limit.config.shared);
        let reserved = mixed.then(|| self.reserve(&asks));
        if let Some(refusal) = reserved.as_ref().filter(|local| !local.admitted) {
            let verdicts = refusal.verdicts.clone();
            return together(&asks, Decision { verdicts, ..Decision::default() }, self.unasked(&asks));
        }
        let for_now = asks.iter().any(|ask| ask.for_now);
        let items: Items = asks.iter().filter(|ask| ask.limit.config.shared).map(Item::of).collect();
        match self.ride(items, now).await {
            Some(decision) => match reserved {
                Some(reserved) => self.with_reserved(&asks, reserved, decision, for_now),
                None => decision,
            },
            None => {
                if let Some(mut reserved) = reserved {
                    reserved.holds.undo(self.clock.now());
                }
                self.fall_back(&mut asks, now)
            }
        }
    }

    /// The refusal, if one of the limits is known to refuse until some moment that is not there yet. Nobody but this
    /// gateway's own clock was asked, and it is exact: others can only have spent more. A ban holds even while the store
    /// is away.
    fn remembered(&self, asks: &mut [Ask<'_>], now: Time) -> Option<Decision> {
        let banned = self.banned(asks, now);
        let mut refuses = banned;
        for ask in asks.iter_mut().filter(|ask| ask.limit.config.shared) {
            if banned {
                ask.at = self.link_of(ask).map_or(now, |link| link.clock.at_least(now));
                continue;
            }
            if ask.limit.counts_refusals() {
                return None; // the store must hear of every request
            }
            let link = self.link_of(ask).filter(|link| link.is_up())?;
            let clock = &link.clock;
            ask.at = clock.at_least(now);
            let refusal = ask.limit.counters.refusal(ask.key, clock.at_most(now), ask.cost);
            refuses |= ask.limit.enforces()
                && match refusal {
                    None => false,
                    Some(Refusal::Never) => true,
                    // Nothing of this limit lasts so long: the store's clock was set back.
                    Some(Refusal::Until(wait)) if ask.limit.longest.is_some_and(|longest| wait > longest) => {
                        false
                    }
                    Some(_) => ask.limit.remembers(),
                };
        }
        let refusal = refuses.then(|| refuse_here(asks))?;
        let told = |(ask, verdict): (&Ask<'_>, &Verdict)| ask.limit.enforces() && verdict.answer.is_err();
        // A table that has just learned better no longer refuses.
        asks.iter().zip(&refusal.verdicts).any(told).then_some(refusal)
    }

    /// Whether a limit may refuse, by what is known here: the store is not asked, and nothing is charged. Others may have
    /// given back since; so who has to know asks.
    pub fn may_refuse(&self, asks: &[Ask<'_>], now: Time) -> bool {
        asks.iter().filter(|ask| ask.limit.enforces()).any(|ask| {
            if !ask.limit.config.shared {
                return ask.limit.refuses_at(ask, now, ask.cost);
            }
            let link = self.link_of(ask);
            let at = link.as_ref().map_or(now, |link| link.clock.at_most(now));
            if link.is_some_and(|link| link.is_up()) {
                return ask.limit.refuses_at(ask, at, ask.cost);
            }
            let cost = ask.cost.saturating_mul(u64::from(self.state.gateways()));
            ask.limit.config.on_store_failure == OnStoreFailure::Closed || ask.limit.refuses_at(ask, at, cost)
        })
    }

    /// Whether the request is refused by a ban that this gateway knows of, with the store or without it.
    fn banned(&self, asks: &[Ask<'_>], now: Time) -> bool {
        asks.iter().any(|ask| ask.limit.enforces() && ask.limit.banned_for(ask.key, now).is_some())
    }

    /// The connection to the server that holds the ask's counter.
    fn link_of(&self, ask: &Ask<'_>) -> Option<Rc<Link>> {
        match self.servers.only() {
            Some(link) => Some(Rc::clone(link)),
            None => self.servers.of(Tag::of(&ask.text).slot()),
        }
    }

    /// Charges the limits that are counted here, until the store has decided about the others.
    fn reserve(&self, asks: &[Ask<'_>]) -> Decision {
        let local = asks.iter().filter(|ask| !ask.limit.config.shared).cloned();
        decide_here(&local.collect::<SmallVec<[Ask<'_>; 2]>>(), true, true)
    }

    /// What is said of shared limits that were not asked, because one that is counted here refuses.
    fn unasked(&self, asks: &[Ask<'_>]) -> Decision {
        let shared = asks.iter().filter(|ask| ask.limit.config.shared);
        Decision { admitted: true, verdicts: shared.map(Verdict::unasked).collect(), ..Decision::default() }
    }

    /// The decision of all limits, now that the store has decided about its own.
    fn with_reserved(
        &self,
        asks: &[Ask<'_>],
        mut local: Decision,
        shared: Decision,
        for_now: bool,
    ) -> Decision {
        match shared.admitted {
            true if for_now => {}
            true => local.holds.keep(),
            false => local.holds.undo(self.clock.now()),
        }
        together(asks, local, shared)
    }

    /// The slot of a tag, where slots matter.
    fn slot(&self, tag: Tag) -> u16 {
        if self.servers.only().is_some() { 0 } else { tag.slot() }
    }

    fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let task = tokio::task::spawn_local(task).abort_handle();
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }
}

/// The longest that a request waits, as the file says.
fn timeout(state: &StoreState) -> Span {
    Span::from_nanos(u64::try_from(state.config().timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// The verdicts of both in the order of `asks`.
fn together(asks: &[Ask<'_>], local: Decision, shared: Decision) -> Decision {
    let (mut here, mut there) = (local.verdicts.into_iter(), shared.verdicts.into_iter());
    let verdicts =
        asks.iter().filter_map(|ask| if ask.limit.config.shared { there.next() } else { here.next() });
    let verdicts = verdicts.collect();
    let admitted = local.admitted && shared.admitted;
    let delay = if admitted { local.delay.max(shared.delay) } else { Span::ZERO };
    let mut holds: Holds = local.holds;
    holds.append(shared.holds);
    Decision { verdicts, admitted, delay, holds, fallen_back: false, unavailable: false }
}
