//! A limit for the tests of this crate.

use std::sync::Arc;

use sluicegate_limiter::Quota;

use crate::{CostKind, CountedLimit, Counters};

pub(crate) fn limit(quota: Quota, max_keys: usize, order: u64) -> Arc<CountedLimit> {
    Arc::new(CountedLimit {
        name: format!("limit-{order}").into(),
        quota,
        ban: None,
        enforced: true,
        cost: CostKind::Constant(1),
        shared: None,
        counters: Arc::new(Counters::new(&quota, max_keys, order)),
        bans: None,
    })
}
