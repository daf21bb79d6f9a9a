//! token_bucket: a bucket of `burst` tokens, full at the start, refilled continuously.

use crate::arithmetic::scale_up;
use crate::gcra::Bucket;
use crate::rate::checked_count;
use crate::{
    Acquired, BucketInMicros, EmissionRate, MAX_DEBT, QuotaError, Rate, Receipt, Refusal, Span, Time, Usage,
};

/// Admits while the bucket holds the cost. The missing tokens are a debt that drains at the rate, so that a bucket never
/// has more than `burst` tokens. A late cost is owed in full, also below empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    emission_rate: EmissionRate,
    burst: u64,
    /// The number of tokens that late costs may take below empty.
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

    /// The number of tokens that late costs may take below empty.
    pub const fn overdraft(&self) -> u64 {
        self.overdraft
    }

    /// The numbers for a request of `cost` in a store that counts microseconds; `None` if they do not fit there.
    pub fn in_micros(&self, cost: u64) -> Option<BucketInMicros> {
        let room = self.burst.checked_sub(cost).map(|left| self.emission_rate.ticks(left));
        let cost = self.emission_rate.ticks(cost);
        BucketInMicros::of(self.emission_rate, cost, room, self.capacity(), self.most())
    }

    /// The rate at which it is refilled.
    pub const fn emission_rate(&self) -> EmissionRate {
        self.emission_rate
    }

    /// [`acquire`](crate::Algorithm::acquire) in words, for a key whose theoretical arrival time is `base + above` ticks
    /// since the Unix epoch. `above` is changed to the new time.
    ///
    /// Returns `None`, and changes nothing, if a number does not fit a word or the clock shows less than `base`.
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
    fn capacity(&self) -> u128 {
        self.emission_rate.ticks(self.burst)
    }
}

impl Bucket for TokenBucket {
    #[inline]
    fn emission_rate(&self) -> EmissionRate {
        self.emission_rate
    }

    /// The whole bucket and the overdraft, but no more than drains in [`MAX_DEBT`] unless the bucket alone takes longer.
    fn most(&self) -> u128 {
        let capacity = self.capacity();
        capacity
            .saturating_add(self.emission_rate.ticks(self.overdraft))
            .min(capacity.max(self.emission_rate.drained_in(MAX_DEBT)))
    }

    #[inline]
    fn check_owed(&self, owed: u128, cost: u64) -> Result<Span, Refusal> {
        if cost > self.burst {
            return Err(Refusal::Never);
        }
        match owed.saturating_add(self.emission_rate.ticks(cost)).checked_sub(self.capacity()) {
            None | Some(0) => Ok(Span::ZERO),
            Some(missing) => Err(Refusal::Until(self.emission_rate.time_up(missing))),
        }
    }

    #[inline]
    fn usage_of(&self, owed: u128) -> Usage {
        Usage {
            remaining: self.emission_rate.requests(self.capacity().saturating_sub(owed)),
            capacity: self.burst,
            reset: self.emission_rate.time_up(owed),
        }
    }

    fn requests_owed(&self, owed: u128) -> u64 {
        self.emission_rate.requests(owed.saturating_add(u128::from(self.emission_rate.per_request) - 1))
    }

    /// A bucket that is half empty stays half empty. Below empty, the debt stays as many tokens.
    fn scaled(&self, old: &Self, ticks: u128) -> u128 {
        let within = ticks.min(old.capacity());
        let below = scale_up(ticks - within, self.emission_rate.ticks(1), old.emission_rate.ticks(1));
        scale_up(within, self.capacity(), old.capacity()).saturating_add(below).min(self.most())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Algorithm, MAX_COUNT, Tat};

    proptest! {
        /// `acquire_above` answers as `acquire` does, or not at all.
        #[test]
        fn words_answer_as_the_whole_number(
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
                let Some(answer) = bucket.acquire_above(&mut above, base, now, cost) else {
                    prop_assert_eq!(before, above);
                    continue;
                };
                prop_assert_eq!(answer, bucket.acquire(&mut debt, now, cost));
                if answer.0.is_ok() {
                    prop_assert_eq!(debt.paid_at(), base + u128::from(above));
                }
            }
        }

        /// `acquire` answers as `check`, `charge` and `usage` do.
        #[test]
        fn one_step_answers_as_three(
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
