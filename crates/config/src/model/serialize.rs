//! How values of the configuration are serialized that do not serialize themselves, for `serialize_with`: as the file
//! writes them, without anything that may be a secret.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer};
use sluicegate_limiter::{Ban, Quota, SlidingWindow, Span};

use crate::model::cors::CorsConfig;
use crate::model::rewrite::{HeaderChange, HeaderChanges};

/// A path, also one that is not UTF-8.
pub(crate) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// A value as its text.
pub(crate) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A value that may be missing, as its text.
pub(crate) fn text_or_null<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

/// Values as their texts.
pub(crate) fn texts<T: Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// Pairs as a mapping, by the text of the first.
pub(crate) fn by_name<N: Display, T: Serialize, S: Serializer>(
    pairs: &[(N, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name.to_string(), value)))
}

/// A duration in seconds.
pub(crate) fn seconds<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

/// A duration that may be missing, in seconds.
pub(crate) fn seconds_or_null<S: Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(|value| value.as_secs_f64()).serialize(serializer)
}

/// A percentage.
pub(crate) fn percent<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value}%"))
}

/// A part in millionths that may be missing, as a percentage.
pub(crate) fn parts<S: Serializer>(value: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(|part| format!("{}%", f64::from(part) / 1e4)).serialize(serializer)
}

/// Whether there is a value, which may be a secret.
pub(crate) fn is_some<T, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(value.is_some())
}

/// How many values there are; they may be secrets.
pub(crate) fn count<T, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    values.len().serialize(serializer)
}

/// Whose certificates are trusted.
pub(crate) fn authorities<T, S: Serializer>(file: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if file.is_some() { "private" } else { "system" })
}

/// Headers that a request has to have. Their values may be secrets; `*` is any value.
pub(crate) fn required_headers<S: Serializer>(
    headers: &[(HeaderName, Option<HeaderValue>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let shown = |value: &Option<_>| if value.is_some() { "(redacted)" } else { "*" };
    serializer.collect_map(headers.iter().map(|(name, value)| (name.as_str(), shown(value))))
}

/// The names of headers that a request has to have.
pub(crate) fn header_names<S: Serializer>(
    headers: &[(HeaderName, Option<HeaderValue>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(headers.iter().map(|(name, _)| name.as_str()))
}

/// Changes of headers.
pub(crate) fn header_changes<S: Serializer>(
    changes: &[HeaderChange],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    HeaderChanges(changes).serialize(serializer)
}

/// The CORS policy of a route.
pub(crate) fn cors<S: Serializer>(cors: &Option<Arc<CorsConfig>>, serializer: S) -> Result<S::Ok, S::Error> {
    cors.as_deref().serialize(serializer)
}

/// A status as its number.
pub(crate) fn status<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// A status as its number, if there is one.
pub(crate) fn status_or_null<S: Serializer>(
    status: &Option<StatusCode>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    status.map(|status| status.as_u16()).serialize(serializer)
}

/// Statuses as their numbers.
pub(crate) fn statuses<S: Serializer>(statuses: &[StatusCode], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(statuses.iter().map(StatusCode::as_u16))
}

/// Ranges of statuses.
pub(crate) fn ranges<S: Serializer>(
    ranges: &[RangeInclusive<u16>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranges.iter().map(|range| format!("{}-{}", range.start(), range.end())))
}

/// One of two words.
macro_rules! either {
    ($($(#[$meta:meta])* $name:ident = $yes:literal, $no:literal;)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name<S: Serializer>(value: &bool, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(if *value { $yes } else { $no })
        }
    )*};
}

either! {
    /// Whether a route is only meant for the exact spelling of its paths.
    spelling = "exact", "loose";
    /// Whether clients must have a certificate.
    client_auth = "required", "optional";
    /// Where a limit counts.
    scope = "shared", "local";
}

/// An algorithm and its numbers.
#[derive(Serialize)]
struct QuotaNumbers {
    algorithm: &'static str,
    rate: Option<String>,
    capacity: u64,
    /// The sub-windows of sliding_window.
    #[serde(skip_serializing_if = "Option::is_none")]
    slices: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// A quota.
pub(crate) fn quota<S: Serializer>(quota: &Quota, serializer: S) -> Result<S::Ok, S::Error> {
    QuotaNumbers::of(quota).serialize(serializer)
}

/// A quota that may be missing.
pub(crate) fn quota_or_null<S: Serializer>(quota: &Option<Quota>, serializer: S) -> Result<S::Ok, S::Error> {
    quota.as_ref().map(QuotaNumbers::of).serialize(serializer)
}

/// The quotas of plans.
pub(crate) fn plans<S: Serializer>(plans: &[(String, Quota)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(plans.iter().map(|(name, quota)| (name, QuotaNumbers::of(quota))))
}

/// A ban.
pub(crate) fn ban<S: Serializer>(ban: &Option<Ban>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Numbers {
        after: u64,
        within: Option<String>,
        r#for: String,
    }
    ban.map(|ban| Numbers {
        after: ban.after(),
        within: (ban.after() > 1).then(|| ban.within().to_string()),
        r#for: ban.span().to_string(),
    })
    .serialize(serializer)
}

impl QuotaNumbers {
    fn of(quota: &Quota) -> Self {
        let window = match quota {
            Quota::SlidingWindow(window, _) => Some(window),
            _ => None,
        };
        Self {
            algorithm: quota.algorithm(),
            rate: rate(quota),
            capacity: quota.capacity(),
            slices: window.map(SlidingWindow::slices),
            strict: window.map(SlidingWindow::is_strict),
        }
    }
}

/// A rate as the file writes it.
fn rate(quota: &Quota) -> Option<String> {
    let rate = quota.rate()?;
    let by_calendar = matches!(quota, Quota::FixedWindow(window, _) if window.calendar().is_some());
    let period = match rate.period() {
        Span::DAY if by_calendar => "day".to_owned(),
        period if by_calendar && period < Span::from_secs(28 * 86_400) => "week".to_owned(),
        _ if by_calendar => "month".to_owned(),
        period => period.to_string(),
    };
    Some(format!("{}/{period}", rate.count()))
}
