//! The access log and traces, as they are written.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{OneOrMany, Read, mapping};
use super::report::Report;
use super::yaml_tree::{Node, Value};

/// In the place of the path: no access log.
const OFF: [&str; 2] = ["off", "false"];

mapping! {
    /// A line of every request.
    "access_log"
    struct RawAccessLogFields {
        /// stdout (default), or a file, which is opened anew on SIGUSR1.
        #[schemars(with = "Option<hints::File>")]
        path: RawText,
        /// json (default), combined or short.
        #[schemars(extend("enum" = ["json", "combined", "short"]))]
        format: RawText,
        /// The members of a JSON line; header:NAME for a header of the request.
        fields: Vec<At<RawText>>,
        /// Query parameters whose values are secrets and are not written.
        redact: OneOrMany<At<RawText>>,
        /// The share that is written: 10%, or by kind: {ok: 1%, refused: 100%, error: 100%}.
        sample: RawSample,
        /// What may wait to be written; what comes beyond it is dropped. Default: 1MiB.
        #[schemars(with = "Option<hints::Size>")]
        buffer: RawText,
    }
}

mapping! {
    /// The share that is written, by kind. Default: all.
    "sample"
    struct RawSampleFields {
        /// Of requests that were served.
        #[schemars(with = "Option<hints::Share>")]
        ok: RawText,
        /// Of those that the gateway turned away.
        #[schemars(with = "Option<hints::Share>")]
        refused: RawText,
        /// Of all others that ended with a status of 400 or above.
        #[schemars(with = "Option<hints::Share>")]
        error: RawText,
    }
}

mapping! {
    /// How requests find their place in a trace (W3C Trace Context).
    "trace"
    struct RawTrace {
        /// Whose traceparent is gone on with: anybody (default), trusted_proxies or nobody.
        #[schemars(extend("enum" = ["anybody", "trusted_proxies", "nobody"]))]
        accept: RawText,
        /// Begin a trace where none is gone on with. Default: true.
        create: bool,
        /// The share of those that is marked as sampled. Default: 0%.
        #[schemars(with = "Option<hints::Share>")]
        sampled: RawText,
    }
}

/// An access log: where to, or a mapping; `None` is `off`.
#[derive(Clone, Debug)]
pub(super) struct RawAccessLog(pub(super) Option<RawAccessLogFields>);

/// A share of everything, or of each kind.
#[derive(Clone, Debug)]
pub(super) enum RawSample {
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
