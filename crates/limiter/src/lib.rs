//! The limits of Sluicegate: pure arithmetic, and nothing else.
//!
//! Every algorithm is a small value that holds its quota. It reads a key's state, the time and a cost, and
//! answers with a verdict. Nothing here knows a clock, a thread or a socket: the time is an argument, so the
//! code that serves is the code that tests, replays and explanations run.
//!
//! All arithmetic is on whole numbers. A rate of 7 per 90 s is kept as the reduced fraction 7 / 90·10⁹ ns and
//! a bucket's debt in units that make both sides whole (see [`EmissionRate`]), so a client that comes back at the very
//! instant it was told to is admitted, and a nanosecond earlier is refused.
//!
//! A decision over several limits is made in two steps, because a refusal by one may take nothing from any
//! other: [`Algorithm::check`] every limit first, then [`Algorithm::charge`] all of them, or
//! [`Algorithm::refused`] those that said no.
//!
//! ```
//! use sluicegate_limiter::{Algorithm, Rate, Span, Time, TokenBucket};
//!
//! let bucket = TokenBucket::new(Rate::new(5, Span::SECOND).unwrap(), 2).unwrap();
//! let mut key = Default::default();
//! let now = Time::from_nanos(1_720_000_800_000_000_000);
//!
//! for _ in 0..2 {
//!     bucket.check(&key, now, 1).unwrap();
//!     bucket.charge(&mut key, now, 1);
//! }
//! let refusal = bucket.check(&key, now, 1).unwrap_err();
//! assert_eq!(refusal.retry_after(), Some(Span::from_millis(200)));
//! ```

mod ban;
mod calendar;
mod concurrency;
mod decision;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod micros;
mod quota;
mod rate;
mod sliding_log;
mod sliding_window;
mod time;
mod token_bucket;

pub use ban::{Ban, MAX_BAN_AFTER, Strikes};
pub use calendar::Calendar;
pub use concurrency::{Concurrency, InFlight};
pub use decision::{Acquired, Algorithm, Charge, Receipt, Refusal, Usage};
pub use fixed_window::{FixedWindow, Window};
pub use gcra::{EmissionRate, Tat};
pub use leaky_bucket::LeakyBucket;
pub(crate) use micros::MAX_DEBT;
pub use micros::{BucketInMicros, MAX_SHARED_MICROS, Micros};
pub use quota::Quota;
pub use rate::{
    MAX_COUNT, MAX_LOG_PLACES, MAX_PERIOD, MAX_SHARED_LOG_PLACES, MAX_SLICES, MIN_PERIOD, QuotaError, Rate,
};
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::{Slices, SlidingWindow};
pub use time::{Span, Time};
pub use token_bucket::TokenBucket;
