//! What all workers share about the store: whether it is up, which gateways use it, and what is to be reported to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use sluicegate_counters::{CountedLimit, Counters};
use sluicegate_leases::Membership;
use sluicegate_limiter::{Span, Time};
use tokio::sync::watch;

use super::gateway_count;
use super::in_flight::InFlightCosts;
use super::known_topology::Topology;
use super::random::random;
use super::server_clock::ServerClock;
use super::server_watch::ServerWatch;
use super::token_leases::GatewayLeases;
use super::unreported::Unreported;
use crate::Settings;

/// The shortest time after which another reason for the same outage is logged.
const REPEAT_AFTER: Span = Span::from_secs(10);

/// What all workers of a gateway share about its store.
pub struct StoreState {
    /// The settings in force.
    config: ArcSwap<Settings>,
    /// The name of this gateway among those that share the store.
    pub(super) gateway: String,
    /// Notified when a worker has lost its connection, so that the others check theirs.
    pub(super) connection_lost: watch::Sender<()>,
    /// Which server holds which keys.
    pub(super) topology: Topology,
    /// When a disagreement between a script and the core was logged last.
    disagreement_logged: Mutex<Option<Time>>,
    watches: Mutex<HashMap<String, Arc<ServerWatch>>>,
    clocks: Mutex<HashMap<String, Arc<ServerClock>>>,
    health: Mutex<Health>,
    /// Costs that were admitted without the store.
    pub(super) unreported: Unreported,
    /// Costs of calls in flight.
    pub(super) in_flight: Arc<InFlightCosts>,
    /// Tokens that were paid for in advance.
    pub(super) leases: GatewayLeases,
    /// The number of threads that use the store.
    pub(super) stores: AtomicU32,
    /// The number of live gateways, and whether it is known well enough to lease.
    pub(super) membership: Membership,
    /// The counters in which states from the store are kept.
    tracked: Mutex<Vec<Weak<Counters>>>,
    /// Whether these states are to be removed.
    outdated: AtomicBool,
}

/// The missing connections.
#[derive(Default)]
struct Health {
    /// By worker and server: why a connection is missing; `None` before the first attempt has ended.
    missing: BTreeMap<(usize, String), Option<String>>,
    /// Whether the store was ever up.
    ever: bool,
    /// The reason that was logged for the present outage, and when.
    logged: Option<(String, Time)>,
}

/// The state of the store in `/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// Whether every worker reaches it.
    pub up: bool,
    /// The known number of live gateways that share it.
    pub gateways: u32,
    /// Why it is not up.
    pub trouble: Option<String>,
}

impl StoreState {
    /// The state before the first connection.
    pub fn new(config: Settings) -> Self {
        Self {
            membership: Membership::new(gateway_count::read(&config)),
            config: ArcSwap::from_pointee(config),
            gateway: random().iter().map(|byte| format!("{byte:02x}")).collect(),
            connection_lost: watch::Sender::new(()),
            topology: Topology::default(),
            disagreement_logged: Mutex::default(),
            watches: Mutex::default(),
            clocks: Mutex::default(),
            health: Mutex::default(),
            unreported: Unreported::default(),
            in_flight: Arc::default(),
            leases: GatewayLeases::default(),
            stores: AtomicU32::new(0),
            tracked: Mutex::default(),
            outdated: AtomicBool::new(false),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> Arc<Settings> {
        self.config.load_full()
    }

    /// Takes other settings if they lead to the same counters, for example other credentials or another timeout. Returns
    /// whether they do.
    pub fn can_keep(&self, config: &Settings) -> bool {
        let now = self.config();
        let same = now.servers == config.servers
            && now.database == config.database
            && now.prefix == config.prefix
            && now.tls.is_some() == config.tls.is_some();
        if same && *now != *config {
            self.config.store(Arc::new(config.clone()));
        }
        same
    }

    /// The number of this gateway, which no other has.
    pub fn number(&self) -> u64 {
        let digits = self.gateway.get(..16).unwrap_or_default();
        u64::from_str_radix(digits, 16).unwrap_or_default()
    }

    /// The number of live gateways as the store returned it last, but not less than the configured one.
    pub fn gateways(&self) -> u32 {
        self.membership.gateways().max(self.config.load().gateways)
    }

    /// Notes an announcement, with the number of live gateways that the store returned and when it was sent; `None` if the store
    /// did not answer. A new number is written to a file for the next start, which blocks, so a worker must not call it.
    pub(super) fn count_gateways(&self, counted: Option<(u32, Time)>, now: Time) {
        let changed = match counted {
            Some((gateways, sent)) => self.membership.answered(sent, now, gateways),
            None => self.membership.unanswered(),
        };
        let Some(gateways) = changed else { return };
        let config = self.config();
        if let Err(error) = gateway_count::write(&config, gateways) {
            let path = gateway_count::path(&config);
            tracing::debug!("cannot keep the number of gateways in {}: {error}", path.display());
        }
    }

    /// Takes the limits whose counters keep states from the store.
    pub fn track<'a>(&self, limits: impl Iterator<Item = &'a Arc<CountedLimit>>) {
        *locked(&self.tracked) = limits.map(|limit| Arc::downgrade(&limit.counters)).collect();
    }

    /// Records that the clock of a server showed `server` between `sent` and `received`.
    ///
    /// If it was set back, earlier states from the store are invalid: a refusal would be remembered for too long. They are
    /// removed as soon as everything that was admitted without the store has been reported.
    pub(super) fn observe_clock(&self, clock: &ServerClock, server: Time, sent: Time, received: Time) {
        if clock.observe(server, sent, received) {
            self.outdated.store(true, Ordering::Relaxed);
        }
        let forget = self.outdated.load(Ordering::Relaxed) && !self.unreported.any();
        if forget && self.outdated.swap(false, Ordering::Relaxed) {
            locked(&self.tracked).iter().filter_map(Weak::upgrade).for_each(|counters| counters.forget());
        }
    }

    /// The clock of a server.
    pub(super) fn clock(&self, server: &str) -> Arc<ServerClock> {
        Arc::clone(locked(&self.clocks).entry(server.to_owned()).or_default())
    }

    /// The earliest time that any server's clock can show when ours shows `now`.
    pub fn clocks_at(&self, now: Time) -> Time {
        locked(&self.clocks).values().map(|clock| clock.earliest(now)).min().unwrap_or(now)
    }

    /// What all workers share about a server.
    pub(super) fn watch(&self, server: &str) -> Arc<ServerWatch> {
        Arc::clone(locked(&self.watches).entry(server.to_owned()).or_default())
    }

    /// A worker will connect to a server.
    pub(super) fn expects(&self, worker: usize, server: &str) {
        locked(&self.health).missing.insert((worker, server.to_owned()), None);
    }

    /// A worker no longer connects to a server.
    pub(super) fn no_longer_expects(&self, worker: usize, server: &str) {
        locked(&self.health).missing.remove(&(worker, server.to_owned()));
    }

    /// A worker has its connection.
    pub(super) fn reached(&self, worker: usize, server: &str) {
        let mut health = locked(&self.health);
        health.missing.remove(&(worker, server.to_owned()));
        if health.missing.is_empty() && (health.logged.is_some() || !health.ever) {
            health.ever = true;
            health.logged = None;
            match self.config().is_home {
                false => tracing::info!("the store is up: limits are shared and exact"),
                true => tracing::info!("the home store is up: regions lend each other what they do not need"),
            }
        }
    }

    /// A worker has lost its connection, or cannot open one. An outage is logged once, and another reason for it after
    /// [`REPEAT_AFTER`].
    pub(super) fn lost(&self, worker: usize, server: &str, why: &str, now: Time) {
        let mut health = locked(&self.health);
        health.missing.insert((worker, server.to_owned()), Some(why.to_owned()));
        let reason = format!("{server}: {why}");
        let (store, meanwhile) = match self.config().is_home {
            false => ("store", "each limit follows its on_store_failure"),
            true => ("home store", "this region enforces its floor of each limit"),
        };
        match &health.logged {
            None => tracing::error!("the {store} is down ({reason}): {meanwhile} until it is back"),
            Some((before, at)) if *before != reason && now.since(*at) >= REPEAT_AFTER => {
                tracing::error!("the {store} is still down ({reason})");
            }
            Some(_) => return,
        }
        health.logged = Some((reason, now));
    }

    /// Logs that a script admitted another number of requests than the core does from the same state, at most once in
    /// [`REPEAT_AFTER`].
    pub(super) fn log_disagreement(&self, (script, core): (usize, usize), now: Time) {
        let mut logged = locked(&self.disagreement_logged);
        if logged.is_none_or(|logged| now.since(logged) >= REPEAT_AFTER) {
            *logged = Some(now);
            tracing::error!(
                "the store admitted {script} requests where its state admits {core}: the smaller number passed. Is \
                 something else writing the keys or the scripts? Please report it; \
                 sluicegate_store_disagreements_total counts them"
            );
        }
    }

    /// The state in `/status`.
    pub fn status(&self) -> StoreStatus {
        let health = locked(&self.health);
        let trouble =
            health.missing.iter().find_map(|((_, server), why)| Some(format!("{server}: {}", why.as_ref()?)));
        StoreStatus { up: health.ever && health.missing.is_empty(), gateways: self.gateways(), trouble }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
