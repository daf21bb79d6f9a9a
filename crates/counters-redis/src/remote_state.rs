//! Reads the state of a key in a reply.

use redis::Value;
use sluicegate_counters::RemoteState;
use sluicegate_limiter::{InFlight, Log, Micros, Quota, Time, Window};
use smallvec::SmallVec;

use super::reply::{Malformed, time, whole};

/// Reads the state of a key of `quota` that a script returned at `now`:
///
/// - a bucket: the debt, in microseconds and parts
/// - fixed_window: the index of the window and what is used in it
/// - sliding_window: the index of the newest sub-window, the bytes of a count, and the counts, newest first
/// - sliding_log: instants and places in turn: the oldest ones that decide when a request fits, merged, and the rest with the
///   newest instant. No place becomes free too early.
/// - concurrency: the number of taken places, and of those that this gateway holds
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
            let [index, width, counts] = state else { return Err(Malformed("a state of three values")) };
            RemoteState::SlidingWindow(*window, window.state(whole(index)?, numbers(whole(width)?, counts)?))
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

fn numbers(width: u64, packed: &Value) -> Result<impl Iterator<Item = u64>, Malformed> {
    let Value::BulkString(bytes) = packed else { return Err(Malformed("packed counts")) };
    match usize::try_from(width) {
        Ok(width @ (4 | 6)) if bytes.len().is_multiple_of(width) => {
            let number = |count: &[u8]| count.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            Ok(bytes.chunks_exact(width).map(number))
        }
        _ => Err(Malformed("counts of 4 or 6 bytes")),
    }
}

fn places(list: &[Value]) -> Result<Log, Malformed> {
    let (pairs, rest) = list.as_chunks::<2>();
    // The sum of so many numbers below 2⁴⁰ fits a `u64`.
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
