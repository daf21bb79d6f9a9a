//! The state of a key as a store told it, which answers as a local one does.

use sluicegate_limiter::{
    Algorithm, Concurrency, Debt, FixedWindow, InFlight, LeakyBucket, Log, Receipt, Refusal, Slices,
    SlidingLog, SlidingWindow, Span, Standing, Time, TokenBucket, Window,
};

use crate::limit::Key;

/// An algorithm with the state of one key. Times are those of the store's clock.
#[derive(Clone, Debug, PartialEq)]
pub enum RemoteKey {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket, Debt),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket, Debt),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow, Window),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog, Log),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow, Slices),
    /// See [`Concurrency`].
    Concurrency(Concurrency, InFlight),
}

macro_rules! each {
    ($key:expr, ($algorithm:ident, $state:ident) => $body:expr) => {
        match $key {
            RemoteKey::TokenBucket($algorithm, $state) => $body,
            RemoteKey::LeakyBucket($algorithm, $state) => $body,
            RemoteKey::FixedWindow($algorithm, $state) => $body,
            RemoteKey::SlidingLog($algorithm, $state) => $body,
            RemoteKey::SlidingWindow($algorithm, $state) => $body,
            RemoteKey::Concurrency($algorithm, $state) => $body,
        }
    };
}

impl Key for RemoteKey {
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        each!(self, (algorithm, state) => algorithm.check(state, now, cost))
    }

    fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        each!(self, (algorithm, state) => algorithm.charge(state, now, cost))
    }

    fn refused(&mut self, now: Time, cost: u64) {
        each!(self, (algorithm, state) => algorithm.refused(state, now, cost));
    }

    fn standing(&self, now: Time) -> Standing {
        each!(self, (algorithm, state) => algorithm.standing(state, now))
    }
}
