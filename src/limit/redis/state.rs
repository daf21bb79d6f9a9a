//! What the gateway's threads share about the store: whether it is there, who else uses it, what an outage cost.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sluicegate_limiter::{Span, Time};
use tokio::sync::watch;

use super::link::random;
use super::name::Tag;
use super::server_clock::ServerClock;
use super::topology::Topology;
use super::watch::Watch;
use crate::config::RedisConfig;
use crate::key::Fingerprint;
use crate::limit::Limit;

/// The least time after which people are told another reason for the same outage.
const RETELL: Span = Span::from_secs(10);
/// Keys whose spending during an outage is remembered; that of further ones is not written back.
const MAX_OUTSTANDING: usize = 100_000;

/// What all threads of a gateway share about its store.
pub struct StoreState {
    /// What the file says of it.
    config: ArcSwap<RedisConfig>,
    /// This gateway's name among those that share it.
    pub(super) gateway: String,
    /// Told when a worker has lost its connection, so that the others look at theirs.
    pub(super) alarm: watch::Sender<()>,
    /// Live gateways, this one among them, as of the last word from the store.
    gateways: AtomicU32,
    /// Which server holds what.
    pub(super) topology: Topology,
    /// When people were last told that a script and the core do not agree.
    disagreement_told: Mutex<Option<Time>>,
    watches: Mutex<HashMap<String, Arc<Watch>>>,
    clocks: Mutex<HashMap<String, Arc<ServerClock>>>,
    health: Mutex<Health>,
    outstanding: Mutex<HashMap<(u64, Fingerprint), Outstanding>>,
    /// How many those are, to look at without a lock.
    owing: AtomicUsize,
}

/// Which connections are there.
#[derive(Default)]
struct Health {
    /// By worker and server: why it is missing.
    missing: BTreeMap<(usize, String), Option<String>>,
    /// Whether a connection was ever there.
    ever: bool,
    /// What people were told of an outage that is not over, and when.
    told: Option<(String, Time)>,
}

/// What a key spent while the store was away.
pub(super) struct Outstanding {
    pub(super) limit: Arc<Limit>,
    pub(super) tag: Tag,
    /// The sum of the costs that were admitted.
    pub(super) cost: u64,
}

/// What /status tells of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// Whether every worker reaches it.
    pub up: bool,
    /// Live gateways that share it, as far as is known.
    pub gateways: u32,
    /// Why it is not up.
    pub trouble: Option<String>,
}

impl StoreState {
    /// Nothing is known of the store yet.
    pub fn new(config: RedisConfig) -> Self {
        Self {
            config: ArcSwap::from_pointee(config),
            gateway: random().iter().map(|byte| format!("{byte:02x}")).collect(),
            alarm: watch::Sender::new(()),
            gateways: AtomicU32::new(1),
            topology: Topology::default(),
            disagreement_told: Mutex::default(),
            watches: Mutex::default(),
            clocks: Mutex::default(),
            health: Mutex::default(),
            outstanding: Mutex::default(),
            owing: AtomicUsize::new(0),
        }
    }

    /// What the file says of it.
    pub fn config(&self) -> Arc<RedisConfig> {
        self.config.load_full()
    }

    /// Goes on under another configuration, if that leads to the same counters: other credentials, another timeout.
    /// Whether it does.
    pub fn goes_on(&self, config: &RedisConfig) -> bool {
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

    /// Live gateways, at least this one.
    pub fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Relaxed)
    }

    pub(super) fn set_gateways(&self, gateways: u32) {
        self.gateways.store(gateways.max(1), Ordering::Relaxed);
    }

    /// The clock of a server.
    pub(super) fn clock(&self, server: &str) -> Arc<ServerClock> {
        Arc::clone(locked(&self.clocks).entry(server.to_owned()).or_default())
    }

    /// What all workers know of a server.
    pub(super) fn watch(&self, server: &str) -> Arc<Watch> {
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
        if health.missing.is_empty() && (health.told.is_some() || !health.ever) {
            health.ever = true;
            health.told = None;
            tracing::info!("the store is up: limits are shared and exact");
        }
    }

    /// A worker has lost its connection, or cannot make one. People are told once, and of another reason now and then.
    pub(super) fn lost(&self, worker: usize, server: &str, why: &str, now: Time) {
        let mut health = locked(&self.health);
        health.missing.insert((worker, server.to_owned()), Some(why.to_owned()));
        let reason = format!("{server}: {why}");
        match &health.told {
            None => tracing::error!(
                "the store is down ({reason}): each limit follows its on_store_failure until it is back"
            ),
            Some((before, at)) if *before != reason && now.since(*at) >= RETELL => {
                tracing::error!("the store is still down ({reason})");
            }
            Some(_) => return,
        }
        health.told = Some((reason, now));
    }

    /// Tells people, now and then, that an answer did not agree with the state beside it: how many requests the script
    /// admitted, and how many the core.
    pub(super) fn tell_disagreement(&self, (script, core): (usize, usize), now: Time) {
        let mut told = locked(&self.disagreement_told);
        if told.is_none_or(|told| now.since(told) >= RETELL) {
            *told = Some(now);
            tracing::error!(
                "the store admitted {script} requests where its state admits {core}: the smaller number passed. Is \
                 something else writing the keys or the scripts? Please report it; \
                 sluicegate_store_disagreements_total counts them"
            );
        }
    }

    /// What /status tells.
    pub fn status(&self) -> StoreStatus {
        let health = locked(&self.health);
        let trouble =
            health.missing.iter().find_map(|((_, server), why)| Some(format!("{server}: {}", why.as_ref()?)));
        StoreStatus { up: health.ever && health.missing.is_empty(), gateways: self.gateways(), trouble }
    }

    /// Notes what was admitted without the store.
    pub(super) fn spent_without(&self, limit: &Arc<Limit>, key: Fingerprint, tag: Tag, cost: u64) {
        let mut outstanding = locked(&self.outstanding);
        let room = outstanding.len() < MAX_OUTSTANDING;
        match outstanding.get_mut(&(limit.counters.order, key)) {
            Some(spent) => {
                spent.cost = spent.cost.saturating_add(cost);
                spent.limit = Arc::clone(limit);
            }
            None if room => {
                let spent = Outstanding { limit: Arc::clone(limit), tag, cost };
                outstanding.insert((limit.counters.order, key), spent);
            }
            None => {}
        }
        self.owing.store(outstanding.len(), Ordering::Relaxed);
    }

    /// Takes the keys that owe what was spent without the store, of those that `holds` picks.
    pub(super) fn take_outstanding(&self, holds: impl Fn(Tag) -> bool) -> Vec<(Fingerprint, Outstanding)> {
        let mut outstanding = locked(&self.outstanding);
        let taken = outstanding.extract_if(|_, spent| holds(spent.tag)).map(|((_, key), spent)| (key, spent));
        let taken = taken.collect();
        self.owing.store(outstanding.len(), Ordering::Relaxed);
        taken
    }

    /// Whether what this key spent without the store is still to be written back.
    pub(super) fn owes_for(&self, limit: &Limit, key: Fingerprint) -> bool {
        self.owes() && locked(&self.outstanding).contains_key(&(limit.counters.order, key))
    }

    /// Whether anything spent without the store is still to be written back.
    pub(super) fn owes(&self) -> bool {
        self.owing.load(Ordering::Relaxed) > 0
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
