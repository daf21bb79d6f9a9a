//! `envoy.service.ratelimit.v3`, and the descriptors of `envoy.extensions.common.ratelimit.v3`. Kuadrant's service has the same
//! messages.

use std::borrow::Cow;

use bytes::Bytes;

use super::well_known::{Duration, HeaderValue, Struct, UInt64Value, text};

/// Asks whether a request may pass.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RateLimitRequest {
    /// The domain, in which descriptors have a meaning.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is limited.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The hits of all descriptors that do not say it themselves; 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// A list of keys and values that one limit can apply to.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RateLimitDescriptor {
    /// The keys and values.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit in place of the one of the configuration.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The hits of this descriptor; 0 counts nothing.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
    /// Whether hits are given back.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// A key and a value. They are bytes, because clients choose values: a request with a header that is not UTF-8 would otherwise be
/// an error, and errors pass where the proxy fails open.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// A limit that a request carries.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RateLimitOverride {
    /// Hits per unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// `envoy.type.v3.RateLimitUnit`; its numbers are those of [`Unit`].
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
}

/// Whether a request may pass.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    /// The answer of all descriptors together.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// The answer of each descriptor, in the order of the request.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Headers of the answer to the client, whether it passes or not.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// Headers of the request to the upstream.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    /// The body of a refusal.
    #[prost(bytes = "bytes", tag = "5")]
    pub raw_body: Bytes,
    /// What other filters of the proxy can read.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
}

/// The answer of one descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DescriptorStatus {
    /// Whether its limit refuses.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit; none if none applies.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// Hits that are left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// Until all hits are there again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RateLimit {
    /// Hits per unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never sent: proxies let such a request pass.
    Unknown = 0,
    /// It may pass.
    Ok = 1,
    /// It may not.
    OverLimit = 2,
}

/// The units of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// A period that is none of the others.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// Seven days.
    Week = 7,
}

impl Entry {
    /// A key and a value.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into() }
    }

    /// The key as text.
    pub fn key(&self) -> Cow<'_, str> {
        text(&self.key)
    }

    /// The value as text.
    pub fn value(&self) -> Cow<'_, str> {
        text(&self.value)
    }
}

impl RateLimitResponse {
    /// Adds headers to the answer that the client gets.
    #[must_use]
    pub fn with_response_headers<N: Into<Bytes>, V: Into<Bytes>>(
        mut self,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.response_headers_to_add
            .extend(headers.into_iter().map(|(name, value)| HeaderValue::new(name, value)));
        self
    }

    /// Whether the request is refused.
    pub fn is_over_limit(&self) -> bool {
        self.overall_code == Code::OverLimit as i32
    }
}
