//! Fair shares.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::KeySpec;

/// How a limit, or what an upstream can handle, is divided among consumers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FairConfig {
    /// Who gets a share.
    pub by: KeySpec,
    /// The weights of plans; those of others are 1.
    pub weights: BTreeMap<String, u32>,
}

impl FairConfig {
    /// The weight of a consumer on this plan.
    pub fn weight(&self, plan: Option<&str>) -> u32 {
        plan.and_then(|plan| self.weights.get(plan)).copied().unwrap_or(1)
    }
}
