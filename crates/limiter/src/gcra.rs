//! The generic cell rate algorithm (ITU-T I.371), which both buckets use: a debt that drains at a constant rate.
//!
//! The state of a key is one number, its theoretical arrival time: the time at which its debt is paid. It is counted in
//! *ticks*, which make both a nanosecond and a request a whole number: with the rate N/W reduced to n/w, a nanosecond has
//! n ticks and a request costs w ticks.

use crate::arithmetic::{divide, gcd};
use crate::{Acquired, Algorithm, Charge, Rate, Receipt, Refusal, Span, Time, Usage};

/// A rate as a reduced fraction: `per_nano` ticks drain in a nanosecond, a request adds `per_request` ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmissionRate {
    pub(crate) per_nano: u64,
    pub(crate) per_request: u64,
}

/// The theoretical arrival time of a key: the tick at which it owes nothing. It is kept as two words, because an entry of
/// a table then needs an alignment of only eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tat {
    low: u64,
    high: u64,
}

impl EmissionRate {
    /// The emission rate of a quota.
    pub fn of(rate: Rate) -> Self {
        let (count, period) = (rate.count(), rate.period().as_nanos());
        let divisor = gcd(count, period);
        Self { per_nano: count / divisor, per_request: period / divisor }
    }

    /// The ticks of `requests`. At most 10⁹ · 3.2·10¹⁶, far below 2¹²⁸.
    #[inline]
    pub(crate) fn ticks(self, requests: u64) -> u128 {
        u128::from(requests) * u128::from(self.per_request)
    }

    /// Ticks since the Unix epoch.
    #[inline]
    pub fn clock(self, now: Time) -> u128 {
        u128::from(now.as_nanos()) * u128::from(self.per_nano)
    }

    /// The whole requests in `ticks`.
    #[inline]
    pub(crate) fn requests(self, ticks: u128) -> u64 {
        let whole = divide(ticks, self.per_request);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    /// The time in which `ticks` drain, rounded up to a nanosecond.
    #[inline]
    pub(crate) fn time_up(self, ticks: u128) -> Span {
        Span::saturating_from(divide(ticks.saturating_add(u128::from(self.per_nano) - 1), self.per_nano))
    }

    /// Like [`time_up`](Self::time_up), for ticks that fit a word. For most rates a tick is a nanosecond, which needs no
    /// division.
    #[inline]
    pub(crate) fn time_up_of_word(self, ticks: u64) -> Span {
        Span::from_nanos(if self.per_nano == 1 { ticks } else { ticks.div_ceil(self.per_nano) })
    }

    /// The time in which `ticks` drain, rounded down to a nanosecond.
    #[inline]
    pub(crate) fn time_down(self, ticks: u128) -> Span {
        Span::saturating_from(divide(ticks, self.per_nano))
    }

    /// The ticks that drain in `span`.
    pub(crate) fn drained_in(self, span: Span) -> u128 {
        u128::from(span.as_nanos()) * u128::from(self.per_nano)
    }
}

impl Tat {
    /// A debt that is paid at this tick since the Unix epoch.
    #[inline]
    pub const fn until(tick: u128) -> Self {
        Self { low: tick as u64, high: (tick >> 64) as u64 } // the two words, on purpose
    }

    /// The tick since the Unix epoch at which nothing is owed.
    #[inline]
    pub const fn paid_at(self) -> u128 {
        ((self.high as u128) << 64) | self.low as u128
    }

    /// The ticks owed at `now`. A clock that steps back makes the debt larger, never smaller.
    #[inline]
    pub(crate) fn owed(self, emission_rate: EmissionRate, now: Time) -> u128 {
        self.paid_at().saturating_sub(emission_rate.clock(now))
    }

    /// Adds `ticks` to what is owed at `now`. The receipt is the tick at which all of it is paid.
    #[inline]
    pub(crate) fn add(&mut self, emission_rate: EmissionRate, now: Time, ticks: u128) -> Receipt {
        self.set_owed(emission_rate, now, self.owed(emission_rate, now).saturating_add(ticks));
        Receipt::from_number(self.paid_at())
    }

    /// Makes the debt `ticks` at `now`.
    #[inline]
    pub(crate) fn set_owed(&mut self, emission_rate: EmissionRate, now: Time, ticks: u128) {
        *self = Self::until(emission_rate.clock(now).saturating_add(ticks));
    }
}

/// An algorithm whose state is a theoretical arrival time. A debt is given in ticks.
pub(crate) trait Bucket {
    /// The rate at which a debt drains.
    fn emission_rate(&self) -> EmissionRate;

    /// The largest debt that late costs may lead to.
    fn most(&self) -> u128;

    /// Whether a key with the debt `owed` may spend `cost`; see [`Algorithm::check`].
    fn check_owed(&self, owed: u128, cost: u64) -> Result<Span, Refusal>;

    /// What a key with the debt `owed` has left.
    fn usage_of(&self, owed: u128) -> Usage;

    /// The debt `owed` in whole requests; see [`Algorithm::owed`].
    fn requests_owed(&self, owed: u128) -> u64;

    /// The debt here that corresponds to a debt of `ticks` under `old`.
    fn scaled(&self, old: &Self, ticks: u128) -> u128;
}

impl<B: Bucket> Algorithm for B {
    type State = Tat;

    #[inline]
    fn check(&self, state: &Tat, now: Time, cost: u64) -> Result<Span, Refusal> {
        self.check_owed(state.owed(self.emission_rate(), now), cost)
    }

    #[inline]
    fn charge(&self, state: &mut Tat, now: Time, cost: u64) -> Receipt {
        state.add(self.emission_rate(), now, self.emission_rate().ticks(cost))
    }

    /// Computes the debt once for all three steps.
    #[inline]
    fn acquire(&self, state: &mut Tat, now: Time, cost: u64) -> Acquired {
        let owed = state.owed(self.emission_rate(), now);
        match self.check_owed(owed, cost) {
            Ok(delay) => {
                let sum = owed.saturating_add(self.emission_rate().ticks(cost));
                state.set_owed(self.emission_rate(), now, sum);
                (Ok((delay, Receipt::from_number(state.paid_at()))), self.usage_of(sum))
            }
            Err(refusal) => (Err(refusal), self.usage_of(owed)),
        }
    }

    fn settle(&self, state: &mut Tat, now: Time, cost: u64) {
        let owed = state.owed(self.emission_rate(), now);
        let sum = owed.saturating_add(self.emission_rate().ticks(cost));
        state.set_owed(self.emission_rate(), now, sum.min(self.most()).max(owed));
    }

    fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        Charge { amount: self.emission_rate().ticks(cost), at: receipt.number() }
    }

    /// A charge drains after the debts before it, so the part of it that is left is what is left until the tick at which
    /// it is paid. Those `others` that were made later are then paid earlier.
    fn take_back(&self, state: &mut Tat, now: Time, charge: Charge, others: &mut [Charge]) {
        let undrained = charge.at.saturating_sub(self.emission_rate().clock(now));
        let left = undrained.min(charge.amount).min(state.owed(self.emission_rate(), now));
        *state = Tat::until(state.paid_at() - left);
        for later in others.iter_mut().filter(|other| other.at > charge.at) {
            later.at -= left;
        }
    }

    /// A charge is worth the amount by which the debt would be smaller without it. Where that depends on which of the
    /// others are given back too, because a debt below empty is scaled in another way than the rest, it is worth the
    /// smallest possible amount.
    fn carry(&self, old: &Self, state: &Tat, now: Time, charges: &mut [Charge]) {
        let owed = state.owed(old.emission_rate(), now);
        let scale = |ticks| self.scaled(old, ticks);
        let (whole, mut rest) = (scale(owed), owed);
        for charge in charges {
            let until = charge.at.saturating_sub(old.emission_rate().clock(now));
            let left = charge.amount.min(until);
            let alone = whole - scale(owed.saturating_sub(left));
            let after_others = scale(rest) - scale(rest.saturating_sub(left));
            rest = rest.saturating_sub(left);
            let at = self.emission_rate().clock(now).saturating_add(scale(until));
            *charge = Charge { amount: alone.min(after_others), at };
        }
    }

    #[inline]
    fn usage(&self, state: &Tat, now: Time) -> Usage {
        self.usage_of(state.owed(self.emission_rate(), now))
    }

    fn owed(&self, state: &Tat, now: Time) -> u64 {
        self.requests_owed(state.owed(self.emission_rate(), now))
    }

    #[inline]
    fn is_idle(&self, state: &Tat, now: Time) -> bool {
        state.owed(self.emission_rate(), now) == 0
    }

    fn rescale(&self, old: &Self, state: &mut Tat, now: Time) {
        let owed = state.owed(old.emission_rate(), now);
        state.set_owed(self.emission_rate(), now, self.scaled(old, owed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reduced() {
        let rate = Rate::new(100, Span::from_secs(60)).unwrap();
        assert_eq!(EmissionRate::of(rate), EmissionRate { per_nano: 1, per_request: 600_000_000 });
        let odd = Rate::new(7, Span::from_secs(90)).unwrap();
        assert_eq!(EmissionRate::of(odd), EmissionRate { per_nano: 7, per_request: 90_000_000_000 });
    }
}
