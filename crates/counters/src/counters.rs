//! The counters of a limit, whatever its algorithm: one match, so that tables stay flat and typed.

use sluicegate_limiter::{
    Concurrency, FixedWindow, LeakyBucket, Quota, Receipt, Refusal, SlidingLog, SlidingWindow, Span, Time,
    TokenBucket, Usage,
};

use super::queue::Queue;
use super::remote_charges::RemoteCharges;
use super::table::{CheckResult, LockedEntry, Table};
use super::{Fingerprint, KeyState, RemoteState};

/// The counters of one limit. They outlive the configuration that made them.
pub struct Counters {
    /// Orders locks: two requests that share limits always lock them in the same order.
    pub order: u64,
    tables: Tables,
    /// The charges that a store has made of this limit for this process.
    pub remote: RemoteCharges,
}

enum Tables {
    TokenBucket(Table<TokenBucket>),
    LeakyBucket(Table<LeakyBucket>, Queue),
    FixedWindow(Table<FixedWindow>),
    SlidingLog(Table<SlidingLog>),
    SlidingWindow(Table<SlidingWindow>),
    Concurrency(Table<Concurrency>),
}

/// The state of one key, locked.
pub(super) enum LockedKey<'a> {
    TokenBucket(LockedEntry<'a, TokenBucket>),
    LeakyBucket(LockedEntry<'a, LeakyBucket>, &'a Queue),
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
    /// A place until the request ends.
    Place,
    /// A turn in a queue, with its ticket.
    Turn(u64),
    /// A charge, which is given back if another limit refuses after all, or in part when the cost is known.
    Charge,
}

/// The locked state of one key of a limit that `by` processes count without knowing of each other. A request counts `by`
/// times in each of them, so that together they stay within the limit.
pub(super) struct DividedKey<'a> {
    key: LockedKey<'a>,
    by: u16,
    /// Costs for this key that the store was asked for and may still admit.
    in_flight: u32,
}

macro_rules! each_table {
    ($tables:expr, $table:ident => $body:expr) => {
        match $tables {
            Tables::TokenBucket($table) => $body,
            Tables::LeakyBucket($table, _) => $body,
            Tables::FixedWindow($table) => $body,
            Tables::SlidingLog($table) => $body,
            Tables::SlidingWindow($table) => $body,
            Tables::Concurrency($table) => $body,
        }
    };
}

macro_rules! each_held {
    ($held:expr, $key:ident => $body:expr) => {
        match $held {
            LockedKey::TokenBucket($key) => $body,
            LockedKey::LeakyBucket($key, _) => $body,
            LockedKey::FixedWindow($key) => $body,
            LockedKey::SlidingLog($key) => $body,
            LockedKey::SlidingWindow($key) => $body,
            LockedKey::Concurrency($key) => $body,
        }
    };
}

impl Counters {
    /// Empty counters. `order` is unique among the limits of the process.
    pub fn new(quota: &Quota, max_keys: usize, order: u64) -> Self {
        let tables = match quota {
            Quota::TokenBucket(algorithm, ..) => Tables::TokenBucket(Table::new(*algorithm, max_keys)),
            Quota::LeakyBucket(algorithm, ..) => {
                Tables::LeakyBucket(Table::new(*algorithm, max_keys), Queue::default())
            }
            Quota::FixedWindow(algorithm, ..) => Tables::FixedWindow(Table::new(*algorithm, max_keys)),
            Quota::SlidingLog(algorithm, ..) => Tables::SlidingLog(Table::new(*algorithm, max_keys)),
            Quota::SlidingWindow(algorithm, ..) => Tables::SlidingWindow(Table::new(*algorithm, max_keys)),
            Quota::Concurrency(algorithm, ..) => Tables::Concurrency(Table::new(*algorithm, max_keys)),
        };
        Self { order, tables, remote: RemoteCharges::new(quota) }
    }

    /// Takes another quota of the same algorithm and carries debts over. Returns false if the algorithm differs.
    pub fn reconfigure(&self, quota: &Quota, max_keys: usize, now: Time) -> bool {
        match (&self.tables, quota) {
            (Tables::TokenBucket(table), Quota::TokenBucket(new, ..)) => {
                table.reconfigure(new, max_keys, now)
            }
            (Tables::LeakyBucket(table, queue), Quota::LeakyBucket(new, ..)) => {
                let old = table.algorithm();
                table.reconfigure(new, max_keys, now);
                queue.rescale(now, |wait| new.carried_wait(&old, wait));
            }
            (Tables::FixedWindow(table), Quota::FixedWindow(new, ..)) => {
                table.reconfigure(new, max_keys, now)
            }
            (Tables::SlidingLog(table), Quota::SlidingLog(new, ..)) => table.reconfigure(new, max_keys, now),
            (Tables::SlidingWindow(table), Quota::SlidingWindow(new, ..)) => {
                table.reconfigure(new, max_keys, now)
            }
            (Tables::Concurrency(table), Quota::Concurrency(new, ..)) => {
                table.reconfigure(new, max_keys, now)
            }
            _ => return false,
        }
        self.remote.reconfigure(quota);
        true
    }

    /// The number of keys that owe something at `now`; an estimate if there are millions.
    pub fn keys(&self, now: Time) -> usize {
        each_table!(&self.tables, table => table.keys(now))
    }

    /// The number of keys that have a state. `max_keys` bounds it.
    pub fn entries(&self) -> usize {
        each_table!(&self.tables, table => table.entries())
    }

    /// The number of requests that shared the overflow bucket.
    pub fn overflowed(&self) -> u64 {
        each_table!(&self.tables, table => table.overflowed())
    }

    /// What a key has left, or `None` if it has no state.
    pub fn usage(&self, key: Fingerprint, now: Time) -> Option<Usage> {
        each_table!(&self.tables, table => table.usage(key, now))
    }

    /// What a key has left that was never seen.
    pub fn fresh(&self, now: Time) -> Usage {
        each_table!(&self.tables, table => table.fresh(now))
    }

    /// Forgets a key and its debt; returns whether it had a state. Places of requests in flight are no debt and stay.
    pub fn pardon(&self, key: Fingerprint) -> bool {
        !matches!(self.tables, Tables::Concurrency(_))
            && each_table!(&self.tables, table => table.pardon(key))
    }

    /// Drops a few keys that owe nothing, because one was added.
    pub(super) fn sweep_a_little(&self, key: Fingerprint, now: Time) {
        each_table!(&self.tables, table => table.sweep_a_little(key, now));
    }

    /// Locks the state of a key. `asked` is the cost, if nothing is charged unless the key admits it.
    pub(super) fn lock_key(&self, key: Fingerprint, now: Time, asked: Option<u64>) -> LockedKey<'_> {
        match &self.tables {
            Tables::TokenBucket(table) => LockedKey::TokenBucket(table.lock_key(key, now, asked)),
            Tables::LeakyBucket(table, queue) => {
                LockedKey::LeakyBucket(table.lock_key(key, now, asked), queue)
            }
            Tables::FixedWindow(table) => LockedKey::FixedWindow(table.lock_key(key, now, asked)),
            Tables::SlidingLog(table) => LockedKey::SlidingLog(table.lock_key(key, now, asked)),
            Tables::SlidingWindow(table) => LockedKey::SlidingWindow(table.lock_key(key, now, asked)),
            Tables::Concurrency(table) => LockedKey::Concurrency(table.lock_key(key, now, asked)),
        }
    }

    /// Checks and charges one key where no other limit decides; `None` for algorithms whose requests give something back.
    #[inline]
    pub(super) fn acquire(&self, key: Fingerprint, now: Time, cost: u64) -> Option<CheckResult> {
        match &self.tables {
            Tables::TokenBucket(table) => Some(table.acquire(key, now, cost)),
            Tables::FixedWindow(table) => Some(table.acquire(key, now, cost)),
            Tables::SlidingLog(table) => Some(table.acquire(key, now, cost)),
            Tables::SlidingWindow(table) => Some(table.acquire(key, now, cost)),
            Tables::LeakyBucket(..) | Tables::Concurrency(_) => None,
        }
    }

    /// Frees a place of a concurrency limit.
    pub(super) fn free(&self, key: Fingerprint, cost: u64) {
        if let Tables::Concurrency(table) = &self.tables {
            table.free(key, cost);
        }
    }

    /// When a queued request is due; `waker` is woken when that changes.
    pub(super) fn due(&self, key: Fingerprint, ticket: u64, waker: &std::task::Waker) -> Option<Time> {
        match &self.tables {
            Tables::LeakyBucket(_, queue) => queue.due(key, ticket, waker),
            _ => None,
        }
    }

    /// Removes a queued request whose turn has come.
    pub(super) fn leave(&self, key: Fingerprint, ticket: u64) {
        if let Tables::LeakyBucket(_, queue) = &self.tables {
            queue.leave(key, ticket);
        }
    }

    /// Removes a queued request that gives up: its charge is given back and those behind it move up.
    pub(super) fn give_up(&self, key: Fingerprint, ticket: u64, now: Time, (charge, cost): (u32, u64)) {
        if let Tables::LeakyBucket(table, queue) = &self.tables {
            table.give_back(key, now, charge, (cost, cost), |bucket| {
                queue.give_up(key, ticket, bucket.turn(cost));
            });
        }
    }

    /// The refusal of a request by what is known of its key.
    pub fn refusal(&self, key: Fingerprint, now: Time, cost: u64) -> Option<Refusal> {
        each_table!(&self.tables, table => table.refusal(key, now, cost))
    }

    /// What a key owes, in whole requests, rounded up.
    pub fn owed(&self, key: Fingerprint, now: Time) -> u64 {
        each_table!(&self.tables, table => table.owed(key, now))
    }

    /// Forgets all keys and their debts. Requests in flight are no debt.
    pub fn forget(&self) {
        if !matches!(self.tables, Tables::Concurrency(_)) {
            each_table!(&self.tables, table => table.forget());
        }
    }

    /// Takes places that a store has admitted; returns the key under which they are held.
    pub(super) fn take(&self, key: Fingerprint, cost: u64) -> Fingerprint {
        let mut held = self.lock_key(key, Time::EPOCH, None); // places know no time
        if let LockedKey::Concurrency(held) = &mut held {
            held.charge(Time::EPOCH, cost);
        }
        held.key()
    }

    /// A ticket of the queue of a key, for a request that a store has admitted.
    pub(super) fn enter(&self, key: Fingerprint, due: Time) -> Option<u64> {
        match &self.tables {
            Tables::LeakyBucket(_, queue) => Some(queue.enter(key, due)),
            _ => None,
        }
    }

    /// Charges what a request cost above what it was charged.
    pub fn settle(&self, key: Fingerprint, now: Time, cost: u64) {
        let mut held = self.lock_key(key, now, None);
        each_held!(&mut held, held => held.settle(now, cost));
    }

    /// Ends a charge, and gives back the last `cost` of the `whole` that was charged.
    pub(super) fn give_back(&self, key: Fingerprint, now: Time, charge: u32, cost_of_whole: (u64, u64)) {
        each_table!(&self.tables, table => table.give_back(key, now, charge, cost_of_whole, |_| {}));
    }

    /// Ends a charge that is not given back.
    pub(super) fn close(&self, key: Fingerprint, charge: u32) {
        self.give_back(key, Time::EPOCH, charge, (0, 1)); // nothing needs no time
    }

    /// Removes a queued request that gives up and is counted in a store: those behind it move up.
    pub(super) fn give_up_turn(&self, key: Fingerprint, ticket: u64, cost: u64) {
        if let Tables::LeakyBucket(table, queue) = &self.tables {
            queue.give_up(key, ticket, table.algorithm().turn(cost));
        }
    }

    /// Replaces the state of `key` by the one that a store told at its time `now`, so that this process can decide from
    /// there if the store fails. Places are not learned: the table counts those of this process.
    pub fn learn(&self, key: Fingerprint, told: &RemoteState, now: Time) {
        let added = match (&self.tables, told) {
            (Tables::TokenBucket(table), RemoteState::TokenBucket(was, state)) => {
                table.learn(key, was, *state, now)
            }
            (Tables::LeakyBucket(table, _), RemoteState::LeakyBucket(was, state)) => {
                table.learn(key, was, *state, now)
            }
            (Tables::FixedWindow(table), RemoteState::FixedWindow(was, state)) => {
                table.learn(key, was, *state, now)
            }
            (Tables::SlidingLog(table), RemoteState::SlidingLog(was, state)) => {
                table.learn(key, was, state.clone(), now)
            }
            (Tables::SlidingWindow(table), RemoteState::SlidingWindow(was, state)) => {
                table.learn(key, was, state.clone(), now)
            }
            _ => false,
        };
        if added {
            self.sweep_a_little(key, now);
        }
    }
}

impl<'a> LockedKey<'a> {
    /// The same key, counted by `by` processes without knowing of each other.
    pub(super) fn shared(self, by: u16, in_flight: u32) -> DividedKey<'a> {
        DividedKey { key: self, by, in_flight }
    }

    pub(super) fn key(&self) -> Fingerprint {
        each_held!(self, held => held.key())
    }

    /// What a request has to give back that was charged at `now` and is delayed by `delay`. With `queue`, a delayed request
    /// gets a ticket.
    fn taken(&self, now: Time, delay: Span, queue: bool) -> Reservation {
        match self {
            LockedKey::Concurrency(_) => Reservation::Place,
            LockedKey::LeakyBucket(held, waiting) if queue && !delay.is_zero() => {
                Reservation::Turn(waiting.enter(held.key(), now.plus(delay)))
            }
            _ => Reservation::Nothing,
        }
    }

    fn added(&self) -> bool {
        each_held!(self, held => held.added)
    }

    /// Keeps a charge that may be given back; returns its ticket.
    fn open(&mut self, cost: u64, receipt: Receipt) -> u32 {
        each_held!(self, held => held.open(cost, receipt))
    }
}

impl DividedKey<'_> {
    pub(super) fn key(&self) -> Fingerprint {
        self.key.key()
    }

    /// What a request has to give back that was charged at `now` and is delayed by `delay`. With `queue`, a delayed request
    /// gets a ticket.
    pub(super) fn taken(&self, now: Time, delay: Span, queue: bool) -> Reservation {
        self.key.taken(now, delay, queue)
    }

    /// Keeps a charge that may be given back; returns its ticket.
    pub(super) fn open(&mut self, cost: u64, receipt: Receipt) -> u32 {
        self.key.open(cost, receipt)
    }

    /// Whether the key is new to the table.
    pub(super) fn added(&self) -> bool {
        self.key.added()
    }

    /// The cost as it counts here. A cost that the limit can hold never becomes one that it cannot.
    pub(super) fn times(&self, now: Time, cost: u64) -> u64 {
        if self.by == 1 || matches!(self.key, LockedKey::Concurrency(_)) {
            return cost; // places are counted here as they are taken here; the limit is divided instead
        }
        let capacity = each_held!(&self.key, held => held.usage(now)).capacity;
        cost.saturating_mul(u64::from(self.by)).min(capacity.max(cost))
    }
}

impl KeyState for DividedKey<'_> {
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        let Usage { capacity, remaining, .. } = each_held!(&self.key, held => held.usage(now));
        if let LockedKey::Concurrency(_) = &self.key {
            let share = (capacity / u64::from(self.by)).max(1);
            if capacity - remaining + u64::from(self.in_flight) + cost > share && cost <= capacity {
                return Err(Refusal::Busy);
            }
        }
        let wanted = self.times(now, cost);
        let answer = each_held!(&self.key, held => held.check(now, wanted));
        let in_flight = u64::from(self.in_flight) * u64::from(self.by);
        match answer {
            // What is under way takes what there is; it is known soon whether it did.
            Ok(_) if in_flight > 0 && wanted.saturating_add(in_flight) > remaining => {
                let most = each_held!(&self.key, held => held.check(now, capacity)).err();
                Err(most.unwrap_or(Refusal::Until(Span::from_millis(1))))
            }
            answer => answer,
        }
    }

    fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        let cost = self.times(now, cost);
        each_held!(&mut self.key, held => held.charge(now, cost))
    }

    fn refused(&mut self, now: Time, cost: u64) {
        let cost = self.times(now, cost);
        each_held!(&mut self.key, held => held.refused(now, cost));
    }

    fn usage(&self, now: Time) -> Usage {
        let mut usage = each_held!(&self.key, held => held.usage(now));
        usage.remaining /= u64::from(self.by);
        usage
    }
}
