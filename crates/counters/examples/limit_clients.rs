//! Eight threads send requests of three clients. Each client may send 100, and all together 250: exactly 250 are admitted.

#![allow(clippy::disallowed_methods, reason = "an example reads the clock, which is the caller's part")]

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sluicegate_counters::{Ask, CountedLimit, Counters, Fingerprint, KeySecret, decide};
use sluicegate_limiter::{FixedWindow, Quota, QuotaError, Rate, Span, Time};

const CLIENTS: [&str; 3] = ["203.0.113.7", "203.0.113.8", "2001:db8::9"];

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A limit of so many requests a day.
fn per_day(name: &str, count: u64) -> Result<Arc<CountedLimit>, QuotaError> {
    let rate = Rate::new(count, Span::from_secs(86_400))?;
    let quota = Quota::FixedWindow(FixedWindow::new(rate), rate);
    Ok(Arc::new(CountedLimit::new(name, quota, Arc::new(Counters::new(&quota, 10_000)))))
}

fn main() -> Result<(), QuotaError> {
    let (per_client, together) = (per_day("per-client", 100)?, per_day("together", 250)?);
    let secret = KeySecret::default();
    let key = |text: &str| Fingerprint::from_hash(secret.hash_one(text));
    let admitted = [const { AtomicUsize::new(0) }; CLIENTS.len()];
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for (client, admitted) in CLIENTS.iter().zip(&admitted).cycle().take(300) {
                    let now = now();
                    let asks =
                        [Ask::new(&per_client, key(client), 1, now), Ask::new(&together, key("all"), 1, now)];
                    if decide(&asks, false).admitted {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    for (client, admitted) in CLIENTS.iter().zip(&admitted) {
        println!("{client}: {} of 800 admitted", admitted.load(Ordering::Relaxed));
    }
    println!("together: {}", admitted.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>());
    Ok(())
}
