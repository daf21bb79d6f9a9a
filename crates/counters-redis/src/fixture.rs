//! A shared limit for the tests of this crate.

use std::sync::Arc;

use sluicegate_counters::{CostKind, CountedLimit, Counters, StoreFailurePolicy};
use sluicegate_limiter::Quota;

pub(crate) fn limit(quota: Quota, max_keys: usize, order: u64) -> CountedLimit {
    let mut limit = CountedLimit {
        name: format!("limit-{order}").into(),
        quota,
        ban: None,
        enforced: true,
        cost: CostKind::Constant(1),
        shared: None,
        counters: Arc::new(Counters::new(&quota, max_keys, order)),
        bans: None,
    };
    crate::share(&mut limit, "", StoreFailurePolicy::Local);
    limit
}
