//! Rules: where they are kept, and how long they are remembered.

use std::time::Duration;

use serde::Serialize;

use super::at::FileRef;
use super::serialize::seconds;

/// Where rules are kept, and how long they are remembered.
#[derive(Clone, Debug, Serialize)]
pub struct RulesConfig {
    /// The file of the rules.
    pub file: FileRef,
    /// How long the rule of a key is remembered.
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
    /// The longest that a request waits for the rule of its key.
    #[serde(serialize_with = "seconds")]
    pub wait: Duration,
    /// The number of keys whose rules are remembered.
    pub max_cached: usize,
}
