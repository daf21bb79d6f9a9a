//! A rule as operators write it and as stores keep it.

use serde::{Deserialize, Serialize};

/// Other numbers of one limit for one key or for the keys of a pattern. This is its form in the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Its name, which the operator chooses; unique among all rules.
    pub id: String,
    /// The name of the limit.
    pub limit: String,
    /// The key (`k1`, `api_key:k1`, `203.0.113.9`; the values of a composite key joined by commas) or a pattern of keys
    /// (`merchant-*`, `203.0.113.0/24`).
    pub key: String,
    /// The rate instead of that of the limit, such as `500/min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The size of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The number of requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// The mode instead of that of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<RuleMode>,
    /// Whether the limit does not apply to the key at all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exempt: bool,
    /// Of several rules in force for a key the one with the highest priority applies.
    pub priority: i32,
    /// From when on it is in force, in RFC 3339; at once if absent.
    pub from: Option<String>,
    /// Until when it is in force (exclusive), in RFC 3339; for ever if absent.
    pub until: Option<String>,
    /// Why it exists.
    pub note: String,
}

/// The mode that a rule gives a limit for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleMode {
    /// It refuses.
    Enforce,
    /// It counts and reports what it would have refused.
    Shadow,
    /// It does nothing.
    Off,
}

/// A rule in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The rule.
    pub rule: Rule,
    /// The version of the store that last changed it; versions grow by one with each transaction.
    pub version: u64,
}
