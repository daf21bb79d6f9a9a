//! A limit for the tests of this folder.

use std::sync::Arc;

use sluicegate_limiter::Quota;

use super::{Counters, Limit};
use crate::config::{Cost, Exempt, KeySpec, LimitConfig, Mode, OnMissing, OnStoreFailure, Part};
use crate::keys::KeySecret;

pub(super) fn limit(quota: Quota, max_keys: usize, order: u64) -> Arc<Limit> {
    let config = LimitConfig {
        name: format!("limit-{order}"),
        key: KeySpec::new(vec![vec![Part::Global]]),
        quota,
        zone: None,
        plans: Vec::new(),
        candidate: None,
        when: None,
        cost: Cost::Constant(1),
        ban: None,
        mode: Mode::Enforce,
        exempt: Exempt::default(),
        on_missing: OnMissing::Shared,
        shared: false,
        whole_key: false,
        on_store_failure: OnStoreFailure::Local,
        max_keys,
    };
    let counters = Arc::new(Counters::new(&quota, max_keys, order));
    Arc::new(Limit::new(config, counters, None, 64, &KeySecret::default(), ""))
}
