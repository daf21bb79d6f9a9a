//! The rate-limiting algorithms of Sluicegate: pure arithmetic.
//!
//! An algorithm is a small value with its quota. It reads the state of a key, the time and a cost, and returns a verdict.
//! What this crate never does: it reads no clock, takes no lock and does no I/O. The time is an argument, so that tests
//! and replays run the same code as the gateway.
//!
//! All arithmetic is on whole numbers. A rate of 7 per 90 s is the reduced fraction 7 / 90·10⁹ ns, and the debt of a
//! bucket is in units that make both sides whole (see [`EmissionRate`]). So a client that returns exactly after
//! `Retry-After` is admitted, and a nanosecond earlier it is refused.
//!
//! A decision over several limits has two steps, because a refusal by one may charge no other: first
//! [`Algorithm::check`] every limit, then [`Algorithm::charge`] all of them, or [`Algorithm::refused`] those that refuse.
//!
//! Start reading in `decision.rs` (the trait) and `fixed_window.rs` (the simplest algorithm); then `gcra.rs` (both
//! buckets).
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod arithmetic;
mod ban;
mod calendar;
mod concurrency;
mod decision;
mod division;
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
pub use division::Division;
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
