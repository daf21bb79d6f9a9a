//! A limit for the tests of this crate.

use std::sync::Arc;

use sluicegate_limiter::Quota;

use crate::{CountedLimit, Counters};

pub(crate) fn limit(quota: Quota, max_keys: usize, number: u64) -> Arc<CountedLimit> {
    let counters = Arc::new(Counters::new(&quota, max_keys));
    Arc::new(CountedLimit::new(&format!("limit-{number}"), quota, counters))
}
