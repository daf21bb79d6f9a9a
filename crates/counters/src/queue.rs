//! The queue of a leaky bucket: each request is due at a time, which becomes earlier when a request before it gives up.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use sluicegate_limiter::{Span, Time};

use super::sync::{Mutex, lock};
use crate::Fingerprint;

/// The number of locks over which keys are spread.
const SHARDS: usize = if cfg!(feature = "model") { 2 } else { 32 };

/// The waiting requests of one limit. A key without waiting requests takes no memory.
pub(super) struct Queue(Box<[Shard]>);

/// One lock, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    waiting: HashMap<Fingerprint, VecDeque<Waiting>>,
}

struct Waiting {
    ticket: u64,
    due: Time,
    waker: Option<Waker>,
}

impl Default for Queue {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl Queue {
    fn shard(&self, key: Fingerprint) -> &Mutex<State> {
        &self.0[(key.get() >> 40) as usize % SHARDS].0
    }

    /// Adds a request that is due at `due` and returns its ticket. The caller holds the lock of the key.
    pub(super) fn enter(&self, key: Fingerprint, due: Time) -> u64 {
        let mut state = lock(self.shard(key));
        let ticket = state.next;
        state.next += 1;
        state.waiting.entry(key).or_default().push_back(Waiting { ticket, due, waker: None });
        ticket
    }

    /// The due time of a request. `waker` is woken when that changes and the request is the first of its queue; the others
    /// are not due before it.
    pub(super) fn due(&self, key: Fingerprint, ticket: u64, waker: &Waker) -> Option<Time> {
        let mut state = lock(self.shard(key));
        let queue = state.waiting.get_mut(&key)?;
        let at = place(queue, ticket)?;
        match &mut queue[at].waker {
            Some(known) if known.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
        Some(queue[at].due)
    }

    /// Removes a request that is due.
    pub(super) fn leave(&self, key: Fingerprint, ticket: u64) {
        self.remove(key, ticket, Span::ZERO);
    }

    /// Removes a request that gives up; those behind it move up by `turn`. The caller holds the lock of the key.
    pub(super) fn give_up(&self, key: Fingerprint, ticket: u64, turn: Span) {
        self.remove(key, ticket, turn);
    }

    /// Changes the rest of each wait at `now` to the result of `carry`.
    pub(super) fn rescale(&self, now: Time, carry: impl Fn(Span) -> Span) {
        let mut wakers = Vec::new();
        for shard in &self.0 {
            for queue in lock(&shard.0).waiting.values_mut() {
                for waiting in &mut *queue {
                    waiting.due = now.plus(carry(waiting.due.since(now)));
                }
                wakers.extend(queue.front().and_then(|first| first.waker.clone()));
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Changes the rest of each wait for one key, as [`rescale`](Self::rescale) does. The caller holds the lock of the key.
    pub(super) fn rescale_key(&self, key: Fingerprint, now: Time, carry: impl Fn(Span) -> Span) {
        let mut state = lock(self.shard(key));
        let Some(queue) = state.waiting.get_mut(&key) else { return };
        for waiting in &mut *queue {
            waiting.due = now.plus(carry(waiting.due.since(now)));
        }
        let first = queue.front().and_then(|first| first.waker.clone());
        drop(state);
        if let Some(first) = first {
            first.wake();
        }
    }

    fn remove(&self, key: Fingerprint, ticket: u64, turn: Span) {
        let mut state = lock(self.shard(key));
        let Some(queue) = state.waiting.get_mut(&key) else { return };
        let Some(at) = place(queue, ticket) else { return };
        queue.remove(at);
        if !turn.is_zero() {
            for waiting in queue.range_mut(at..) {
                waiting.due = Time::from_nanos(waiting.due.as_nanos().saturating_sub(turn.as_nanos()));
            }
        }
        let first = queue.front().and_then(|first| first.waker.clone());
        if queue.is_empty() {
            state.waiting.remove(&key);
        }
        drop(state);
        if let Some(first) = first {
            first.wake();
        }
    }
}

/// The position of a ticket: tickets ascend.
fn place(queue: &VecDeque<Waiting>, ticket: u64) -> Option<usize> {
    queue.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_behind_one_that_gives_up_move_up() {
        let queue = Queue::default();
        let key = Fingerprint::OVERFLOW;
        let at = |millis: u64| Time::EPOCH.plus(Span::from_millis(millis));
        let tickets: Vec<u64> = [0, 500, 1_000, 1_500].map(|ms| queue.enter(key, at(ms))).to_vec();
        queue.give_up(key, tickets[1], Span::from_millis(500));
        let due = |i: usize| queue.due(key, tickets[i], Waker::noop());
        assert_eq!((due(0), due(1), due(2), due(3)), (Some(at(0)), None, Some(at(500)), Some(at(1_000))));
        for i in [0, 2, 3] {
            queue.leave(key, tickets[i]);
        }
        let none_waits = |shard: &Shard| lock(&shard.0).waiting.is_empty();
        assert!(queue.0.iter().all(none_waits), "a key without waiting requests is not held");
    }
}
