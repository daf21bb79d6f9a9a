//! Priorities, and protection of upstreams from overload.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;
use serde::{Serialize, Serializer};
use sluicegate_overload::Priority;

use crate::model::serialize::{seconds, seconds_or_null, text_or_null};

/// Where priorities come from besides routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrioritiesConfig {
    /// Of plans.
    #[serde(serialize_with = "names")]
    pub plans: BTreeMap<String, Priority>,
    /// Of consumers.
    #[serde(serialize_with = "names")]
    pub consumers: BTreeMap<String, Priority>,
    /// The header in which trusted proxies name it.
    #[serde(serialize_with = "text_or_null")]
    pub header: Option<HeaderName>,
    /// Whether upstreams are told it in that header.
    pub forward: bool,
}

/// How the gateway itself is protected from overload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnOverloadConfig {
    /// The bytes of memory that it may use; `None` for what the system allows.
    pub max_memory: Option<u64>,
    /// The delay of its workers at which all requests are refused.
    #[serde(serialize_with = "seconds")]
    pub max_delay: Duration,
}

/// How an upstream is protected from overload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverloadConfig {
    /// The most requests in flight.
    pub max_in_flight: u32,
    /// The least that the limit falls to.
    pub min_in_flight: u32,
    /// Whether the limit follows the upstream.
    pub adaptive: bool,
    /// The time that requests should take at most on average.
    #[serde(serialize_with = "seconds_or_null")]
    pub latency_target: Option<Duration>,
    /// The most requests that wait.
    pub queue_size: usize,
    /// The longest that a critical request waits.
    #[serde(serialize_with = "seconds")]
    pub queue_deadline: Duration,
    /// The part that others leave free for critical requests, in millionths.
    pub reserve: u32,
}

/// A priority as its name.
pub(crate) fn name<S: Serializer>(priority: &Priority, serializer: S) -> Result<S::Ok, S::Error> {
    priority.name().serialize(serializer)
}

fn names<S: Serializer>(named: &BTreeMap<String, Priority>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(named.iter().map(|(name, priority)| (name, priority.name())))
}
