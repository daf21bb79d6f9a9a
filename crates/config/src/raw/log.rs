//! The access log and traces, as they are written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::report::Report;
use crate::read::yaml_tree::{Node, Value};
use crate::read::{OneOrMany, Read, mapping};

/// In the place of the path: no access log.
const OFF: [&str; 2] = ["off", "false"];

mapping! {
    /// The access log: one line per request.
    "access_log"
    struct RawAccessLogFields {
        /// stdout (default), or a file, which is reopened on SIGUSR1.
        #[schemars(with = "Option<hints::File>")]
        path: RawText,
        /// json (default), combined or short.
        #[schemars(extend("enum" = ["json", "combined", "short"]))]
        format: RawText,
        /// The fields of a JSON line; header:NAME for a request header.
        fields: Vec<At<RawText>>,
        /// Query parameters whose values are secret and are redacted, besides the usual ones (token, password, api_key, secret, sig,
        /// code and their like); with `off` only those that are named here, the API key's and access_token.
        redact: OneOrMany<At<RawText>>,
        /// The share of requests that is logged: 10%, or by outcome: {ok: 1%, refused: 100%, error: 100%}.
        sample: RawSample,
        /// The size of the write buffer; lines that do not fit are dropped and counted. Default: 1MiB.
        #[schemars(with = "Option<hints::Size>")]
        buffer: RawText,
    }
}

mapping! {
    /// The share of requests that is logged, by outcome. Default: all.
    "sample"
    struct RawSampleFields {
        /// The share of requests that were served.
        #[schemars(with = "Option<hints::Share>")]
        ok: RawText,
        /// The share of requests that the gateway refused.
        #[schemars(with = "Option<hints::Share>")]
        refused: RawText,
        /// The share of all other requests with a status of 400 or above.
        #[schemars(with = "Option<hints::Share>")]
        error: RawText,
    }
}

mapping! {
    /// How requests find their place in a trace (W3C Trace Context).
    "trace"
    struct RawTrace {
        /// Whose traceparent is continued: anybody (default), trusted_proxies or nobody.
        #[schemars(extend("enum" = ["anybody", "trusted_proxies", "nobody"]))]
        accept: RawText,
        /// Whether a new trace is started if none is continued. Default: true.
        create: bool,
        /// The share of new traces that is marked as sampled. Default: 0%.
        #[schemars(with = "Option<hints::Share>")]
        sampled: RawText,
    }
}

/// An access log: where to, or a mapping; `None` is `off`.
#[derive(Clone, Debug)]
pub(crate) struct RawAccessLog(pub(crate) Option<RawAccessLogFields>);

/// A share of everything, or of each kind.
#[derive(Clone, Debug)]
pub(crate) enum RawSample {
    All(At<String>),
    Fields(Box<RawSampleFields>),
}

impl Read for RawAccessLog {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Scalar(path) = &node.value else {
            return RawAccessLogFields::read(node, report).map(|fields| Self(Some(fields)));
        };
        if OFF.contains(&path.as_str()) {
            return Some(Self(None));
        }
        let path = Some(At { at: node.at, value: path.clone() });
        Some(Self(Some(RawAccessLogFields { path, ..RawAccessLogFields::empty(node.at) })))
    }
}

impl Read for RawSample {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) => Some(Self::All(At { at: node.at, value: text.clone() })),
            _ => RawSampleFields::read(node, report).map(|fields| Self::Fields(Box::new(fields))),
        }
    }
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawAccessLog, "AccessLog" => generator crate::raw::hints::text_or::<RawAccessLogFields>(".+", generator);
    RawSample, "Sample" => generator crate::raw::hints::text_or::<RawSampleFields>(crate::raw::hints::SHARE, generator);
}
