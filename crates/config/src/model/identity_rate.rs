//! The rate of a limit that the identity of a request names: where it is found, and what bounds it.

use std::fmt;

use serde::{Serialize, Serializer};
use sluicegate_limiter::{MAX_PERIOD, MIN_PERIOD, Rate, Span};

use crate::language::calendar::Unit;
use crate::language::values;

/// Where the rate of a limit comes from, and the highest that it can be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityRate {
    /// Where it is found.
    pub source: RateSource,
    /// The highest rate.
    #[serde(rename = "max_rate")]
    pub(crate) max: BoundedRate,
}

/// Where the rate of a limit is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateSource {
    /// In a claim of the verified token.
    Claim(String),
    /// In the metadata of the consumer.
    Metadata(String),
    /// In the answer of the external check.
    Check,
}

/// A rate that is not above the `max_rate` of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoundedRate {
    count: u64,
    period: Span,
    /// The period of the calendar, if it is one.
    unit: Option<Unit>,
}

impl IdentityRate {
    /// A rate as the configuration writes it, or a number, which is per the period of `max_rate`; `None` if it is neither,
    /// or not above zero.
    ///
    /// A rate above `max_rate` is `max_rate`. One that is not above it but has a larger count, such as 10000/day under
    /// 100/s, becomes the same rate with the count of `max_rate`, 100/864s: the count is what may pass at once.
    pub fn read(&self, text: &str) -> Option<BoundedRate> {
        let (count, period, unit) = match text.contains('/') {
            true => values::plain_rate(text)?,
            false => (values::plain_count(text)?, self.max.period, self.max.unit),
        };
        let valid = count > 0 && (MIN_PERIOD..=MAX_PERIOD).contains(&period);
        valid.then(|| self.max.bound(count, period, unit))
    }
}

impl BoundedRate {
    /// A rate of so many requests in so many seconds that nothing bounds; `None` if no limit can have it.
    pub fn unbounded(count: u64, seconds: u64) -> Option<Self> {
        let period = Span::from_secs(seconds);
        (count > 0 && (MIN_PERIOD..=MAX_PERIOD).contains(&period)).then_some(Self {
            count,
            period,
            unit: None,
        })
    }

    /// Whether it is this rate.
    pub fn is(&self, rate: Rate) -> bool {
        self.count == rate.count() && self.period == rate.period()
    }

    /// A rate of the configuration, as its own bound.
    pub(crate) fn new(rate: Rate, unit: Option<Unit>) -> Self {
        Self { count: rate.count(), period: rate.period(), unit }
    }

    /// The same average over a period that is so many times as long; `None` if that is too long.
    pub(crate) fn over(self, times: u64) -> Option<Self> {
        let period = Span::from_nanos(self.period.as_nanos().checked_mul(times)?);
        let rate = Self { count: self.count.checked_mul(times)?, period, unit: None };
        (period <= MAX_PERIOD).then_some(rate)
    }

    /// Whether it admits more over time than another one.
    pub(crate) fn is_above(&self, other: &Self) -> bool {
        let times = |count: u64, period: Span| u128::from(count) * u128::from(period.as_nanos());
        times(self.count, other.period) > times(other.count, self.period)
    }

    /// This rate as the bound of another one.
    fn bound(self, count: u64, period: Span, unit: Option<Unit>) -> Self {
        let wanted = Self { count, period, unit };
        if wanted.is_above(&self) {
            return self;
        }
        if count <= self.count {
            return wanted;
        }
        // Rounded up, so that it is not above the wanted rate, to microseconds, the smallest unit of a rate as it is written.
        let micros = u128::from(period.as_nanos()) * u128::from(self.count);
        let micros = micros.div_ceil(u128::from(count) * 1_000);
        // It is not longer than the wanted period, which fits.
        let period = Span::from_nanos(u64::try_from(micros * 1_000).unwrap_or(u64::MAX)).min(period);
        Self { count: self.count, period, unit: None }
    }
}

/// As the configuration writes it: 100/60s, 1000000/month.
impl fmt::Display for BoundedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Some(unit) => write!(f, "{}/{}", self.count, unit.name()),
            None => write!(f, "{}/{}", self.count, self.period),
        }
    }
}

impl Serialize for BoundedRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for RateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(name) => write!(f, "jwt:{name}"),
            Self::Metadata(name) => write!(f, "consumer:metadata.{name}"),
            Self::Check => f.write_str("check:rate"),
        }
    }
}

impl Serialize for RateSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_limiter::MAX_COUNT;

    use super::*;

    fn below(max: &str) -> IdentityRate {
        let (max, unit) = values::rate(max).unwrap();
        IdentityRate { source: RateSource::Check, max: BoundedRate::new(max, unit) }
    }

    fn read(max: &str, text: &str) -> Option<String> {
        below(max).read(text).map(|rate| rate.to_string())
    }

    #[test]
    fn rates_and_numbers_are_read_within_the_bound() {
        for (max, text, rate) in [
            ("1000/s", "100/s", "100/1s"),
            ("1000/s", "250", "250/1s"),
            ("1000/s", " 1k ", "1000/1s"),
            ("1000/s", "1001", "1000/1s"),
            ("1000/s", "2G/s", "1000/1s"),
            ("1000/s", "18446744073709551615", "1000/1s"),
            ("1000/s", "60/min", "60/60s"),
            ("100/s", "10000/day", "100/864s"),
            ("100/s", "7/90s", "7/90s"),
            ("1M/month", "20k", "20000/month"),
            ("1M/month", "2M/month", "1000000/month"),
            ("1M/month", "20k/day", "20000/day"),
            ("1M/month", "1/ms", "1000000/month"),
        ] {
            assert_eq!(read(max, text).as_deref(), Some(rate), "{text} below {max}");
        }
        for text in
            ["", "0", "-5", "0/s", "5/", "/s", "1.5", "5e2", "true", "5/0s", "5/400d", "5/us", "100 000"]
        {
            assert_eq!(read("1000/s", text), None, "{text}");
        }
    }

    proptest! {
        /// Nothing from outside admits more than `max_rate`, neither at once nor over time, nor more than it says. It can
        /// be written and read again.
        #[test]
        fn nothing_is_above_the_bound(
            (count, nanos) in (1..=MAX_COUNT, MIN_PERIOD.as_nanos()..=MAX_PERIOD.as_nanos()),
            (wanted, micros) in (1..=u64::MAX, 1_000..=MAX_PERIOD.as_nanos() / 1_000),
        ) {
            let max = BoundedRate { count, period: Span::from_nanos(nanos / 1_000 * 1_000), unit: None };
            let own = BoundedRate { count: wanted, period: Span::from_nanos(micros * 1_000), unit: None };
            let rate = max.bound(own.count, own.period, None);
            prop_assert!(rate.count >= 1 && rate.count <= max.count);
            prop_assert!(!rate.is_above(&max) && !rate.is_above(&own));
            if !own.is_above(&max) {
                let faster = BoundedRate { period: Span::from_nanos(rate.period.as_nanos() - 1_000), ..rate };
                prop_assert!(rate == own || faster.period.is_zero() || faster.is_above(&own), "{rate:?} for {own:?}");
            }
            let again = values::rate(&rate.to_string()).map(|(rate, unit)| BoundedRate::new(rate, unit));
            prop_assert_eq!(again.ok(), Some(rate));
        }
    }
}
