//! Which keys of a gateway have tokens that were paid for in advance.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_counters::{Ask, CountedLimit, Fingerprint};
use sluicegate_leases::{Lease, WorkerTokens};
use sluicegate_limiter::Time;

use super::key_name::StoreKey;

/// The most keys of a gateway that have leases.
const MOST: usize = 16_384;
/// The number of locks over which they are spread.
const SHARDS: usize = 16;
/// The keys that a worker remembers to have seen once.
const SEEN: usize = 4_096;
/// A worker's leases are looked through when there are so many, and again when they have doubled.
const FIRST_PURGE: usize = 1_024;

pub(super) type Key = (u64, Fingerprint);

/// The lease of one key.
pub(super) struct KeyLease {
    pub(super) key: StoreKey,
    pub(super) lease: Lease,
    /// Whether it was removed from those of the gateway.
    pub(super) is_gone: AtomicBool,
}

/// The lease of a key as a worker knows it, with the tokens that it has taken out.
pub(super) struct Known {
    pub(super) lease: Arc<KeyLease>,
    pub(super) own: WorkerTokens,
}

/// The leases of a gateway, which its workers share.
#[derive(Default)]
pub(super) struct GatewayLeases([Mutex<HashMap<Key, Arc<KeyLease>>>; SHARDS]);

/// The leases that a worker knows, so that it needs no lock to find them.
pub(super) struct WorkerLeases {
    pub(super) known: HashMap<Key, Known>,
    purge_at: usize,
    /// The keys that came once: a key that comes only once needs no lease.
    seen: Box<[u64]>,
}

impl KeyLease {
    /// Whether its tokens are those of this limit. A reload may have changed the limit.
    pub(super) fn is_of(&self, limit: &Arc<CountedLimit>) -> bool {
        Arc::ptr_eq(&self.key.limit, limit)
            || (self.key.limit.quota == limit.quota && self.key.limit.leased() == limit.leased())
    }
}

impl GatewayLeases {
    fn shard(&self, key: Key) -> MutexGuard<'_, HashMap<Key, Arc<KeyLease>>> {
        self.0[key.1.get() as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease of a key, which is added if there is room, and the one that it replaces because a reload or a rule has changed
    /// the limit.
    pub(super) fn get_or_add(
        &self,
        ask: &Ask<'_>,
        now: Time,
    ) -> Option<(Arc<KeyLease>, Option<Arc<KeyLease>>)> {
        let id = (ask.limit.counters.id, ask.key);
        let mut shard = self.shard(id);
        let add = || {
            let (key, lease) = (StoreKey::of(ask), Lease::new(now));
            Arc::new(KeyLease { key, lease, is_gone: AtomicBool::new(false) })
        };
        let full = shard.len() >= MOST / SHARDS;
        match shard.entry(id) {
            Entry::Occupied(mut known) => {
                let replaced = (!known.get().is_of(ask.limit)).then(|| known.insert(add()));
                replaced.iter().for_each(|old| old.is_gone.store(true, Ordering::Release));
                Some((Arc::clone(known.get()), replaced))
            }
            Entry::Vacant(_) if full => None,
            Entry::Vacant(new) => Some((Arc::clone(new.insert(add())), None)),
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<KeyLease>> {
        let shards = self.0.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner));
        shards.flat_map(|shard| shard.values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(super) fn remove(&self, gone: &Arc<KeyLease>) {
        gone.is_gone.store(true, Ordering::Release);
        let id = gone.key.id();
        let mut shard = self.shard(id);
        if shard.get(&id).is_some_and(|known| Arc::ptr_eq(known, gone)) {
            shard.remove(&id);
        }
    }
}

impl Default for WorkerLeases {
    fn default() -> Self {
        Self { known: HashMap::new(), purge_at: FIRST_PURGE, seen: vec![0; SEEN].into_boxed_slice() }
    }
}

impl WorkerLeases {
    /// Whether a key has come before, lately. It is remembered.
    pub(super) fn saw(&mut self, key: Key) -> bool {
        let id = key.1.get() ^ key.0.rotate_left(32);
        let place = &mut self.seen[key.1.get() as usize % SEEN];
        std::mem::replace(place, id) == id
    }

    /// Adds a lease. Returns the one that it replaces, with the tokens that the worker has taken out of it.
    pub(super) fn add(&mut self, id: Key, lease: &Arc<KeyLease>, now: Time) -> Option<Arc<KeyLease>> {
        if self.known.len() >= self.purge_at {
            self.known.retain(|_, known| !known.lease.is_gone.load(Ordering::Acquire));
            self.purge_at = (self.known.len() * 2).max(FIRST_PURGE);
        }
        let new = Known { lease: Arc::clone(lease), own: WorkerTokens::default() };
        let Known { lease: old, own } = self.known.insert(id, new)?;
        own.give_back_all(&old.lease, now);
        Some(old)
    }
}
