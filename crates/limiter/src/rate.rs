//! A rate: a count per period, within the bounds in which the arithmetic is exact.

use std::fmt;

use crate::Span;

/// The largest count of a rate, size of a bucket, or cost.
pub const MAX_COUNT: u64 = 1_000_000_000;
/// The shortest period of a rate.
pub const MIN_PERIOD: Span = Span::MILLISECOND;
/// The longest period of a rate: 366 days.
pub const MAX_PERIOD: Span = Span::from_secs(366 * 86_400);
/// The largest number of places of one key of a sliding log.
pub const MAX_LOG_PLACES: u64 = 1_000_000;
/// The largest number of places of one key of a sliding log that several processes share: a store reads and writes the
/// log as a whole.
pub const MAX_SHARED_LOG_PLACES: u64 = 10_000;
/// The largest number of sub-windows of a sliding window.
pub const MAX_SLICES: u32 = 1_000;

/// `count` requests in `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    period: Span,
}

/// Why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaError {
    /// A count, burst or maximum outside 1 to [`MAX_COUNT`].
    Count(u64),
    /// A period outside [`MIN_PERIOD`] to [`MAX_PERIOD`].
    Period(Span),
    /// More than [`MAX_LOG_PLACES`] in a sliding log.
    LogPlaces(u64),
    /// Sub-windows outside 1 to [`MAX_SLICES`].
    Slices(u32),
}

impl Rate {
    /// `count` requests in `period`.
    ///
    /// # Errors
    /// When the count or the period is outside its bounds.
    pub fn new(count: u64, period: Span) -> Result<Self, QuotaError> {
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            return Err(QuotaError::Period(period));
        }
        Ok(Self { count: checked_count(count)?, period })
    }

    /// Requests in one period.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The period.
    pub const fn period(self) -> Span {
        self.period
    }
}

/// Returns `count` if it is within 1 to [`MAX_COUNT`].
pub(crate) fn checked_count(count: u64) -> Result<u64, QuotaError> {
    if (1..=MAX_COUNT).contains(&count) { Ok(count) } else { Err(QuotaError::Count(count)) }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(n) => write!(f, "{n} is outside 1 to 1,000,000,000"),
            Self::Period(span) => write!(f, "a period of {span} is outside 1ms to 366 days"),
            Self::LogPlaces(n) => write!(f, "a sliding_log of {n} places a key is above 1,000,000"),
            Self::Slices(n) => write!(f, "{n} slices are outside 1 to {MAX_SLICES}"),
        }
    }
}

impl std::error::Error for QuotaError {}
