//! The decision on one request, and its line of JSON.

use std::net::IpAddr;

use serde_json::json;
use sluicegate_limiter::Span;

use super::Request;
use sluicegate_config::Config;
use sluicegate_observe::access_log::Outcome;
use sluicegate_observe::access_log::shown_target;
use sluicegate_observe::shown_key::ShownKeys;
use sluicegate_route::keys::KeyText;

/// The decision on one request.
#[derive(Clone, Debug)]
pub struct Row<'s> {
    /// The outcome.
    pub outcome: Outcome,
    /// The route.
    pub route: Option<&'s str>,
    /// The limit that the response headers would report.
    pub limit: Option<&'s str>,
    /// The units that the limit has left.
    pub remaining: Option<u64>,
    /// The Retry-After of a refused request; `None` if the limit can never admit it.
    pub retry_after: Option<Span>,
    /// The delay of an admitted request.
    pub delay: Span,
    /// Limits in shadow mode that would have refused.
    pub shadow: Vec<&'s str>,
    /// Limits whose candidate would have refused.
    pub candidate: Vec<&'s str>,
    /// The client's address.
    pub client: IpAddr,
    /// The request's key under the limit, if the limit keeps whole keys; empty if the request has none.
    pub key: KeyText,
}

impl Row<'_> {
    /// The row of a request that matches no route.
    pub(super) fn unmatched(client: IpAddr) -> Self {
        Self {
            outcome: Outcome::Unmatched,
            route: None,
            limit: None,
            remaining: None,
            retry_after: Some(Span::ZERO),
            delay: Span::ZERO,
            shadow: Vec::new(),
            candidate: Vec::new(),
            client,
            key: KeyText::new(),
        }
    }
}

/// Writes decisions as lines of JSON. Secret keys are replaced by digests, and secret values of query parameters are
/// redacted.
pub struct RowWriter<'c>(ShownKeys<'c>);

impl<'c> RowWriter<'c> {
    /// A writer with the secrets of this configuration.
    pub fn new(config: &'c Config) -> Self {
        Self(ShownKeys::new(config))
    }

    /// A line, without the line feed. `number` and `file` say where the request was read; `before` is what another
    /// configuration decides.
    pub fn json(
        &self,
        row: &Row<'_>,
        request: &Request,
        (number, file): (u64, Option<&str>),
        before: Option<Outcome>,
    ) -> String {
        let text = |value: Option<&str>| serde_json::to_string(&value).unwrap_or_else(|_| "null".into());
        let outcome = row.outcome.name();
        let mut out = format!("{{\"line\": {number}");
        if let Some(file) = file {
            out += &format!(", \"file\": {}", text(Some(file)));
        }
        out += &format!(
            ", \"route\": {}, \"outcome\": \"{outcome}\", \"limit\": {}, \"remaining\": {}, \
             \"retry_after\": {}, \"delay\": {}",
            text(row.route),
            text(row.limit),
            row.remaining.map_or_else(|| "null".into(), |n| n.to_string()),
            row.retry_after.map_or_else(|| "null".into(), seconds),
            seconds(row.delay),
        );
        for (field, limits) in [("shadow", &row.shadow), ("candidate", &row.candidate)] {
            if !limits.is_empty() {
                out += &format!(", \"{field}\": {}", json!(limits));
            }
        }
        if let Some(before) = before {
            out += &format!(", \"against\": \"{}\"", before.name());
        }
        out += &format!(
            ", \"client\": \"{}\", \"key\": {}, \"path\": {}}}",
            row.client,
            text(self.0.text(&row.key).as_deref()),
            text(Some(&shown_target(&request.parts.target, |name| self.0.is_secret_parameter(name)))),
        );
        out
    }
}

/// Seconds with six digits, rounded up, so that a client that waits so long is not early.
fn seconds(span: Span) -> String {
    let micros = span.ceil_micros();
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
