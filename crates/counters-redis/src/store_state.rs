//! What the gateway's threads share about the store: whether it is there, who else uses it, what an outage cost.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use sluicegate_counters::{CountedLimit, Counters};
use sluicegate_limiter::{Span, Time};
use tokio::sync::watch;

use super::connection::random;
use super::gateway_count;
use super::in_flight::InFlightCosts;
use super::server_clock::ServerClock;
use super::server_watch::Watch;
use super::topology::Topology;
use super::unreported::Unreported;
use crate::Settings;

/// The least time after which people are told another reason for the same outage.
const RETELL: Span = Span::from_secs(10);
/// How often in a row a smaller number of gateways is told, twice a second, before it is believed.
const BELIEVED: u32 = 6;

/// What all threads of a gateway share about its store.
pub struct StoreState {
    /// What the file says of it.
    config: ArcSwap<Settings>,
    /// This gateway's name among those that share it.
    pub(super) gateway: String,
    /// Notified when a worker has lost its connection, so that the others look at theirs.
    pub(super) alarm: watch::Sender<()>,
    /// Live gateways, this one among them, as of the last word from the store.
    gateways: AtomicU32,
    /// The counts below that which were told in a row.
    fewer: Mutex<Fewer>,
    /// Which server holds what.
    pub(super) topology: Topology,
    /// When people were last told that a script and the core do not agree.
    disagreement_told: Mutex<Option<Time>>,
    watches: Mutex<HashMap<String, Arc<Watch>>>,
    clocks: Mutex<HashMap<String, Arc<ServerClock>>>,
    health: Mutex<Health>,
    /// What was admitted without the store.
    pub(super) unreported: Unreported,
    /// What requests wait for.
    pub(super) in_flight: Arc<InFlightCosts>,
    /// Where the gateway keeps what the store has told.
    told: Mutex<Vec<Weak<Counters>>>,
    /// Whether that is to be forgotten.
    outdated: AtomicBool,
}

/// Counts of gateways that are smaller than the known one.
#[derive(Default)]
struct Fewer {
    times: u32,
    /// The largest of them.
    most: u32,
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
    pub fn new(config: Settings) -> Self {
        Self {
            gateways: AtomicU32::new(gateway_count::read(&config)),
            config: ArcSwap::from_pointee(config),
            gateway: random().iter().map(|byte| format!("{byte:02x}")).collect(),
            alarm: watch::Sender::new(()),
            fewer: Mutex::default(),
            topology: Topology::default(),
            disagreement_told: Mutex::default(),
            watches: Mutex::default(),
            clocks: Mutex::default(),
            health: Mutex::default(),
            unreported: Unreported::default(),
            in_flight: Arc::default(),
            told: Mutex::default(),
            outdated: AtomicBool::new(false),
        }
    }

    /// What the file says of it.
    pub fn config(&self) -> Arc<Settings> {
        self.config.load_full()
    }

    /// Goes on under another configuration, if that leads to the same counters: other credentials, another timeout.
    /// Whether it does.
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

    /// Live gateways: as many as were last heard of, but no fewer than the file says.
    pub fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Relaxed).max(self.config.load().gateways)
    }

    /// Takes the count of live gateways from the store, and keeps it over a restart; `None` if the store did not answer. It
    /// writes a file, so it is not for threads that serve.
    ///
    /// A smaller count is believed when it was told often enough in a row: after an outage, in which no gateway could say
    /// that it lives, the first that is back would find itself alone.
    pub(super) fn count_gateways(&self, told: Option<u32>) {
        let known = self.gateways.load(Ordering::Relaxed);
        let gateways = {
            let mut fewer = locked(&self.fewer);
            match told {
                Some(told) if told < known => {
                    fewer.times += 1;
                    fewer.most = fewer.most.max(told).max(1);
                }
                _ => *fewer = Fewer::default(),
            }
            match told {
                Some(told) if told > known => told,
                _ if fewer.times >= BELIEVED => std::mem::take(&mut *fewer).most,
                _ => return,
            }
        };
        self.gateways.store(gateways, Ordering::Relaxed);
        let config = self.config();
        if let Err(error) = gateway_count::write(&config, gateways) {
            let path = gateway_count::path(&config);
            tracing::debug!("cannot keep the number of gateways in {}: {error}", path.display());
        }
    }

    /// Takes the limits whose counters keep what the store tells.
    pub fn track<'a>(&self, limits: impl Iterator<Item = &'a Arc<CountedLimit>>) {
        *locked(&self.told) = limits.map(|limit| Arc::downgrade(&limit.counters)).collect();
    }

    /// Notes what a server's clock showed at some instant between `sent` and `received`.
    ///
    /// Where it was set back, what the store told before is on a clock that is gone: a refusal would be remembered for
    /// as much longer. It is forgotten, as soon as the store has heard of all that was counted on top of it.
    pub(super) fn seen(&self, clock: &ServerClock, server: Time, sent: Time, received: Time) {
        if clock.seen(server, sent, received) {
            self.outdated.store(true, Ordering::Relaxed);
        }
        let forget = self.outdated.load(Ordering::Relaxed) && !self.unreported.any();
        if forget && self.outdated.swap(false, Ordering::Relaxed) {
            locked(&self.told).iter().filter_map(Weak::upgrade).for_each(|counters| counters.forget());
        }
    }

    /// The clock of a server.
    pub(super) fn clock(&self, server: &str) -> Arc<ServerClock> {
        Arc::clone(locked(&self.clocks).entry(server.to_owned()).or_default())
    }

    /// What the servers' clocks show at least when ours shows `now`.
    pub fn clocks_at(&self, now: Time) -> Time {
        locked(&self.clocks).values().map(|clock| clock.at_least(now)).min().unwrap_or(now)
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
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
