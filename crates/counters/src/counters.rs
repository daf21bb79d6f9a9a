//! The counters of a limit for any algorithm: one match per operation, so that the tables stay flat and typed.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_limiter::{
    Concurrency, FixedWindow, LeakyBucket, Quota, Receipt, Refusal, SlidingLog, SlidingWindow, Span, Time,
    TokenBucket, Usage,
};

use super::fingerprint::Fingerprint;
use super::key_state::KeyState;
use super::queue::Queue;
use super::remote_charges::RemoteCharges;
use super::remote_state::RemoteState;
use super::state_codec::StateCodec;
use super::table::{CheckResult, LockedEntry, Table};

/// The number of the next counters.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The counters of one limit. They outlive the configuration that created them.
pub struct Counters {
    /// Their number in this process. All requests lock the limits that they share in the order of these numbers.
    pub id: u64,
    tables: Tables,
    /// The waiting requests of a leaky bucket.
    queue: Option<Queue>,
    /// The charges that a store has made of this limit for this process.
    pub remote: RemoteCharges,
    /// What was admitted with leased tokens.
    pub leases: LeaseCounts,
    /// Answers whose cost could not be read.
    pub unreadable_costs: AtomicU64,
}

/// What was admitted with leased tokens, since the counters exist.
#[derive(Debug, Default)]
pub struct LeaseCounts {
    /// Tokens that a store has granted.
    pub granted: AtomicU64,
    /// Tokens of them that went back unspent.
    pub returned: AtomicU64,
    /// Requests that were admitted above the limit, as far as that can be told.
    pub over: AtomicU64,
}

enum Tables {
    TokenBucket(Table<TokenBucket>),
    LeakyBucket(Table<LeakyBucket>),
    FixedWindow(Table<FixedWindow>),
    SlidingLog(Table<SlidingLog>),
    SlidingWindow(Table<SlidingWindow>),
    Concurrency(Table<Concurrency>),
}

/// The state of one key, locked.
enum LockedKey<'a> {
    TokenBucket(LockedEntry<'a, TokenBucket>),
    LeakyBucket(LockedEntry<'a, LeakyBucket>),
    FixedWindow(LockedEntry<'a, FixedWindow>),
    SlidingLog(LockedEntry<'a, SlidingLog>),
    SlidingWindow(LockedEntry<'a, SlidingWindow>),
    Concurrency(LockedEntry<'a, Concurrency>),
}

/// What a request has to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    /// Nothing.
    Nothing,
    /// A place, when the request ends.
    Place,
    /// A position in a queue, with its ticket.
    Queued(u64),
    /// A charge: all of it if another limit refuses after all, or a part when the cost is known.
    Charge,
}

/// The locked state of one key of a limit that `by` processes count independently. A request counts `by` times in each of
/// them, so that together they stay within the limit.
pub(super) struct DividedKey<'a> {
    key: LockedKey<'a>,
    queue: Option<&'a Queue>,
    by: u16,
    /// The costs for this key in calls of the store that it may still admit.
    pub(super) in_flight: u64,
}

/// Evaluates an expression for the first field of any variant.
macro_rules! each {
    ($from:ident($name:ident) = $value:expr => $body:expr) => {
        match $value {
            $from::TokenBucket($name, ..) => $body,
            $from::LeakyBucket($name, ..) => $body,
            $from::FixedWindow($name, ..) => $body,
            $from::SlidingLog($name, ..) => $body,
            $from::SlidingWindow($name, ..) => $body,
            $from::Concurrency($name, ..) => $body,
        }
    };
}

/// Converts each variant of an enum to the variant of the same name of another.
macro_rules! convert {
    ($from:ident($name:ident) = $value:expr => $to:ident($body:expr)) => {
        match $value {
            $from::TokenBucket($name, ..) => $to::TokenBucket($body),
            $from::LeakyBucket($name, ..) => $to::LeakyBucket($body),
            $from::FixedWindow($name, ..) => $to::FixedWindow($body),
            $from::SlidingLog($name, ..) => $to::SlidingLog($body),
            $from::SlidingWindow($name, ..) => $to::SlidingWindow($body),
            $from::Concurrency($name, ..) => $to::Concurrency($body),
        }
    };
}

/// Evaluates an expression for a table and another value of the same algorithm; `else` if the algorithms differ.
macro_rules! if_same {
    ($table:ident = $tables:expr, $other:ident($($field:ident),+) = $value:expr => $body:expr, else $else:expr) => {
        match ($tables, $value) {
            (Tables::TokenBucket($table), $other::TokenBucket($($field),+, ..)) => $body,
            (Tables::LeakyBucket($table), $other::LeakyBucket($($field),+, ..)) => $body,
            (Tables::FixedWindow($table), $other::FixedWindow($($field),+, ..)) => $body,
            (Tables::SlidingLog($table), $other::SlidingLog($($field),+, ..)) => $body,
            (Tables::SlidingWindow($table), $other::SlidingWindow($($field),+, ..)) => $body,
            (Tables::Concurrency($table), $other::Concurrency($($field),+, ..)) => $body,
            _ => $else,
        }
    };
}

impl Counters {
    /// Empty counters of a limit, for at most `max_keys` keys: further ones share one counter.
    pub fn new(quota: &Quota, max_keys: usize) -> Self {
        let tables = convert!(Quota(algorithm) = quota => Tables(Table::new(*algorithm, max_keys)));
        let queue = matches!(quota, Quota::LeakyBucket(..)).then(Queue::default);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            tables,
            queue,
            remote: RemoteCharges::new(quota),
            leases: LeaseCounts::default(),
            unreadable_costs: AtomicU64::new(0),
        }
    }

    /// Takes another quota of the same algorithm and converts the states. Returns false if the algorithm differs.
    pub fn reconfigure(&self, quota: &Quota, max_keys: usize, now: Time) -> bool {
        let queued = match (&self.tables, quota) {
            (Tables::LeakyBucket(table), Quota::LeakyBucket(new, ..)) => Some((table.algorithm(), new)),
            _ => None,
        };
        if_same!(table = &self.tables, Quota(new) = quota => table.reconfigure(new, max_keys, now), else return false);
        if let (Some((old, new)), Some(queue)) = (queued, &self.queue) {
            queue.rescale(now, |wait| new.carried_wait(&old, wait));
        }
        self.remote.reconfigure(quota);
        true
    }

    /// The number of keys that owe something at `now`; an estimate if there are millions.
    pub fn keys(&self, now: Time) -> usize {
        each!(Tables(table) = &self.tables => table.keys(now))
    }

    /// The number of keys that have a state. `max_keys` bounds it.
    pub fn entries(&self) -> usize {
        each!(Tables(table) = &self.tables => table.entries())
    }

    /// The number of requests that used the overflow counter.
    pub fn overflowed(&self) -> u64 {
        each!(Tables(table) = &self.tables => table.overflowed())
    }

    /// The usage of a key under the quota with which it was last counted; `None` if it has no state.
    pub fn usage(&self, key: Fingerprint, now: Time) -> Option<Usage> {
        each!(Tables(table) = &self.tables => table.usage(key, now))
    }

    /// The usage of a key that a request would meet; `None` if it has no state. `own` is the quota of the key, if it has one
    /// of its own.
    pub(super) fn usage_under(&self, key: Fingerprint, now: Time, own: Option<&Quota>) -> Option<Usage> {
        each!(Tables(table) = &self.tables => table.usage_under(key, now, own.and_then(StateCodec::of)))
    }

    /// The usage of a key that was never seen.
    pub fn fresh(&self, now: Time) -> Usage {
        each!(Tables(table) = &self.tables => table.fresh(now))
    }

    /// Removes the state of a key; returns whether it had one. Places of requests in flight stay.
    pub fn pardon(&self, key: Fingerprint) -> bool {
        !matches!(self.tables, Tables::Concurrency(_))
            && each!(Tables(table) = &self.tables => table.pardon(key))
    }

    /// A copy of the state that a request of a key would meet.
    pub(super) fn copy(&self, key: Fingerprint, now: Time, own: Option<&Quota>) -> RemoteState {
        macro_rules! copied {
            ($($algorithm:ident),+) => {
                match &self.tables {
                    $(Tables::$algorithm(table) => {
                        let (quota, state) = table.copy(key, now, own.and_then(StateCodec::of));
                        RemoteState::$algorithm(quota, state)
                    })+
                    Tables::Concurrency(table) => {
                        let (quota, state) = table.copy(key, now, own.and_then(StateCodec::of));
                        RemoteState::Concurrency(quota, state, 0)
                    }
                }
            };
        }
        copied!(TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindow)
    }

    /// Removes a few keys that owe nothing. Called when a key was added.
    pub(super) fn sweep_a_little(&self, key: Fingerprint, now: Time) {
        each!(Tables(table) = &self.tables => table.sweep_a_little(key, now));
    }

    /// Locks the state of a key of a limit that `by` processes count. `asked` is the cost that is checked, `own` the quota of
    /// the key if it has one of its own.
    pub(super) fn lock_key(
        &self,
        key: Fingerprint,
        now: Time,
        asked: u64,
        by: u16,
        own: Option<&Quota>,
    ) -> DividedKey<'_> {
        let locked = convert!(
            Tables(table) = &self.tables =>
            LockedKey(table.lock_key(key, now, Some(asked), own.and_then(StateCodec::of)))
        );
        if let (LockedKey::LeakyBucket(entry), Some(queue)) = (&locked, &self.queue)
            && let Some(old) = &entry.converted
        {
            queue.rescale_key(key, now, |wait| entry.algorithm().carried_wait(old, wait));
        }
        DividedKey { key: locked, queue: self.queue.as_ref(), by, in_flight: 0 }
    }

    /// Checks and charges one key where there is no other limit; `None` for algorithms whose requests give something back.
    #[inline]
    pub(super) fn acquire(
        &self,
        key: Fingerprint,
        now: Time,
        cost: u64,
        own: Option<&Quota>,
    ) -> Option<CheckResult> {
        match &self.tables {
            Tables::TokenBucket(table) => Some(table.acquire(key, now, cost, own.and_then(StateCodec::of))),
            Tables::FixedWindow(table) => Some(table.acquire(key, now, cost, own.and_then(StateCodec::of))),
            Tables::SlidingLog(table) => Some(table.acquire(key, now, cost, own.and_then(StateCodec::of))),
            Tables::SlidingWindow(table) => Some(table.acquire(key, now, cost, own.and_then(StateCodec::of))),
            Tables::LeakyBucket(..) | Tables::Concurrency(_) => None,
        }
    }

    /// Frees a place of a concurrency limit.
    pub(super) fn free(&self, key: Fingerprint, cost: u64) {
        if let Tables::Concurrency(table) = &self.tables {
            table.free(key, cost);
        }
    }

    /// The time at which a queued request is due; `waker` is woken when it changes.
    pub(super) fn due(&self, key: Fingerprint, ticket: u64, waker: &std::task::Waker) -> Option<Time> {
        self.queue.as_ref()?.due(key, ticket, waker)
    }

    /// Removes a queued request that is due.
    pub(super) fn leave(&self, key: Fingerprint, ticket: u64) {
        if let Some(queue) = &self.queue {
            queue.leave(key, ticket);
        }
    }

    /// Removes a queued request that gives up: its charge is refunded and those behind it move up.
    pub(super) fn give_up(&self, key: Fingerprint, ticket: u64, now: Time, (charge, cost): (u32, u64)) {
        if let (Tables::LeakyBucket(table), Some(queue)) = (&self.tables, &self.queue) {
            table.give_back(key, now, charge, (cost, cost), |bucket| {
                queue.give_up(key, ticket, bucket.turn(cost));
            });
        }
    }

    /// Removes a queued request that gives up and was charged in a store: those behind it move up.
    pub(super) fn give_up_queued(&self, key: Fingerprint, ticket: u64, cost: u64) {
        if let (Tables::LeakyBucket(table), Some(queue)) = (&self.tables, &self.queue) {
            queue.give_up(key, ticket, table.algorithm_of(key).turn(cost));
        }
    }

    /// A ticket of the queue of a key, for a request that a store has admitted; `None` if the limit has no queue.
    pub(super) fn enter(&self, key: Fingerprint, due: Time) -> Option<u64> {
        Some(self.queue.as_ref()?.enter(key, due))
    }

    /// The refusal of a request by the state of its key; `None` if it would be admitted. `own` is the quota of the key, if it
    /// has one of its own.
    pub fn refusal(&self, key: Fingerprint, now: Time, cost: u64, own: Option<&Quota>) -> Option<Refusal> {
        each!(Tables(table) = &self.tables => table.refusal(key, now, cost, own.and_then(StateCodec::of)))
    }

    /// Whether the state of a key was counted under the quota that it has now. `own` is that quota, if the key has one of its own.
    pub(super) fn is_current(&self, key: Fingerprint, own: Option<&Quota>) -> bool {
        each!(Tables(table) = &self.tables => table.is_current(key, own.and_then(StateCodec::of)))
    }

    /// The debt of a key in whole requests, rounded up.
    pub fn owed(&self, key: Fingerprint, now: Time) -> u64 {
        each!(Tables(table) = &self.tables => table.owed(key, now))
    }

    /// Removes the states of all keys. Places of requests in flight stay.
    pub fn forget(&self) {
        if !matches!(self.tables, Tables::Concurrency(_)) {
            each!(Tables(table) = &self.tables => table.forget());
        }
    }

    /// Takes places that a store has admitted; returns the key under which they are held.
    pub(super) fn take(&self, key: Fingerprint, places: u64) -> Fingerprint {
        let Tables::Concurrency(table) = &self.tables else { return key };
        let mut entry = table.lock_as_it_is(key, Time::EPOCH); // places do not depend on the time
        entry.charge(Time::EPOCH, places);
        entry.key()
    }

    /// Charges the cost of a request above what it was charged.
    pub fn settle(&self, key: Fingerprint, now: Time, cost: u64) {
        each!(Tables(table) = &self.tables => table.lock_as_it_is(key, now).settle(now, cost));
    }

    /// The receipt that a charge of the key would have at `now`: a refund of earlier hits, whose receipts are not known, names it.
    pub fn receipt(&self, key: Fingerprint, now: Time) -> Receipt {
        each!(Tables(table) = &self.tables => table.lock_as_it_is(key, now).charge(now, 0))
    }

    /// Refunds `cost` of what the key has used, at most all of it.
    pub fn refund(&self, key: Fingerprint, now: Time, cost: u64) {
        let (key, charge) = each!(Tables(table) = &self.tables => {
            let mut entry = table.lock_as_it_is(key, now);
            let receipt = entry.charge(now, 0);
            (entry.key(), entry.open(cost, receipt))
        });
        self.give_back(key, now, charge, (cost, cost));
    }

    /// Ends a charge, and refunds the last `cost` of the `whole` that was charged.
    pub(super) fn give_back(&self, key: Fingerprint, now: Time, charge: u32, cost_of_whole: (u64, u64)) {
        each!(Tables(table) = &self.tables => table.give_back(key, now, charge, cost_of_whole, |_| {}));
    }

    /// Ends a charge without a refund.
    pub(super) fn close(&self, key: Fingerprint, charge: u32) {
        self.give_back(key, Time::EPOCH, charge, (0, 1)); // a refund of nothing needs no time
    }

    /// Replaces the state of `key` by the one that a store returned at its time `now`, so that this process can decide from
    /// there if the store fails. Places are not replaced: the table counts those of this process. `own` is the quota of the
    /// key, if it has one of its own.
    pub(super) fn learn(&self, key: Fingerprint, state: &RemoteState, now: Time, own: Option<&Quota>) {
        if let Tables::Concurrency(_) = &self.tables {
            return;
        }
        let added = if_same!(
            table = &self.tables,
            RemoteState(quota, state) = state =>
                table.learn(key, (quota, Clone::clone(state)), now, own.and_then(StateCodec::of)),
            else false
        );
        if added {
            self.sweep_a_little(key, now);
        }
    }
}

impl DividedKey<'_> {
    pub(super) fn key(&self) -> Fingerprint {
        each!(LockedKey(entry) = &self.key => entry.key())
    }

    /// What a request has to give back that was charged at `now` and is delayed by `delay`. With `queue`, a delayed request
    /// gets a ticket.
    pub(super) fn reservation(&self, now: Time, delay: Span, queue: bool) -> Reservation {
        match (&self.key, self.queue) {
            (LockedKey::Concurrency(_), _) => Reservation::Place,
            (_, Some(waiting)) if queue && !delay.is_zero() => {
                Reservation::Queued(waiting.enter(self.key(), now.plus(delay)))
            }
            _ => Reservation::Nothing,
        }
    }

    /// Keeps a charge that may be refunded; returns its ticket.
    pub(super) fn open(&mut self, cost: u64, receipt: Receipt) -> u32 {
        each!(LockedKey(entry) = &mut self.key => entry.open(cost, receipt))
    }

    /// Whether the key is new to the table.
    pub(super) fn added(&self) -> bool {
        each!(LockedKey(entry) = &self.key => entry.added)
    }

    /// The cost as it counts in this process. A cost within the capacity of the limit stays within it.
    pub(super) fn counted_cost(&self, now: Time, cost: u64) -> u64 {
        if self.by == 1 || matches!(self.key, LockedKey::Concurrency(_)) {
            return cost; // each process counts its own places; the maximum is divided instead
        }
        let largest = match &self.key {
            // `max_delay` bounds how many requests wait, not what one of them may cost.
            LockedKey::LeakyBucket(entry, ..) => entry.algorithm().places(),
            key => each!(LockedKey(entry) = key => entry.usage(now)).capacity,
        };
        cost.saturating_mul(u64::from(self.by)).min(largest.max(cost))
    }
}

impl KeyState for DividedKey<'_> {
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        let Usage { capacity, remaining, .. } = each!(LockedKey(entry) = &self.key => entry.usage(now));
        if let LockedKey::Concurrency(_) = &self.key {
            let share = (capacity / u64::from(self.by)).max(1);
            if capacity - remaining + self.in_flight + cost > share && cost <= capacity {
                return Err(Refusal::Busy);
            }
        }
        let wanted = self.counted_cost(now, cost);
        let answer = each!(LockedKey(entry) = &self.key => entry.check(now, wanted));
        let in_flight = self.in_flight.saturating_mul(u64::from(self.by));
        match answer {
            // The calls in flight may take the rest; the client can retry soon, when their result is known.
            Ok(_) if in_flight > 0 && wanted.saturating_add(in_flight) > remaining => {
                let most = each!(LockedKey(entry) = &self.key => entry.check(now, capacity)).err();
                Err(most.unwrap_or(Refusal::Until(Span::from_millis(1))))
            }
            answer => answer,
        }
    }

    fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        let cost = self.counted_cost(now, cost);
        each!(LockedKey(entry) = &mut self.key => entry.charge(now, cost))
    }

    fn refused(&mut self, now: Time, cost: u64) {
        let cost = self.counted_cost(now, cost);
        each!(LockedKey(entry) = &mut self.key => entry.refused(now, cost));
    }

    fn usage(&self, now: Time) -> Usage {
        let mut usage = each!(LockedKey(entry) = &self.key => entry.usage(now));
        usage.remaining /= u64::from(self.by);
        usage
    }
}
