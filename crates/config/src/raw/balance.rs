//! How an upstream's requests are spread, and what becomes of failures, as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::report::Report;
use crate::read::yaml_tree::{Node, Value};
use crate::read::{OneOrMany, Read, mapping, wrong, wrong_kind};

/// A way to spread requests: a word, or `{hash: KEY}`.
#[derive(Clone, Debug)]
pub(crate) enum RawBalance {
    Word(String),
    Fields(RawBalanceFields),
}

/// `off`, or a mapping.
#[derive(Clone, Debug)]
pub(crate) enum RawEjection {
    Off,
    Fields(Box<RawEjectionFields>),
}

mapping! {
    /// Load balancing that depends on the request.
    "a balance"
    struct RawBalanceFields {
        /// Requests with the same key go to the same server unless it is overloaded (bounded-load consistent
        /// hashing).
        #[schemars(required, with = "OneOrMany<hints::Key>")]
        hash: OneOrMany<At<RawText>>,
    }
}

mapping! {
    /// Health checks of every server.
    "a health check"
    struct RawHealth {
        /// The path of the check, such as /healthz.
        #[schemars(required)]
        path: RawText,
        /// The value of Host. Default: the host of the server.
        host: RawText,
        /// The interval between two checks. Default: 5s.
        #[schemars(with = "Option<hints::Duration>")]
        every: RawText,
        /// The timeout of a check, including the connection. Default: 1s.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// The number of consecutive successes after which a server is healthy. Default: 2.
        healthy: RawCount,
        /// The number of consecutive failures after which a server is unhealthy. Default: 3.
        unhealthy: RawCount,
        /// Statuses of successful checks: 200, 2xx or 200-299. Default: 2xx.
        #[schemars(with = "Option<OneOrMany<hints::Status>>")]
        status: OneOrMany<At<RawText>>,
    }
}

mapping! {
    /// Ejects a server for some time after consecutive failures.
    "an ejection"
    struct RawEjectionFields {
        /// The number of consecutive failures. Default: 5.
        failures: RawCount,
        /// The duration of the first ejection. Default: 10s.
        #[schemars(with = "Option<hints::Duration>")]
        span = "for": RawText,
        /// The longest duration, if failures continue. Default: 5min.
        #[schemars(with = "Option<hints::Duration>")]
        max: RawText,
        /// The largest share of the servers that is ejected at once. Default: 50%.
        #[schemars(with = "Option<hints::Share>")]
        share: RawText,
        /// Statuses from 500 to 599 that count as failures, in addition to missing responses. Default: none.
        status: OneOrMany<At<RawCount>>,
    }
}

mapping! {
    /// How often a request is retried on another server, where that is safe.
    "retries"
    struct RawRetriesFields {
        /// The maximum number of retries per request. Default: 1.
        attempts: RawCount,
        /// The maximum ratio of retries to requests. Default: 20%.
        #[schemars(with = "Option<hints::Share>")]
        budget: RawText,
        /// Whether requests are also sent again that are not idempotent, such as POST, if the connection ended before any byte of an
        /// answer: the server may then act on them twice. Default: false.
        all_methods = "unsafe": bool,
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

crate::read::shorthand! {
    /// A number of attempts, or a mapping.
    RawRetries(RawRetriesFields.attempts) "a number or {attempts: N, budget: SHARE}";
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawBalance, "Balance" => generator crate::raw::hints::word_or::<RawBalanceFields>(&["round_robin", "least_requests", "random"], generator);
    RawEjection, "Ejection" => generator crate::raw::hints::word_or::<RawEjectionFields>(&["off"], generator);
    RawRetries, "Retries" => generator crate::raw::hints::number_or::<RawRetriesFields>(crate::raw::hints::COUNT, &[], generator);
}
