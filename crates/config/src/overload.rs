//! Priorities, and what an upstream bears.

use std::time::Duration;

use http::HeaderName;
use serde::{Serialize, Serializer};

use super::serialize::{seconds, seconds_or_null, text_or_null};

/// How important a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Goes before all others.
    Critical,
    /// In between.
    #[default]
    Default,
    /// Refused first.
    Sheddable,
}

/// Where priorities come from besides routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrioritiesConfig {
    /// Of plans.
    #[serde(serialize_with = "named")]
    pub plans: Vec<(String, Priority)>,
    /// Of consumers.
    #[serde(serialize_with = "named")]
    pub consumers: Vec<(String, Priority)>,
    /// The header in which trusted proxies name it.
    #[serde(serialize_with = "text_or_null")]
    pub header: Option<HeaderName>,
    /// Whether upstreams are told it in that header.
    pub forward: bool,
}

/// What an upstream bears.
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

impl Priority {
    /// The priorities with their names.
    pub const WORDS: [(&'static str, Self); 3] =
        [("critical", Self::Critical), ("default", Self::Default), ("sheddable", Self::Sheddable)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::WORDS[self as usize].0
    }

    /// The priority with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::WORDS.iter().find(|(word, _)| word.as_bytes() == name).map(|(_, priority)| *priority)
    }
}

fn named<S: Serializer>(pairs: &[(String, Priority)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, priority)| (name, priority)))
}
