//! States for a store that counts in microseconds and parts of a microsecond. Its numbers are doubles, which are exact
//! up to 2⁵³.
//!
//! With the rate N/W, W in microseconds, reduced to n'/w', a microsecond has n' parts and a request costs w' parts. A part
//! is a whole number of ticks, so a debt that was charged at whole microseconds is the same in both units.

use crate::arithmetic::gcd;
use crate::{EmissionRate, Span, Tat, Time};

/// The longest time in which a shared bucket may drain, in microseconds: some 200 years. Until 2053 the instant at which
/// it is empty is then below 2⁵³ µs.
pub const MAX_SHARED_MICROS: u64 = 6_300_000_000_000_000;

/// The longest debt that late costs can lead to: the longest that a store can represent.
pub(crate) const MAX_DEBT: Span = Span::from_nanos(MAX_SHARED_MICROS * 1_000);

/// A length of time or an instant in microseconds and parts. The [`EmissionRate`] defines how many parts a microsecond
/// has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros {
    /// Whole microseconds.
    pub whole: u64,
    /// Parts of one.
    pub part: u64,
}

/// The numbers of a bucket and a request that a store needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BucketInMicros {
    /// The number of parts of a microsecond.
    pub parts: u32,
    /// The cost of the request, at most `most`.
    pub cost: Micros,
    /// The largest debt with which the request is admitted; `None` if it never is.
    pub room: Option<Micros>,
    /// The debt of an empty bucket, or of a full queue.
    pub whole: Micros,
    /// The largest debt, late costs included.
    pub most: Micros,
    /// The cost of one request in microseconds, by which a debt below empty is converted to another rate.
    pub per_request: f64,
}

impl BucketInMicros {
    /// Converts amounts in ticks; `None` if the bucket takes longer than [`MAX_SHARED_MICROS`] to drain.
    pub(crate) fn of(
        emission_rate: EmissionRate,
        cost: u128,
        room: Option<u128>,
        whole: u128,
        most: u128,
    ) -> Option<Self> {
        let numbers = Self {
            parts: u32::try_from(emission_rate.parts()).ok()?,
            cost: emission_rate.micros_up(cost.min(most)),
            room: room.map(|ticks| emission_rate.micros_down(ticks)),
            whole: emission_rate.micros_up(whole),
            most: emission_rate.micros_up(most),
            per_request: emission_rate.per_request as f64 / emission_rate.per_micro() as f64,
        };
        (numbers.whole.whole <= MAX_SHARED_MICROS).then_some(numbers)
    }
}

impl EmissionRate {
    fn per_micro(self) -> u64 {
        self.per_nano * 1_000
    }

    /// The number of ticks of a part.
    fn ticks_a_part(self) -> u64 {
        gcd(self.per_micro(), self.per_request)
    }

    /// The number of parts of a microsecond.
    pub fn parts(self) -> u64 {
        self.per_micro() / self.ticks_a_part()
    }

    fn micros_from(self, parts: u128) -> Micros {
        let a_micro = u128::from(self.parts());
        Micros {
            whole: u64::try_from(parts / a_micro).unwrap_or(u64::MAX),
            part: (parts % a_micro) as u64, // less than a u64 to begin with
        }
    }

    fn micros_up(self, ticks: u128) -> Micros {
        self.micros_from(ticks.div_ceil(u128::from(self.ticks_a_part())))
    }

    fn micros_down(self, ticks: u128) -> Micros {
        self.micros_from(ticks / u128::from(self.ticks_a_part()))
    }

    fn ticks_in(self, micros: Micros) -> u128 {
        let parts = u128::from(micros.whole) * u128::from(self.parts()) + u128::from(micros.part);
        parts.saturating_mul(u128::from(self.ticks_a_part()))
    }

    /// The state of a key that owes `owed` at `now`.
    pub fn debt(self, now: Time, owed: Micros) -> Tat {
        let mut debt = Tat::default();
        debt.set_owed(self, now, self.ticks_in(owed));
        debt
    }

    /// The debt at `now`, rounded up to a part.
    pub fn owed(self, debt: Tat, now: Time) -> Micros {
        self.micros_up(debt.owed(self, now))
    }

    /// A number of ticks, or the instant so many ticks after the Unix epoch, rounded down to a part.
    pub fn micros(self, ticks: u128) -> Micros {
        self.micros_down(ticks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Algorithm, LeakyBucket, MAX_COUNT, MAX_PERIOD, Rate, Span, TokenBucket};

    fn rates() -> impl Strategy<Value = Rate> {
        let counts = prop_oneof![1..=100_u64, 1..=MAX_COUNT, Just(MAX_COUNT)];
        let periods = prop_oneof![1_000..=1_000_000_u64, 1_000..=MAX_PERIOD.as_nanos() / 1_000];
        (counts, periods)
            .prop_map(|(count, micros)| Rate::new(count, Span::from_nanos(micros * 1_000)).unwrap())
    }

    proptest! {
        /// A debt that was charged at whole microseconds is the same after a conversion to a store's units and back, and
        /// a store that has only these numbers admits what the bucket admits.
        #[test]
        fn conversion_to_micros_is_exact(
            rate in rates(), burst in 1..=1_000_u64, start in 0..10_000_000_000_000_000_u64,
            charges in prop::collection::vec((0..5_000_000_u64, 1..=400_u64), 1..20),
            max_delay in prop::option::of(0..100_000_000_u64),
        ) {
            let bucket = TokenBucket::new(rate, burst).unwrap();
            let queue = LeakyBucket::new(rate, burst, max_delay.map(Span::from_nanos)).unwrap();
            let (mut level, mut backlog, mut micros) = (Tat::default(), Tat::default(), start);
            for (later, cost) in charges {
                micros += later;
                let now = Time::from_nanos(micros * 1_000);
                let emission_rate = bucket.emission_rate();
                let admits = [bucket.check(&level, now, cost).is_ok(), queue.check(&backlog, now, cost).is_ok()];
                let numbers = [bucket.in_micros(cost), queue.in_micros(cost)];
                for ((state, number), admitted) in [&mut level, &mut backlog].into_iter().zip(numbers).zip(admits) {
                    let Some(number) = number else { return Ok(()) };
                    let owed = emission_rate.owed(*state, now);
                    prop_assert_eq!(emission_rate.debt(now, owed).owed(emission_rate, now), state.owed(emission_rate, now));
                    prop_assert_eq!(number.room.is_some_and(|room| owed <= room), admitted);
                    if admitted {
                        let receipt = state.add(emission_rate, now, emission_rate.ticks(cost));
                        let sum = emission_rate.ticks_in(owed) + emission_rate.ticks_in(number.cost);
                        prop_assert_eq!(emission_rate.ticks_in(emission_rate.owed(*state, now)), sum);
                        prop_assert_eq!(emission_rate.ticks_in(emission_rate.micros(receipt.number())), receipt.number());
                        prop_assert!(emission_rate.owed(*state, now) <= number.whole);
                    }
                }
            }
        }
    }

    #[test]
    fn a_bucket_of_a_thousand_years_cannot_be_shared() {
        let rate = |count| Rate::new(count, Span::from_secs(366 * 86_400)).unwrap();
        assert_eq!(TokenBucket::new(rate(1), 1_000).unwrap().in_micros(1), None);
        assert!(TokenBucket::new(rate(1), 190).unwrap().in_micros(1).is_some());
        assert!(LeakyBucket::new(rate(MAX_COUNT), MAX_COUNT, None).unwrap().in_micros(1).is_some());
    }

    #[test]
    fn seven_in_ninety_seconds_has_sevenths() {
        let rate = Rate::new(7, Span::from_secs(90)).unwrap();
        let numbers = TokenBucket::new(rate, 7).unwrap().in_micros(1).unwrap();
        assert_eq!(numbers.parts, 7);
        assert_eq!(numbers.cost, Micros { whole: 12_857_142, part: 6 });
        assert_eq!(numbers.room, Some(Micros { whole: 77_142_857, part: 1 }));
        assert_eq!(numbers.whole, Micros { whole: 90_000_000, part: 0 });
    }
}
