//! Reads the state of a key as a script returned it.

use redis::Value;
use sluicegate_counters::RemoteState;
use sluicegate_limiter::{InFlight, Log, Micros, Quota, Time, Window};
use smallvec::SmallVec;

use super::protocol::{Malformed, time, whole};

/// Reads the state of a key of `quota` as a script told it at `now`:
///
/// - a bucket: what is owed, in microseconds and parts of one
/// - fixed_window: the index of the window and what is used in it
/// - sliding_window: the index of the newest sub-window, and 4 bytes for each count, newest first
/// - sliding_log: instants and places in turn: of the oldest as many as decide when a request fits, merged, and
///   the rest as if all were taken at the newest instant. The places never become free too early.
/// - concurrency: the places that are taken, and those of this gateway
pub(super) fn read_state(quota: &Quota, state: &[Value], now: Time) -> Result<RemoteState, Malformed> {
    let two = || match state {
        [one, other] => Ok((whole(one)?, other)),
        _ => Err(Malformed("a state of two values")),
    };
    Ok(match quota {
        Quota::TokenBucket(bucket, ..) => {
            RemoteState::TokenBucket(*bucket, bucket.emission_rate().debt(now, micros(two()?)?))
        }
        Quota::LeakyBucket(bucket, ..) => {
            RemoteState::LeakyBucket(*bucket, bucket.emission_rate().debt(now, micros(two()?)?))
        }
        Quota::FixedWindow(window, _) => {
            let (index, used) = two()?;
            RemoteState::FixedWindow(*window, Window::new(index, whole(used)?))
        }
        Quota::SlidingWindow(window, _) => {
            let (index, counts) = two()?;
            RemoteState::SlidingWindow(*window, window.state(index, numbers(counts)?))
        }
        Quota::SlidingLog(log, _) => RemoteState::SlidingLog(*log, places(state)?),
        Quota::Concurrency(places, _) => {
            let (taken, own) = two()?;
            RemoteState::Concurrency(*places, InFlight::new(taken), whole(own)?)
        }
    })
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
