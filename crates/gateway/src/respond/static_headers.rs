//! The rate limit headers of a route that do not depend on the request, built once for each plan.

use std::sync::Arc;

use http::HeaderValue;
use sluicegate_limiter::{FixedWindow, Quota, Time};

use super::problem::{NO_STORE, PROBLEM_JSON};
use crate::limit::Limit;
use sluicegate_config::HeaderFamilies;
use sluicegate_wire::Headers;

pub(super) const POLICY: &str = "ratelimit-policy";

/// The headers that all responses of a route to clients on one plan share.
pub struct StaticHeaders {
    /// The families of rate limit headers that the route sends.
    pub families: HeaderFamilies,
    /// The value of RateLimit-Policy.
    pub policies: Policies,
    /// Whether a limit warns before it refuses.
    pub warns: bool,
    /// The headers of every refusal.
    pub refusal: Headers,
}

/// The value of RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers).
pub enum Policies {
    /// Constant. `None` if no enforced limit has a policy.
    Fixed(Option<HeaderValue>),
    /// At least one limit counts by calendar periods, which differ in length: the text of each policy and, for calendar
    /// limits, the windows whose current length in seconds is appended.
    Calendar(Vec<(String, Option<FixedWindow>)>),
}

impl StaticHeaders {
    /// The headers of a route with these limits.
    pub fn new<'a>(families: HeaderFamilies, limits: impl Iterator<Item = &'a Arc<Limit>>) -> Self {
        let mut warns = false;
        let enforced = limits.filter(|limit| limit.enforces());
        let enforced = enforced.inspect(|limit| warns |= limit.config.warn.is_some());
        let policies: Vec<(String, Option<FixedWindow>)> =
            enforced.map(|limit| policy(&limit.config.name, &limit.counted.quota)).collect();
        let policies = if policies.iter().any(|(_, windows)| windows.is_some()) {
            Policies::Calendar(policies)
        } else {
            let texts: Vec<String> = policies.into_iter().map(|(text, _)| text).collect();
            // Names of limits are validated to be printable, so the conversion does not fail.
            Policies::Fixed(HeaderValue::try_from(texts.join(", ")).ok().filter(|value| !value.is_empty()))
        };
        Self { refusal: refusal_headers(families, &policies), policies, families, warns }
    }
}

/// The headers of every refusal of a route.
fn refusal_headers(families: HeaderFamilies, policies: &Policies) -> Headers {
    let mut headers = Headers::new();
    if let Policies::Fixed(Some(policies)) = policies
        && families.ietf
    {
        headers.append_value(POLICY, policies);
    }
    headers.append("cache-control", NO_STORE);
    headers.append("content-type", PROBLEM_JSON);
    headers
}

/// One member of RateLimit-Policy. The seconds of a calendar period are appended when the time is known.
fn policy(name: &str, quota: &Quota) -> (String, Option<FixedWindow>) {
    let count = quota.policy();
    match (quota, quota.window(Time::EPOCH)) {
        (Quota::FixedWindow(windows, _), _) if windows.calendar().is_some() => {
            (format!("\"{name}\";q={count};w="), Some(*windows))
        }
        (_, None) => (format!("\"{name}\";q={count};qu=\"concurrent-requests\""), None),
        (_, Some(window)) => (format!("\"{name}\";q={count};w={}", window.ceil_secs()), None),
    }
}
