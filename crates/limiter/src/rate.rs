//! How much is allowed: a count in a period, within the bounds in which the arithmetic is exact.

use std::fmt;

use crate::Span;

/// The largest count a rate, a bucket or a cost may have.
pub const MAX_COUNT: u64 = 1_000_000_000;
/// The shortest period of a rate.
pub const MIN_PERIOD: Span = Span::MILLISECOND;
/// The longest period of a rate: 366 days.
pub const MAX_PERIOD: Span = Span::from_secs(366 * 86_400);
/// The most places that one key of a sliding log may hold.
pub const MAX_LOG_PLACES: u64 = 1_000_000;
/// The most places that one key of a sliding log may hold where several processes share it: a store reads and writes
/// the log as a whole.
pub const MAX_SHARED_LOG_PLACES: u64 = 10_000;
/// The most sub-windows of a sliding window.
pub const MAX_SLICES: u32 = 1_000;

/// `count` requests in `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    period: Span,
}

/// Why a quota was not accepted.
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

/// `count` itself if it is one that the arithmetic can hold.
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
