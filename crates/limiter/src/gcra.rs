//! The arithmetic that both buckets share: a debt that drains at a constant rate.
//!
//! This is the generic cell rate algorithm (ITU-T I.371): a key is one number, the theoretical arrival time at
//! which its debt is paid. It is kept in *ticks*, of which there are so many to a nanosecond that a request
//! costs a whole number of them too: with the rate N/W reduced to n/w, a nanosecond is n ticks and a request
//! is w ticks.

use crate::{Charge, Rate, Receipt, Span, Time};

/// A rate as a reduced fraction: `per_nano` ticks drain in a nanosecond, a request adds `per_request` ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmissionRate {
    pub(crate) per_nano: u64,
    pub(crate) per_request: u64,
}

/// What one key of a bucket owes: the tick at which it owes nothing. Two words, so that a slot needs no more
/// than eight-byte alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tat {
    low: u64,
    high: u64,
}

impl EmissionRate {
    /// The pace of a rate.
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

    /// The same of ticks that fit a word. Most rates have a nanosecond's tick, which needs no division.
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
    /// The debt that is paid at this tick since the Unix epoch.
    #[inline]
    pub const fn until(tick: u128) -> Self {
        Self { low: tick as u64, high: (tick >> 64) as u64 } // the two words, on purpose
    }

    /// The tick since the Unix epoch at which nothing is owed.
    #[inline]
    pub const fn paid_at(self) -> u128 {
        ((self.high as u128) << 64) | self.low as u128
    }

    #[inline]
    fn set_paid_at(&mut self, tick: u128) {
        *self = Self::until(tick);
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

    /// Takes back what has not drained of a charge by `now`. It drains after what was owed before it, so what is left
    /// of it is what is left until the tick at which it is paid. Those `others` that are behind it are paid so much earlier.
    pub(crate) fn take_back<'c>(
        &mut self,
        emission_rate: EmissionRate,
        now: Time,
        charge: Charge,
        others: impl Iterator<Item = &'c mut Charge>,
    ) {
        let left = charge
            .at
            .saturating_sub(emission_rate.clock(now))
            .min(charge.amount)
            .min(self.owed(emission_rate, now));
        self.set_paid_at(self.paid_at() - left);
        for behind in others.filter(|other| other.at > charge.at) {
            behind.at -= left;
        }
    }

    /// Owes `ticks` from `now`, whatever was owed before.
    #[inline]
    pub(crate) fn set_owed(&mut self, emission_rate: EmissionRate, now: Time, ticks: u128) {
        self.set_paid_at(emission_rate.clock(now).saturating_add(ticks));
    }
}

/// Carries charges of a key that owes `owed` ticks at `now` over from the pace `old` to `new`, where `scale` turns the
/// ticks that were owed into those that are.
///
/// A charge is worth what the debt would be less without it. Where that depends on which of the others are given back
/// too, because a debt below empty is scaled in another way than the rest, it is worth the least that it can be.
pub(crate) fn carry(
    (old, new): (EmissionRate, EmissionRate),
    owed: u128,
    now: Time,
    charges: &mut [Charge],
    scale: impl Fn(u128) -> u128,
) {
    let (whole, mut less) = (scale(owed), owed);
    for charge in charges {
        let until = charge.at.saturating_sub(old.clock(now));
        let left = charge.amount.min(until);
        let alone = whole - scale(owed.saturating_sub(left));
        let behind_others = scale(less) - scale(less.saturating_sub(left));
        less = less.saturating_sub(left);
        *charge =
            Charge { amount: alone.min(behind_others), at: new.clock(now).saturating_add(scale(until)) };
    }
}

/// `a · b / c`, rounded up, for c below 2¹²⁷. Exact: where the product does not fit, it is never formed, but
/// divided as it grows, bit by bit of `b`.
pub(crate) fn scale_up(a: u128, b: u128, c: u128) -> u128 {
    debug_assert!(c > 0 && c < 1 << 127);
    if let Some(product) = a.checked_mul(b) {
        return product.div_ceil(c);
    }
    let (whole, rest) = (a / c, a % c);
    let (mut quotient, mut remainder) = (0_u128, 0_u128);
    for bit in (0..128).rev() {
        quotient = quotient.saturating_mul(2);
        remainder *= 2;
        if (b >> bit) & 1 == 1 {
            quotient = quotient.saturating_add(whole);
            remainder += rest;
        }
        quotient = quotient.saturating_add(remainder / c);
        remainder %= c;
    }
    quotient.saturating_add(u128::from(remainder > 0))
}

/// `a · b / c`, rounded down, for b ≤ c.
pub(crate) fn scale_down(a: u128, b: u128, c: u128) -> u128 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => a - scale_up(a, c - b, c),
    }
}

/// `a / b`. The wide division is a library call of some 20 ns, so numbers that fit a word take the short one.
#[inline]
fn divide(a: u128, b: u64) -> u128 {
    match u64::try_from(a) {
        Ok(a) => u128::from(a / b),
        Err(_) => a / u128::from(b),
    }
}

pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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

    #[test]
    fn scaling_is_exact_even_where_the_product_does_not_fit() {
        assert_eq!(scale_up(50, 10, 100), 5);
        assert_eq!(scale_up(1, 1, 3), 1);
        let huge = 31_622_400_000_000_000_u128 * 1_000_000_000;
        assert_eq!(scale_up(huge / 2, huge, huge), huge / 2);
        // (h − 1)(h − 7) / (h − 3) = h − 5 − 8 / (h − 3)
        assert_eq!(scale_up(huge - 1, huge - 7, huge - 3), huge - 5);
    }
}
