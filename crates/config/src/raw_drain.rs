//! `drain` as it is written: `30s`, or a mapping.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{Read, entries, mapping, not_available, unknown_key, wrong_kind};
use super::report::{Place, Report};
use super::yaml_tree::{Node, Value};

/// How long a drain may take, or a mapping.
#[derive(Clone, Debug)]
pub(super) struct RawDrain(pub(super) RawDrainFields);

mapping! {
    /// What happens between the signal to end and the end.
    "drain"
    struct RawDrainFields {
        /// How long connections are still taken in while /readyz already says 503. Default: 0s.
        #[schemars(with = "Option<hints::Duration>")]
        delay: RawText,
        /// How long it waits for requests in flight after that. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        deadline: RawText,
    }
}

impl Read for RawDrain {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(deadline) => {
                let deadline = Some(At { at: node.at, value: deadline.clone() });
                Some(Self(RawDrainFields { deadline, ..RawDrainFields::empty(node.at) }))
            }
            Value::Map(_) => RawDrainFields::read(node, report).map(Self),
            _ => wrong_kind(node, "a duration or {delay: DURATION, deadline: DURATION}", report),
        }
    }
}
