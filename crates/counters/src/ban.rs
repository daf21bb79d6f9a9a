//! Bans: a limit refuses a banned key independently of its usage.
//!
//! Bans are stored apart from the counters, on the clock of this process, so that they survive a change of the algorithm or
//! the scope of a limit. A shard of bans is locked while the counter of the key is locked, and never together with another
//! shard of bans.

use std::sync::Arc;

use sluicegate_limiter::{Ban, Refusal, Span, Strikes, Time, Usage};

use super::fingerprint::Fingerprint;
use super::sync::{AtomicU64, Ordering};
use super::table::Table;

/// The bans of one limit that this process knows, and the refusals that count towards one.
pub struct Bans {
    table: Table<Ban>,
    begun: AtomicU64,
}

/// The ban of a key as a store returned it, on the store's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteBan {
    /// The numbers of the ban.
    pub ban: Ban,
    /// The refusals that count towards it, and until when it lasts.
    pub strikes: Strikes,
    /// Whether this decision began it.
    pub begun: bool,
}

impl Bans {
    /// No bans, with room for `max_keys` keys.
    pub fn new(ban: Ban, max_keys: usize) -> Self {
        Self { table: Table::new(ban, max_keys), begun: AtomicU64::new(0) }
    }

    /// Takes other numbers. A ban that is in force ends at its time, or earlier if bans are shorter now.
    pub fn reconfigure(&self, ban: Ban, max_keys: usize, now: Time) {
        self.table.reconfigure(&ban, max_keys, now);
    }

    /// The rest of a key's ban; `None` if it is not banned.
    pub fn left(&self, key: Fingerprint, now: Time) -> Option<Span> {
        self.table.refusal(key, now, 1, None).and_then(Refusal::retry_after)
    }

    /// The number of keys that are banned. In a very large table a part is counted and the rest is estimated.
    pub fn banned(&self, now: Time) -> usize {
        self.table.count(now, |ban, strikes| ban.left(strikes, now).is_some())
    }

    /// A copy of a key's ban.
    pub(super) fn copy(&self, key: Fingerprint, now: Time) -> RemoteBan {
        let (ban, strikes) = self.table.copy(key, now, None);
        RemoteBan { ban, strikes, begun: false }
    }

    /// Ends a key's ban and forgets its refusals; returns whether there was anything.
    pub fn pardon(&self, key: Fingerprint) -> bool {
        self.table.pardon(key)
    }

    /// Ends all bans.
    pub fn forget(&self) {
        self.table.forget();
    }

    /// The bans of a limit after a reload; `before` are those of the limit with the same name and key. A reload ends bans only
    /// if the limit bans no more.
    pub fn following(
        ban: Option<Ban>,
        max_keys: usize,
        before: Option<&Arc<Self>>,
        now: Time,
    ) -> Option<Arc<Self>> {
        let ban = ban?;
        match before {
            Some(bans) => {
                bans.reconfigure(ban, max_keys, now);
                Some(Arc::clone(bans))
            }
            None => Some(Arc::new(Self::new(ban, max_keys))),
        }
    }

    /// The number of bans that have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Counts a refusal. Returns the length of the ban if one begins.
    pub(super) fn refused(&self, key: Fingerprint, now: Time) -> Option<Span> {
        let mut held = self.table.lock_key(key, now, None, None);
        if held.key() != key {
            // The table is full. Keys that share the overflow entry are not banned; the limit itself still refuses.
            return None;
        }
        if held.check(now, 1).is_err() {
            return None; // another thread's refusal began it
        }
        held.refused(now, 1);
        let began = held.check(now, 1).err().and_then(Refusal::retry_after);
        let added = held.added;
        drop(held);
        if added {
            self.table.sweep_a_little(key, now);
        }
        if began.is_some() {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        began
    }

    /// Records a ban that a store returned. `begun`: by a request of this process.
    pub fn learn(&self, key: Fingerprint, until: Time, begun: bool, now: Time) {
        if begun {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        if self.table.learn(key, (&self.table.algorithm(), Strikes::until(until)), now, None) {
            self.table.sweep_a_little(key, now);
        }
    }
}

/// The usage of a key that is banned for `left`: nothing remains until then.
pub fn while_banned(usage: Usage, left: Span) -> Usage {
    Usage { remaining: 0, reset: usage.reset.max(left), ..usage }
}

/// The refusal of a banned key: until the limit itself would admit it too, so that `Retry-After` is exact.
pub(super) fn longer(left: Span, own: Option<Refusal>) -> Refusal {
    let own = own.and_then(Refusal::retry_after).unwrap_or(Span::ZERO);
    Refusal::Banned(left.max(own))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    const AT: Time = Time::from_nanos(1_795_000_000_000_000_000);

    fn bans(after: u64, max_keys: usize) -> Bans {
        let ban = Ban::new(after, Span::SECOND, Span::from_secs(60));
        Bans::new(ban.expect("a ban"), max_keys)
    }

    fn key(n: u64) -> Fingerprint {
        Fingerprint::from_hash((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Of refusals at once exactly one begins the ban, and those that come later do not begin another.
    #[test]
    fn a_ban_begins_once_on_eight_threads() {
        let bans = bans(100, 1_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| _ = bans.refused(key(1), AT)));
            }
        });
        assert_eq!((bans.begun(), bans.left(key(1), AT)), (1, Some(Span::from_secs(60))));
        assert_eq!(bans.left(key(2), AT), None);
    }

    /// A flood of refused keys ends no ban and bans nobody for others; when bans have ended there is room again.
    #[test]
    fn a_flood_ends_no_ban_and_bans_nobody_else() {
        let bans = bans(1, 1_000);
        assert_eq!((0..50_000).filter(|n| bans.refused(key(*n), AT).is_some()).count(), 1_000);
        assert_eq!(bans.table.entries(), 1_000);
        assert_eq!((0..50_000).filter(|n| bans.left(key(*n), AT).is_some()).count(), 1_000);
        assert_eq!(bans.left(Fingerprint::OVERFLOW, AT), None);
        let then = AT.plus(Span::from_secs(60));
        let found_room = (50_000..60_000).filter(|n| bans.refused(key(*n), then).is_some()).count();
        assert!(found_room >= 900, "{found_room}");
        assert!(bans.table.entries() <= 1_000);
    }

    /// What counts towards a ban leaves when it is out of sight.
    #[test]
    fn what_no_longer_counts_makes_room() {
        let bans = bans(2, 1_000);
        (0..1_000).for_each(|n| _ = bans.refused(key(n), AT));
        let then = AT.plus(Span::SECOND);
        (1_000..50_000).for_each(|n| _ = bans.refused(key(n), then));
        assert_eq!(bans.begun(), 0);
        assert_eq!(bans.refused(key(1), then.plus(Span::SECOND)), None, "the first one is forgotten");
    }
}
