//! The decision on one request, and its line of JSON.

use std::net::IpAddr;

use serde_json::json;
use sluicegate_limiter::Span;

use super::Request;
use crate::access_log::Outcome;
use crate::access_log::{is_among, shown_target};
use crate::file_watch::sha256;
use crate::keys::{KeyText, parts_of};
use sluicegate_config::Part;
use sluicegate_config::{Config, has_secret_word, is_secret_header, secret_parameters};
use sluicegate_wire::number::hex;

/// The decision on one request.
#[derive(Clone, Debug)]
pub struct Row {
    /// The outcome.
    pub outcome: Outcome,
    /// The route.
    pub route: Option<String>,
    /// The limit that the response headers would report.
    pub limit: Option<String>,
    /// The units that the limit has left.
    pub remaining: Option<u64>,
    /// The Retry-After of a refused request; `None` if the limit can never admit it.
    pub retry_after: Option<Span>,
    /// The delay of an admitted request.
    pub delay: Span,
    /// Limits in shadow mode that would have refused.
    pub shadow: Vec<String>,
    /// Limits whose candidate would have refused.
    pub candidate: Vec<String>,
    /// The client's address.
    pub client: IpAddr,
    /// The request's key under the limit, if the limit keeps whole keys; empty if the request has none.
    pub key: KeyText,
}

impl Row {
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
pub struct RowWriter<'c> {
    config: &'c Config,
    /// The names of secret query parameters.
    parameters: Vec<String>,
}

impl<'c> RowWriter<'c> {
    /// A writer with the secrets of this configuration.
    pub fn new(config: &'c Config) -> Self {
        let of_log = config.access_log.as_ref().map(|log| log.redact.clone());
        Self { config, parameters: of_log.unwrap_or_else(|| secret_parameters(&config.api_key)) }
    }

    /// A line, without the line feed. `number` and `file` say where the request was read.
    pub fn json(&self, row: &Row, request: &Request, number: u64, file: Option<&str>) -> String {
        let text = |value: Option<&str>| serde_json::to_string(&value).unwrap_or_else(|_| "null".into());
        let outcome = row.outcome.name();
        let mut out = format!("{{\"line\": {number}");
        if let Some(file) = file {
            out += &format!(", \"file\": {}", text(Some(file)));
        }
        out += &format!(
            ", \"route\": {}, \"outcome\": \"{outcome}\", \"limit\": {}, \"remaining\": {}, \
             \"retry_after\": {}, \"delay\": {}",
            text(row.route.as_deref()),
            text(row.limit.as_deref()),
            row.remaining.map_or_else(|| "null".into(), |n| n.to_string()),
            row.retry_after.map_or_else(|| "null".into(), seconds),
            seconds(row.delay),
        );
        for (field, limits) in [("shadow", &row.shadow), ("candidate", &row.candidate)] {
            if !limits.is_empty() {
                out += &format!(", \"{field}\": {}", json!(limits));
            }
        }
        out += &format!(
            ", \"client\": \"{}\", \"key\": {}, \"path\": {}}}",
            row.client,
            text(self.key(&row.key).as_deref()),
            text(Some(&shown_target(&request.parts.target, |name| self.is_secret_parameter(name)))),
        );
        out
    }

    /// A key in the form of the admin API, without secrets.
    fn key(&self, key: &KeyText) -> Option<String> {
        let parts: Vec<String> = parts_of(key).map(|(part, value)| self.part(&part, value)).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }

    fn part(&self, part: &Part, value: &[u8]) -> String {
        let name = part.name();
        if self.is_secret(part) {
            let first = sha256(value).first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
            return format!("{name}:sha256:{}", String::from_utf8_lossy(&hex(first)));
        }
        match part {
            Part::Global => name.to_owned(),
            Part::Ip | Part::IpPrefix(_) | Part::Ipv4Prefix(_) => match address(value) {
                Some(address) => format!("{name}:{address}"),
                None => name.to_owned(),
            },
            _ => format!("{name}:{}", String::from_utf8_lossy(value)),
        }
    }

    fn is_secret(&self, part: &Part) -> bool {
        match part {
            Part::ApiKey | Part::Cookie(_) => true,
            Part::Header(name) => is_secret_header(name, &self.config.api_key, self.config.token_headers()),
            Part::Query(name) => self.is_secret_parameter(name.as_bytes()),
            _ => false,
        }
    }

    fn is_secret_parameter(&self, name: &[u8]) -> bool {
        is_among(&self.parameters, name) || has_secret_word(&String::from_utf8_lossy(name))
    }
}

/// The address in a key.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Seconds with six digits, rounded up, so that a client that waits so long is not early.
fn seconds(span: Span) -> String {
    let micros = span.ceil_micros();
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
