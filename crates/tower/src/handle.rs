//! Looks at the counters of a layer and resets them.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use sluicegate_limiter::Usage;

use crate::built::Shared;

/// Looks at the counters of a layer and resets them. Clones share the layer's counters.
///
/// A key is given as the limit hashes it: a `str` for [`header`](crate::header), the value for
/// [`extension`](crate::extension) and [`key_by`](crate::Limit::key_by), the result of
/// [`ClientIp::key_of`](crate::ClientIp::key_of), a tuple for a tuple, and `&()` for a limit without a key.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// What a key has left; `None` if no limit has this name. Nothing is charged.
    pub fn usage(&self, limit: &str, key: &(impl Hash + ?Sized)) -> Option<Usage> {
        let (_, limit) = self.0.find(limit)?;
        Some(limit.usage(self.0.fingerprint(key), self.0.clock.now()))
    }

    /// Resets the counter of a key; returns whether it had one. Requests in flight stay counted.
    pub fn pardon(&self, limit: &str, key: &(impl Hash + ?Sized)) -> bool {
        self.0.find(limit).is_some_and(|(_, limit)| limit.counted.pardon(self.0.fingerprint(key)))
    }

    /// The number of keys that have a counter; `None` if no limit has this name.
    pub fn keys(&self, limit: &str) -> Option<usize> {
        self.0.find(limit).map(|(_, limit)| limit.counted.counters.entries())
    }

    /// The number of requests whose key had to share the overflow counter, because [`max_keys`](crate::Limit::max_keys) others
    /// owed something; `None` if no limit has this name.
    pub fn overflowed(&self, limit: &str) -> Option<u64> {
        self.0.find(limit).map(|(_, limit)| limit.counted.counters.overflowed())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.limits.iter().map(|limit| limit.name());
        f.debug_tuple("Handle").field(&names.collect::<Vec<_>>()).finish()
    }
}
