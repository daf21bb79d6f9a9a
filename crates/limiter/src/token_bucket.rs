//! token_bucket: a bucket of `burst` tokens, full at the start, refilled continuously.

use crate::gcra::{carry, scale_up};
use crate::rate::checked_count;
use crate::{
    Acquired, Algorithm, BucketInMicros, Charge, EmissionRate, MAX_DEBT, QuotaError, Rate, Receipt, Refusal,
    Span, Tat, Time, Usage,
};

/// Admits while the bucket holds the cost. A missing token is a debt that drains at the rate, so a bucket that
/// pauses is never fuller than full. A cost that becomes known only when it is spent is owed in full, also below empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    emission_rate: EmissionRate,
    burst: u64,
    /// Tokens that the bucket may lack below empty.
    overdraft: u64,
}

impl TokenBucket {
    /// A bucket of `burst` tokens, refilled at `rate`.
    ///
    /// # Errors
    /// When `burst` is outside 1 to [`MAX_COUNT`](crate::MAX_COUNT).
    pub fn new(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Ok(Self { emission_rate: EmissionRate::of(rate), burst: checked_count(burst)?, overdraft: u64::MAX })
    }

    /// The same bucket, in which late costs never leave more than `overdraft` tokens owed below empty.
    pub const fn with_overdraft(self, overdraft: u64) -> Self {
        Self { overdraft, ..self }
    }

    /// Tokens that the bucket may lack below empty.
    pub const fn overdraft(&self) -> u64 {
        self.overdraft
    }

    /// The numbers for a request of `cost` in a store that counts microseconds; none if they do not fit there.
    pub fn in_micros(&self, cost: u64) -> Option<BucketInMicros> {
        let room = self.burst.checked_sub(cost).map(|left| self.emission_rate.ticks(left));
        BucketInMicros::of(
            self.emission_rate,
            self.emission_rate.ticks(cost),
            room,
            self.capacity(),
            self.most(),
        )
    }

    /// How fast it is refilled.
    pub const fn emission_rate(&self) -> EmissionRate {
        self.emission_rate
    }

    /// [`acquire`](Algorithm::acquire) of a key that owes nothing from `base + above` ticks since the Unix epoch on, with no
    /// number wider than a word. `above` is then that of the key as it is left.
    ///
    /// None, and nothing is changed, where a number does not fit or the clock shows less than `base`.
    #[inline]
    pub fn acquire_above(&self, above: &mut u64, base: u128, now: Time, cost: u64) -> Option<Acquired> {
        let clock = u64::try_from(self.emission_rate.clock(now).checked_sub(base)?).ok()?;
        let capacity = self.burst.checked_mul(self.emission_rate.per_request)?;
        let owed = above.saturating_sub(clock);
        let wanted = owed.checked_add(cost.checked_mul(self.emission_rate.per_request)?)?;
        let usage = |owed: u64| Usage {
            remaining: capacity.saturating_sub(owed) / self.emission_rate.per_request,
            capacity: self.burst,
            reset: self.emission_rate.time_up_of_word(owed),
        };
        if wanted > capacity {
            let until = Refusal::Until(self.emission_rate.time_up_of_word(wanted - capacity));
            return Some((Err(if cost > self.burst { Refusal::Never } else { until }), usage(owed)));
        }
        *above = clock.checked_add(wanted)?;
        let receipt = Receipt::from_number(base + u128::from(*above));
        Some((Ok((Span::ZERO, receipt)), usage(wanted)))
    }

    #[inline]
    fn standing_of(&self, owed: u128) -> Usage {
        Usage {
            remaining: self.emission_rate.requests(self.capacity().saturating_sub(owed)),
            capacity: self.burst,
            reset: self.emission_rate.time_up(owed),
        }
    }

    #[inline]
    fn capacity(&self) -> u128 {
        self.emission_rate.ticks(self.burst)
    }

    /// The most ticks that may ever be owed: the whole bucket and the overdraft, and no more than drains in
    /// [`MAX_DEBT`] unless the bucket alone takes longer.
    fn most(&self) -> u128 {
        let whole = self.capacity();
        whole
            .saturating_add(self.emission_rate.ticks(self.overdraft))
            .min(whole.max(self.emission_rate.drained_in(MAX_DEBT)))
    }

    /// What is owed in this bucket of a debt of `old`: the same share of the bucket, and below empty the same tokens.
    fn scaled(&self, old: &Self, ticks: u128) -> u128 {
        let within = ticks.min(old.capacity());
        let below = scale_up(ticks - within, self.emission_rate.ticks(1), old.emission_rate.ticks(1));
        scale_up(within, self.capacity(), old.capacity()).saturating_add(below).min(self.most())
    }
}

impl Algorithm for TokenBucket {
    type State = Tat;

    #[inline]
    fn check(&self, state: &Tat, now: Time, cost: u64) -> Result<Span, Refusal> {
        if cost > self.burst {
            return Err(Refusal::Never);
        }
        let wanted = state.owed(self.emission_rate, now).saturating_add(self.emission_rate.ticks(cost));
        match wanted.checked_sub(self.capacity()) {
            None | Some(0) => Ok(Span::ZERO),
            Some(missing) => Err(Refusal::Until(self.emission_rate.time_up(missing))),
        }
    }

    #[inline]
    fn charge(&self, state: &mut Tat, now: Time, cost: u64) -> Receipt {
        state.add(self.emission_rate, now, self.emission_rate.ticks(cost))
    }

    #[inline]
    fn acquire(&self, state: &mut Tat, now: Time, cost: u64) -> Acquired {
        let owed = state.owed(self.emission_rate, now);
        let (wanted, capacity) = (owed.saturating_add(self.emission_rate.ticks(cost)), self.capacity());
        if cost > self.burst {
            return (Err(Refusal::Never), self.standing_of(owed));
        }
        if wanted > capacity {
            return (
                Err(Refusal::Until(self.emission_rate.time_up(wanted - capacity))),
                self.standing_of(owed),
            );
        }
        state.set_owed(self.emission_rate, now, wanted);
        (Ok((Span::ZERO, Receipt::from_number(state.paid_at()))), self.standing_of(wanted))
    }

    fn settle(&self, state: &mut Tat, now: Time, cost: u64) {
        let owed = state.owed(self.emission_rate, now);
        let wanted = owed.saturating_add(self.emission_rate.ticks(cost));
        state.set_owed(self.emission_rate, now, wanted.min(self.most()).max(owed));
    }

    fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        Charge { amount: self.emission_rate.ticks(cost), at: receipt.number() }
    }

    fn take_back<'c>(
        &self,
        state: &mut Tat,
        now: Time,
        charge: Charge,
        others: impl Iterator<Item = &'c mut Charge>,
    ) {
        state.take_back(self.emission_rate, now, charge, others);
    }

    fn carry(&self, old: &Self, state: &Tat, now: Time, charges: &mut [Charge]) {
        let owed = state.owed(old.emission_rate, now);
        carry((old.emission_rate, self.emission_rate), owed, now, charges, |ticks| self.scaled(old, ticks));
    }

    #[inline]
    fn usage(&self, state: &Tat, now: Time) -> Usage {
        self.standing_of(state.owed(self.emission_rate, now))
    }

    fn owed(&self, state: &Tat, now: Time) -> u64 {
        let ticks = state.owed(self.emission_rate, now);
        self.emission_rate.requests(ticks.saturating_add(u128::from(self.emission_rate.per_request) - 1))
    }

    #[inline]
    fn is_idle(&self, state: &Tat, now: Time) -> bool {
        state.owed(self.emission_rate, now) == 0
    }

    /// A bucket at half stays at half, and what is owed below empty stays as many tokens.
    fn rescale(&self, old: &Self, state: &mut Tat, now: Time) {
        let owed = state.owed(old.emission_rate, now);
        state.set_owed(self.emission_rate, now, self.scaled(old, owed));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAX_COUNT;

    proptest! {
        /// A debt that is kept as ticks above a base is asked as it is, or not at all.
        #[test]
        fn above_a_base_is_as_it_is(
            (count, nanos, burst) in (1..=MAX_COUNT, 1_000_000..=31_622_400_000_000_000_u64, 1..=MAX_COUNT),
            behind in prop_oneof![Just(0_u64), 1..=1_u64 << 62, any::<u64>()],
            steps in prop::collection::vec((0..2_000_000_000_u64, 0..=MAX_COUNT), 1..50),
        ) {
            let bucket = TokenBucket::new(Rate::new(count, Span::from_nanos(nanos)).unwrap(), burst).unwrap();
            let mut now = Time::from_nanos(1_795_000_000_000_000_000);
            let base = bucket.emission_rate.clock(now).saturating_sub(u128::from(behind));
            let (mut above, mut debt) = (0, Tat::default());
            for (later, cost) in steps {
                now = now.plus(Span::from_nanos(later));
                let (before, cost) = (above, if cost % 2 == 0 { cost } else { cost % burst + 1 });
                let Some(said) = bucket.acquire_above(&mut above, base, now, cost) else {
                    prop_assert_eq!(before, above);
                    continue;
                };
                prop_assert_eq!(said, bucket.acquire(&mut debt, now, cost));
                if said.0.is_ok() {
                    prop_assert_eq!(debt.paid_at(), base + u128::from(above));
                }
            }
        }

        /// A request that is asked in one step is answered as in three.
        #[test]
        fn one_step_is_as_three(
            (count, nanos, burst) in (1..=MAX_COUNT, 1_000_000..=31_622_400_000_000_000_u64, 1..=1_000_u64),
            steps in prop::collection::vec((0..2_000_000_000_u64, 1..400_u64), 1..50),
        ) {
            let bucket = TokenBucket::new(Rate::new(count, Span::from_nanos(nanos)).unwrap(), burst).unwrap();
            let (mut one, mut three) = (Tat::default(), Tat::default());
            let mut now = Time::from_nanos(1_795_000_000_000_000_000);
            for (later, cost) in steps {
                now = now.plus(Span::from_nanos(later));
                let checked = bucket.check(&three, now, cost);
                let answer = checked.map(|delay| (delay, bucket.charge(&mut three, now, cost)));
                prop_assert_eq!(bucket.acquire(&mut one, now, cost), (answer, bucket.usage(&three, now)));
                prop_assert_eq!(one, three);
            }
        }
    }
}
