//! How an upstream's requests are spread, and what becomes of failures, as it is written.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{OneOrMany, Read, mapping, wrong, wrong_kind};
use super::report::Report;
use super::shorthand::RawCount;
use super::yaml_tree::{Node, Value};

/// A way to spread requests: a word, or `{hash: KEY}`.
#[derive(Clone, Debug)]
pub(super) enum RawBalance {
    Word(String),
    Fields(RawBalanceFields),
}

/// `off`, or a mapping.
#[derive(Clone, Debug)]
pub(super) enum RawEjection {
    Off,
    Fields(Box<RawEjectionFields>),
}

mapping! {
    /// A way to spread requests that depends on something.
    "a balance"
    struct RawBalanceFields {
        /// Requests with the same key go to the same server, unless that has too many.
        #[schemars(required, with = "OneOrMany<hints::Key>")]
        hash: OneOrMany<At<RawText>>,
    }
}

mapping! {
    /// Asks every server whether it is well.
    "a health check"
    struct RawHealth {
        /// What is asked for, such as /healthz.
        #[schemars(required)]
        path: RawText,
        /// The host that is named. Default: the server's.
        host: RawText,
        /// From one question to the next. Default: 5s.
        #[schemars(with = "Option<hints::Duration>")]
        every: RawText,
        /// For connection and answer together. Default: 1s.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// Good answers in a row that bring a server back. Default: 2.
        healthy: RawCount,
        /// Bad ones in a row that take it out. Default: 3.
        unhealthy: RawCount,
        /// Statuses of good answers: 200, 2xx or 200-299. Default: 2xx.
        #[schemars(with = "Option<OneOrMany<hints::Status>>")]
        status: OneOrMany<At<RawText>>,
    }
}

mapping! {
    /// Takes a server out for a while after failures in a row.
    "an ejection"
    struct RawEjectionFields {
        /// So many in a row. Default: 5.
        failures: RawCount,
        /// For how long at first. Default: 10s.
        #[schemars(with = "Option<hints::Duration>")]
        span = "for": RawText,
        /// For how long at most, when it keeps failing. Default: 5min.
        #[schemars(with = "Option<hints::Duration>")]
        max: RawText,
        /// At most this share of the servers at once. Default: 50%.
        #[schemars(with = "Option<hints::Share>")]
        share: RawText,
        /// Statuses of 500 to 599 that count as failures beside answers that never came. Default: none.
        status: OneOrMany<At<RawCount>>,
    }
}

mapping! {
    /// How often a request is tried on another server, where that is safe.
    "retries"
    struct RawRetriesFields {
        /// At most, for one request. Default: 1.
        attempts: RawCount,
        /// Retries for a hundred requests. Default: 20%.
        #[schemars(with = "Option<hints::Share>")]
        budget: RawText,
    }
}

impl Read for RawBalance {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(_) => RawBalanceFields::read(node, report).map(Self::Fields),
            Value::Scalar(text) if text == "hash" => {
                wrong(node, "a key to hash", Some("write {hash: KEY}, such as {hash: ip}".to_owned()), report)
            }
            Value::Scalar(text) => Some(Self::Word(text.clone())),
            _ => wrong_kind(node, "round_robin, least_requests, random or {hash: KEY}", report),
        }
    }
}

impl Read for RawEjection {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if ["off", "false"].contains(&text.as_str()) => Some(Self::Off),
            Value::Map(_) => {
                RawEjectionFields::read(node, report).map(|fields| Self::Fields(Box::new(fields)))
            }
            _ => wrong_kind(node, "off or {failures: N, for: DURATION, max: DURATION, share: SHARE}", report),
        }
    }
}
