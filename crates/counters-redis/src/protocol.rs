//! The arguments and replies of the scripts, as bytes and numbers.
//!
//! An argument depends on a quota and a cost only, so that it can be computed once. All numbers are big-endian:
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | the algorithm: 1 the buckets, 2 fixed_window, 3 sliding_window, 4 sliding_log, 5 concurrency |
//! | 1 | flags: 1 the limit is enforced, 2 the cost is never admitted, 4 it bans |
//! | buckets | scale 8 (a double), parts of a microsecond 4, then cost, room, whole and most, each 7 + 4, scale of a request 8 |
//! | fixed_window | period 6, count 4, cost 4 |
//! | sliding_window | period 6, slices 2 (plus 32768 if it is strict), count 4, cost 6 |
//! | sliding_log | period 6, count 4, cost 4, whether it counts the rejected 1 |
//! | concurrency | max 4, cost 4 |
//! | a ban, at the end | refusals 2, the time within which they count 7, how long it lasts 7 |
//! | periods of a calendar, after all others | the starts of five periods in seconds, each 4: the previous, the current and the next three |
//! | a receipt | buckets: instant 7 + 4; fixed_window: index 6; sliding_window: index 7; sliding_log: instant 7 |

use std::borrow::Cow;

use redis::Value;
use sluicegate_counters::{CostKind, CountedLimit, RemoteBan, RemoteState, SharedLimit, StoreFailurePolicy};
use sluicegate_leases::Terms;
use sluicegate_limiter::{
    Ban, BucketInMicros, Charge, EmissionRate, LeakyBucket, Micros, Quota, Rate, Span, Strikes, Time,
    TokenBucket,
};
use smallvec::SmallVec;

use super::remote_state::read_state;
use super::reply::{Malformed, list, time, whole};

const NEVER: u8 = 2;
/// Added to the number of sub-windows of a strict sliding_window.
const STRICT: u16 = 32_768;
const BANS: u8 = 4;

/// The algorithm of all keys of a call, or `Several`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithms {
    Buckets,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
    Several,
}

impl Algorithms {
    pub(super) const ALL: [Self; 6] = [
        Self::Buckets,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
        Self::Concurrency,
        Self::Several,
    ];

    /// The algorithm of these quotas.
    pub(super) fn of<'a>(quotas: impl Iterator<Item = &'a Quota>) -> Self {
        let kinds = quotas.map(|quota| match quota {
            Quota::TokenBucket(..) | Quota::LeakyBucket(..) => Self::Buckets,
            Quota::FixedWindow(..) => Self::FixedWindow,
            Quota::SlidingWindow(..) => Self::SlidingWindow,
            Quota::SlidingLog(..) => Self::SlidingLog,
            Quota::Concurrency(..) => Self::Concurrency,
        });
        kinds.reduce(|all, kind| if all == kind { all } else { Self::Several }).unwrap_or(Self::Several)
    }
}

/// The reply of the script that decides.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    /// The server's time, at which all of it was decided.
    pub now: Time,
    /// The decision; `None` if the deadline had passed and nothing was changed.
    pub decided: Option<Decided>,
}

/// The decision of the script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decided {
    /// The number of requests that were admitted: the first ones.
    pub admitted: u32,
    /// The state of each key before the first request. [`evaluate`](sluicegate_counters::evaluate) makes the same decisions
    /// from these.
    pub keys: SmallVec<[RemoteState; 2]>,
    /// The states of the bans, likewise.
    pub bans: Vec<RemoteBan>,
}

/// The reply of the other scripts: the state of each key afterwards.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatesReply {
    /// The server's time.
    pub now: Time,
    /// The states, in the order of the keys.
    pub keys: SmallVec<[RemoteState; 2]>,
}

/// Makes a limit one that a store counts for several processes. The names of its keys begin with `key_prefix`; `leased` says
/// how its tokens are leased, if they are.
pub fn share(
    limit: &mut CountedLimit,
    key_prefix: &[u8],
    on_failure: StoreFailurePolicy,
    leased: Option<Terms>,
) {
    let argument = match limit.cost {
        CostKind::Constant(cost) => Some(limit_argument(limit, cost)),
        CostKind::PerRequest | CostKind::Late(_) => None,
    };
    let longest_wait = limit.quota.drain().filter(|_| limit.late_cost().is_none());
    let mut shared = SharedLimit::new(key_prefix.to_vec(), on_failure);
    (shared.argument, shared.longest_wait, shared.leased) = (argument, longest_wait, leased);
    limit.shared = Some(shared);
}

/// The argument of a limit and a cost for the script that decides.
pub(super) fn limit_argument(limit: &CountedLimit, cost: u64) -> Vec<u8> {
    let mut bytes = argument(&limit.quota, limit.enforced, cost);
    if let Some(ban) = &limit.ban {
        bytes[1] |= BANS;
        bytes.extend(&ban.after().to_be_bytes()[6..]);
        bytes.extend(&ban.within().ceil_micros().to_be_bytes()[1..]);
        bytes.extend(&ban.span().ceil_micros().to_be_bytes()[1..]);
    }
    bytes
}

/// The same argument for a limit without bans.
pub(super) fn argument(quota: &Quota, enforces: bool, cost: u64) -> Vec<u8> {
    let flags = u8::from(enforces) | if cost > quota.capacity() { NEVER } else { 0 };
    let cost_bytes = number(cost);
    match quota {
        Quota::TokenBucket(bucket, rate, burst) => Bucket::token(bucket, *rate, *burst, cost).argument(flags),
        Quota::LeakyBucket(bucket, rate, _) => Bucket::leaky(bucket, *rate, cost).argument(flags),
        Quota::FixedWindow(window, rate) => {
            // A calendar has no period: each call has the starts of its windows.
            let period = window.calendar().map_or(period(*rate), |_| [0; 6]);
            [&[2, flags][..], &period, &number(rate.count()), &cost_bytes].concat()
        }
        Quota::SlidingWindow(window, rate) => {
            let strict = if window.is_strict() { STRICT } else { 0 };
            let slices = (u16::try_from(window.slices()).unwrap_or(u16::MAX) | strict).to_be_bytes();
            [&[3, flags][..], &period(*rate), &slices, &number(rate.count()), &wide(cost)].concat()
        }
        Quota::SlidingLog(log, rate) => {
            let counts = [u8::from(log.counts_rejected())];
            [&[4, flags][..], &period(*rate), &number(rate.count()), &cost_bytes, &counts].concat()
        }
        Quota::Concurrency(_, max) => [&[5, flags][..], &number(*max), &cost_bytes].concat(),
    }
}

/// An argument, followed by the periods of a calendar around `now` on the clock of the server. They cover clocks that
/// differ by a whole period.
pub(super) fn at<'a>(
    argument: impl Into<Cow<'a, [u8]>>,
    quota: &Quota,
    now: impl FnOnce() -> Time,
) -> Cow<'a, [u8]> {
    let argument = argument.into();
    let Quota::FixedWindow(window, _) = quota else { return argument };
    let Some(calendar) = window.calendar() else { return argument };
    let current = calendar.start(now());
    let next = |start: u64| calendar.end(start).unwrap_or(u32::MAX.into());
    let (first, second) = (next(current), next(next(current)));
    let mut bytes = argument.into_owned();
    for start in [calendar.before(current).unwrap_or(current), current, first, second, next(second)] {
        bytes.extend(u32::try_from(start).unwrap_or(u32::MAX).to_be_bytes());
    }
    Cow::Owned(bytes)
}

/// The argument for the script that refunds: the quota in force, and the charge.
pub(super) fn refund_argument(quota: &Quota, charge: Charge) -> Vec<u8> {
    let plain = || argument(quota, false, u64::try_from(charge.amount()).unwrap_or(u64::MAX));
    let place = u64::try_from(charge.at()).unwrap_or(u64::MAX); // an index or an instant
    match quota {
        Quota::TokenBucket(bucket, rate, burst) => {
            Bucket::token(bucket, *rate, *burst, 0).refund_argument(charge)
        }
        Quota::LeakyBucket(bucket, rate, _) => Bucket::leaky(bucket, *rate, 0).refund_argument(charge),
        Quota::FixedWindow(..) => [&plain()[..], &place.to_be_bytes()[2..]].concat(),
        Quota::SlidingWindow(..) => [&plain()[..], &place.to_be_bytes()[1..]].concat(),
        Quota::SlidingLog(..) => [&plain()[..], &(place / 1_000).to_be_bytes()[1..]].concat(),
        Quota::Concurrency(..) => plain(),
    }
}

/// The argument for the scripts that charge afterwards: `amount` is the sum of the costs.
pub(super) fn spend_argument(quota: &Quota, amount: u64) -> Vec<u8> {
    argument(quota, false, amount)
}

impl Reply {
    /// Reads the reply to a call for keys of these quotas and for these bans.
    ///
    /// # Errors
    /// When the reply is malformed.
    pub(super) fn read(value: &Value, quotas: &[&Quota], bans: &[Ban]) -> Result<Self, Malformed> {
        let [now, admitted, keys @ ..] = list(value)? else {
            return Err(Malformed("the time and a number"));
        };
        let now = time(now)?;
        if *admitted == Value::Int(-1) {
            return Ok(Self { now, decided: None });
        }
        let admitted = u32::try_from(whole(admitted)?).map_err(|_| Malformed("a number of requests"))?;
        let (keys, bans_reply) =
            keys.split_at_checked(quotas.len()).ok_or(Malformed("a state for each key"))?;
        let (keys, bans) = (read_keys(keys, quotas, now)?, read_bans(bans_reply, bans, now)?);
        Ok(Self { now, decided: Some(Decided { admitted, keys, bans }) })
    }
}

impl StatesReply {
    /// Reads the reply to a call for keys of these quotas.
    ///
    /// # Errors
    /// When the reply is malformed.
    pub(super) fn read(value: &Value, quotas: &[&Quota]) -> Result<Self, Malformed> {
        let [now, keys @ ..] = list(value)? else { return Err(Malformed("the time")) };
        let now = time(now)?;
        Ok(Self { now, keys: read_keys(keys, quotas, now)? })
    }
}

/// Checks the reply to the script that uses all commands.
///
/// # Errors
/// When the reply is malformed.
pub(super) fn check_probe(value: &Value) -> Result<(), Malformed> {
    let [now, Value::BulkString(text), Value::Int(4), Value::BulkString(packed)] = list(value)? else {
        return Err(Malformed("a time, a text, a length and four bytes"));
    };
    time(now)?;
    match (text.as_slice(), packed.as_slice()) {
        (b"abcd", [0, 0, 0, 7]) => Ok(()),
        _ => Err(Malformed("the text abcd and the bytes 0, 0, 0, 7")),
    }
}

fn read_keys(keys: &[Value], quotas: &[&Quota], now: Time) -> Result<SmallVec<[RemoteState; 2]>, Malformed> {
    if keys.len() != quotas.len() {
        return Err(Malformed("a state for each key"));
    }
    keys.iter().zip(quotas).map(|(key, quota)| read_state(quota, list(key)?, now)).collect()
}

fn read_bans(bans_reply: &[Value], bans: &[Ban], now: Time) -> Result<Vec<RemoteBan>, Malformed> {
    if bans_reply.len() != bans.len() {
        return Err(Malformed("a state for each ban"));
    }
    let read = |(reply, ban): (&Value, &Ban)| {
        let [left, refusals] = list(reply)? else { return Err(Malformed("what is left of a ban")) };
        let until = now.plus(Span::from_nanos(whole(left)?.saturating_mul(1_000)));
        let strikes = Strikes::from_store(until, whole(refusals)?, now);
        Ok(RemoteBan { ban: *ban, strikes, begun: false })
    };
    bans_reply.iter().zip(bans).map(read).collect()
}

/// The numbers of a bucket. The configuration rejects a bucket that cannot be shared; here it would admit nothing.
struct Bucket {
    scale: f64,
    emission_rate: EmissionRate,
    numbers: BucketInMicros,
}

impl Bucket {
    fn token(bucket: &TokenBucket, rate: Rate, burst: u64, cost: u64) -> Self {
        let scale = micros_of(rate) * burst as f64 / rate.count() as f64;
        let numbers = bucket.in_micros(cost).unwrap_or_default();
        Self { scale, emission_rate: bucket.emission_rate(), numbers }
    }

    fn leaky(bucket: &LeakyBucket, rate: Rate, cost: u64) -> Self {
        let scale = micros_of(rate) / rate.count() as f64;
        let numbers = bucket.in_micros(cost).unwrap_or_default();
        Self { scale, emission_rate: bucket.emission_rate(), numbers }
    }

    /// The argument for a refund: the numbers of the charge follow those of the bucket.
    fn refund_argument(mut self, charge: Charge) -> Vec<u8> {
        self.numbers.cost = self.emission_rate.micros(charge.amount());
        let mut bytes = self.argument(0);
        put(&mut bytes, self.emission_rate.micros(charge.at()));
        bytes
    }

    fn argument(&self, flags: u8) -> Vec<u8> {
        let BucketInMicros { parts, cost, room, whole, most, per_request } = self.numbers;
        let mut bytes = Vec::with_capacity(2 + 8 + 4 + 4 * 11 + 8 + 11);
        bytes.extend([1, if room.is_none() { flags | NEVER } else { flags }]);
        bytes.extend(self.scale.to_be_bytes());
        bytes.extend(parts.to_be_bytes());
        for micros in [cost, room.unwrap_or_default(), whole, most] {
            put(&mut bytes, micros);
        }
        bytes.extend(per_request.to_be_bytes());
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, micros: Micros) {
    bytes.extend(&micros.whole.to_be_bytes()[1..]);
    bytes.extend(&micros.part.to_be_bytes()[4..]);
}

fn micros_of(rate: Rate) -> f64 {
    rate.period().as_nanos() as f64 / 1_000.0
}

fn period(rate: Rate) -> [u8; 6] {
    let [_, _, bytes @ ..] = rate.period().ceil_micros().to_be_bytes();
    bytes
}

/// A count, which is at most [`MAX_COUNT`](sluicegate_limiter::MAX_COUNT).
fn number(count: u64) -> [u8; 4] {
    u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes()
}

/// A cost that may be the sum of many late ones.
fn wide(cost: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = cost.min((1 << 48) - 1).to_be_bytes();
    bytes
}
