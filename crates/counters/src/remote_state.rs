//! The state of a key that a store returned. It answers as a local state does.

use sluicegate_limiter::{
    Algorithm, Concurrency, FixedWindow, InFlight, LeakyBucket, Log, Receipt, Refusal, Slices, SlidingLog,
    SlidingWindow, Span, Tat, Time, TokenBucket, Usage, Window,
};

use crate::key_state::KeyState;

/// An algorithm with the state of one key. Times are those of the store's clock.
#[derive(Clone, Debug, PartialEq)]
pub enum RemoteState {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket, Tat),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket, Tat),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow, Window),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog, Log),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow, Slices),
    /// See [`Concurrency`]. The number is that of the places that this gateway holds.
    Concurrency(Concurrency, InFlight, u64),
}

macro_rules! each {
    ($key:expr, ($algorithm:ident, $state:ident) => $body:expr) => {
        match $key {
            RemoteState::TokenBucket($algorithm, $state) => $body,
            RemoteState::LeakyBucket($algorithm, $state) => $body,
            RemoteState::FixedWindow($algorithm, $state) => $body,
            RemoteState::SlidingLog($algorithm, $state) => $body,
            RemoteState::SlidingWindow($algorithm, $state) => $body,
            RemoteState::Concurrency($algorithm, $state, _) => $body,
        }
    };
}

impl RemoteState {
    /// See [`Algorithm::refund`].
    pub fn refund(&mut self, now: Time, cost: u64, receipt: Receipt) {
        each!(self, (algorithm, state) => algorithm.refund(state, now, cost, receipt));
    }

    /// See [`Algorithm::settle`].
    pub fn settle(&mut self, now: Time, cost: u64) {
        each!(self, (algorithm, state) => algorithm.settle(state, now, cost));
    }

    /// See [`Algorithm::is_idle`].
    pub fn is_idle(&self, now: Time) -> bool {
        each!(self, (algorithm, state) => algorithm.is_idle(state, now))
    }
}

impl KeyState for RemoteState {
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        each!(self, (algorithm, state) => algorithm.check(state, now, cost))
    }

    fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        each!(self, (algorithm, state) => algorithm.charge(state, now, cost))
    }

    fn refused(&mut self, now: Time, cost: u64) {
        each!(self, (algorithm, state) => algorithm.refused(state, now, cost));
    }

    fn usage(&self, now: Time) -> Usage {
        each!(self, (algorithm, state) => algorithm.usage(state, now))
    }
}
