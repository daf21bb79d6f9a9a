//! The state of a key as a store told it, which answers as a local one does.

use redis::Value;
use sluicegate_limiter::{
    Algorithm, Concurrency, Debt, FixedWindow, InFlight, LeakyBucket, Log, Micros, Quota, Receipt, Refusal,
    Slices, SlidingLog, SlidingWindow, Span, Standing, Time, TokenBucket, Window,
};
use smallvec::SmallVec;

use super::wire::{Malformed, time, whole};
use crate::limit::Key;

/// An algorithm with the state of one key. Times are those of the store's clock.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::limit) enum RemoteKey {
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
    /// See [`Concurrency`]. The number is how many of the places this gateway holds.
    Concurrency(Concurrency, InFlight, u64),
}

macro_rules! each {
    ($key:expr, ($algorithm:ident, $state:ident) => $body:expr) => {
        match $key {
            RemoteKey::TokenBucket($algorithm, $state) => $body,
            RemoteKey::LeakyBucket($algorithm, $state) => $body,
            RemoteKey::FixedWindow($algorithm, $state) => $body,
            RemoteKey::SlidingLog($algorithm, $state) => $body,
            RemoteKey::SlidingWindow($algorithm, $state) => $body,
            RemoteKey::Concurrency($algorithm, $state, _) => $body,
        }
    };
}

impl RemoteKey {
    /// Reads the state of a key of `quota` as a script told it at `now`:
    ///
    /// - a bucket: what is owed, in microseconds and parts of one
    /// - fixed_window: the index of the window and what is used in it
    /// - sliding_window: the index of the newest sub-window, and 4 bytes for each count, newest first
    /// - sliding_log: instants and places in turn: of the oldest as many as decide when a request fits, merged, and
    ///   the rest as if all were taken at the newest instant. The places never become free too early.
    /// - concurrency: the places that are taken, and those of this gateway
    pub(super) fn read(quota: &Quota, state: &[Value], now: Time) -> Result<Self, Malformed> {
        let two = || match state {
            [one, other] => Ok((whole(one)?, other)),
            _ => Err(Malformed("a state of two values")),
        };
        Ok(match quota {
            Quota::TokenBucket(bucket, ..) => {
                Self::TokenBucket(*bucket, bucket.pace().debt(now, micros(two()?)?))
            }
            Quota::LeakyBucket(bucket, ..) => {
                Self::LeakyBucket(*bucket, bucket.pace().debt(now, micros(two()?)?))
            }
            Quota::FixedWindow(window, _) => {
                let (index, used) = two()?;
                Self::FixedWindow(*window, Window::new(index, whole(used)?))
            }
            Quota::SlidingWindow(window, _) => {
                let (index, counts) = two()?;
                Self::SlidingWindow(*window, window.state(index, numbers(counts)?))
            }
            Quota::SlidingLog(log, _) => Self::SlidingLog(*log, places(state)?),
            Quota::Concurrency(places, _) => {
                let (taken, own) = two()?;
                Self::Concurrency(*places, InFlight::new(taken), whole(own)?)
            }
        })
    }
}

impl RemoteKey {
    /// See [`Algorithm::refund`].
    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn refund(&mut self, now: Time, cost: u64, receipt: Receipt) {
        each!(self, (algorithm, state) => algorithm.refund(state, now, cost, receipt));
    }

    /// See [`Algorithm::settle`].
    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn settle(&mut self, now: Time, cost: u64) {
        each!(self, (algorithm, state) => algorithm.settle(state, now, cost));
    }

    /// See [`Algorithm::is_idle`].
    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn is_idle(&self, now: Time) -> bool {
        each!(self, (algorithm, state) => algorithm.is_idle(state, now))
    }
}

fn micros((whole_micros, part): (u64, &Value)) -> Result<Micros, Malformed> {
    Ok(Micros { whole: whole_micros, part: whole(part)? })
}

fn numbers(packed: &Value) -> Result<impl Iterator<Item = u32>, Malformed> {
    let Value::BulkString(bytes) = packed else { return Err(Malformed("packed counts")) };
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(Malformed("counts of 4 bytes"));
    }
    Ok(words.iter().map(|word| u32::from_be_bytes(*word)))
}

fn places(list: &[Value]) -> Result<Log, Malformed> {
    let (pairs, rest) = list.as_chunks::<2>();
    // So many numbers below 2⁴⁰ have a sum that can be told.
    if !rest.is_empty() || pairs.len() > 1 << 20 {
        return Err(Malformed("instants and places"));
    }
    let mut places = SmallVec::<[(Time, u64); 4]>::new();
    for [at, held] in pairs {
        let held = whole(held).ok().filter(|held| *held < 1 << 40).ok_or(Malformed("places"))?;
        places.push((time(at)?, held));
    }
    Ok(Log::of(places.into_iter()))
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
