//! The rate limit headers of responses.

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_limiter::{FixedWindow, Quota, Time, Usage};

use crate::built::BuiltLimit;
use crate::families::HeaderFamilies;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The value of RateLimit-Policy.
pub(crate) enum Policies {
    /// Constant. `None` if no limit is enforced.
    Fixed(Option<HeaderValue>),
    /// The periods of a calendar differ in length: the text of each policy, and the windows whose length is appended.
    Calendar(Vec<(String, Option<FixedWindow>)>),
}

impl Policies {
    pub(crate) fn new<'a>(limits: impl Iterator<Item = &'a BuiltLimit>) -> Self {
        let policies: Vec<_> = limits
            .filter(|limit| limit.enforces())
            .map(|limit| policy(limit.name(), limit.quota()))
            .collect();
        if policies.iter().any(|(_, windows)| windows.is_some()) {
            return Self::Calendar(policies);
        }
        let texts: Vec<String> = policies.into_iter().map(|(text, _)| text).collect();
        // Names are validated, so the conversion does not fail.
        Self::Fixed(HeaderValue::try_from(texts.join(", ")).ok().filter(|value| !value.is_empty()))
    }

    fn value(&self, now: Time) -> Option<HeaderValue> {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Calendar(policies) => {
                let text = |(text, windows): &(String, Option<FixedWindow>)| match windows {
                    Some(windows) => format!("{text}{}", windows.length(now).ceil_secs()),
                    None => text.clone(),
                };
                let texts: Vec<String> = policies.iter().map(text).collect();
                HeaderValue::try_from(texts.join(", ")).ok()
            }
        }
    }
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

/// What the headers of one response report.
pub(crate) struct Reported<'a> {
    /// The limit that is reported.
    pub(crate) limit: &'a BuiltLimit,
    /// What its key has left.
    pub(crate) usage: Usage,
    /// The policies of all limits.
    pub(crate) policies: &'a Policies,
    /// The time of the decision.
    pub(crate) now: Time,
}

impl Reported<'_> {
    /// Adds the headers of a response to an admitted request.
    pub(crate) fn add(&self, families: HeaderFamilies, headers: &mut HeaderMap) {
        let seconds = self.usage.reset.ceil_secs();
        self.add_families(families, seconds, headers);
    }

    /// Adds the headers of a refusal, after which the client may try again in so many seconds.
    pub(crate) fn add_refusal(
        &self,
        families: HeaderFamilies,
        seconds: Option<u64>,
        headers: &mut HeaderMap,
    ) {
        // RateLimit says no later time than Retry-After, which takes precedence if both are present.
        self.add_families(families, seconds.unwrap_or(self.usage.reset.ceil_secs()), headers);
        let Some(seconds) = seconds else { return };
        if families.x_ratelimit {
            headers.entry(X_RETRY_AFTER).or_insert_with(|| seconds.into());
        }
        if families.retry_after {
            headers.entry(RETRY_AFTER).or_insert_with(|| seconds.into());
        }
    }

    fn add_families(&self, families: HeaderFamilies, seconds: u64, headers: &mut HeaderMap) {
        let Usage { remaining, reset, .. } = self.usage;
        if families.x_ratelimit && ![LIMIT, REMAINING, RESET].iter().any(|name| headers.contains_key(name)) {
            headers.insert(LIMIT, self.limit.shown.clone());
            headers.insert(REMAINING, remaining.into());
            headers.insert(RESET, reset.ceil_secs().into());
        }
        if families.ietf && ![RATELIMIT, POLICY].iter().any(|name| headers.contains_key(name)) {
            let standing = format!("\"{}\";r={remaining};t={seconds}", self.limit.name());
            // Names are validated, so the conversion does not fail.
            headers.extend(HeaderValue::try_from(standing).ok().map(|value| (RATELIMIT, value)));
            headers.extend(self.policies.value(self.now).map(|value| (POLICY, value)));
        }
    }
}
