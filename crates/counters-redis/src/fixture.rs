//! A shared limit for the tests of this crate.

use std::sync::Arc;

use sluicegate_counters::{CountedLimit, Counters, StoreFailurePolicy};
use sluicegate_limiter::Quota;

pub(crate) fn limit(quota: Quota, max_keys: usize, number: u64) -> CountedLimit {
    let counters = Arc::new(Counters::new(&quota, max_keys));
    let mut limit = CountedLimit::new(&format!("limit-{number}"), quota, counters);
    crate::share(&mut limit, b"", StoreFailurePolicy::Local, None);
    limit
}
