//! Points in time and lengths of time, both in whole nanoseconds.

use std::fmt;
use std::time::Duration;

/// A point in time: nanoseconds since the Unix epoch. Good until the year 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// The point `nanos` nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The point `span` later, or the last representable one.
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// A length of zero.
    pub const ZERO: Self = Self(0);
    /// One microsecond.
    pub const MICROSECOND: Self = Self(1_000);
    /// One millisecond.
    pub const MILLISECOND: Self = Self(1_000_000);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);
    /// 24 hours.
    pub const DAY: Self = Self(86_400 * 1_000_000_000);
    /// The longest representable length: 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// A length of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A length of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A length of `seconds` seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The length in whole microseconds, rounded up, so that waiting for it is never too short.
    pub const fn ceil_micros(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The length in whole seconds, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Whether the length is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// This length minus `other`, never below zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// A length of `nanos` nanoseconds, or the longest representable one.
    #[inline]
    pub(crate) fn saturating_from(nanos: u128) -> Self {
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0)
    }
}

/// A duration above [`Span::MAX`] becomes that.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self::saturating_from(duration.as_nanos())
    }
}

/// Writes the largest unit that gives a whole number: `90s`, `1500ms`, `250us`, `7ns`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
            n => write!(f, "{n}ns"),
        }
    }
}
