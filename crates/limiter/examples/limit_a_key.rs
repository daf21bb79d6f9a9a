//! Limits one key to 2 requests a second, with a burst of 3, and says when to come back.

#![allow(clippy::disallowed_methods, reason = "an example reads the clock, which is the caller's part")]

use std::time::{SystemTime, UNIX_EPOCH};

use sluicegate_limiter::{Algorithm, QuotaError, Rate, Span, Time, TokenBucket};

/// The time now. Set back by at most a few centuries, it still fits.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn main() -> Result<(), QuotaError> {
    let bucket = TokenBucket::new(Rate::new(2, Span::SECOND)?, 3)?;
    let mut state = Default::default();
    for request in 1..=8 {
        let (answer, usage) = bucket.acquire(&mut state, now(), 1);
        match answer {
            Ok(_) => println!("request {request}: admitted, {} left", usage.remaining),
            Err(refusal) => {
                let wait = refusal.retry_after().unwrap_or(Span::SECOND);
                println!("request {request}: refused, try again in {} ms", wait.as_nanos() / 1_000_000);
                std::thread::sleep(std::time::Duration::from_nanos(wait.as_nanos()));
            }
        }
    }
    Ok(())
}
