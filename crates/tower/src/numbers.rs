//! The algorithm of a limit with its numbers, as they were given.

use sluicegate_limiter::{
    Concurrency, FixedWindow, Quota, QuotaError, Rate, SlidingLog, SlidingWindow, Span, TokenBucket,
};

/// An algorithm with numbers that may be out of range.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers {
    Quota(Quota),
    TokenBucket { count: u64, period: Span, burst: Option<u64> },
    FixedWindow { count: u64, period: Span },
    SlidingWindow { count: u64, period: Span, slices: u32, strict: bool },
    SlidingLog { count: u64, period: Span, count_rejected: bool },
    Concurrency { max: u64 },
}

impl Numbers {
    /// The quota.
    pub(crate) fn quota(self) -> Result<Quota, QuotaError> {
        Ok(match self {
            Self::Quota(quota) => quota,
            Self::TokenBucket { count, period, burst } => {
                let (rate, burst) = (Rate::new(count, period)?, burst.unwrap_or(count));
                Quota::TokenBucket(TokenBucket::new(rate, burst)?, rate, burst)
            }
            Self::FixedWindow { count, period } => {
                let rate = Rate::new(count, period)?;
                Quota::FixedWindow(FixedWindow::new(rate), rate)
            }
            Self::SlidingWindow { count, period, slices, strict } => {
                let rate = Rate::new(count, period)?;
                let window = SlidingWindow::new(rate, slices)?;
                Quota::SlidingWindow(if strict { window.strict() } else { window }, rate)
            }
            Self::SlidingLog { count, period, count_rejected } => {
                let rate = Rate::new(count, period)?;
                Quota::SlidingLog(SlidingLog::new(rate, count_rejected)?, rate)
            }
            Self::Concurrency { max } => Quota::Concurrency(Concurrency::new(max)?, max),
        })
    }

    /// The name of the algorithm.
    pub(crate) const fn algorithm(&self) -> &'static str {
        match self {
            Self::Quota(quota) => quota.algorithm(),
            Self::TokenBucket { .. } => "token_bucket",
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::SlidingLog { .. } => "sliding_log",
            Self::Concurrency { .. } => "concurrency",
        }
    }
}
