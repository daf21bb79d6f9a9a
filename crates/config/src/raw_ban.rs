//! A limit's `ban` as it is written: `15min`, or a mapping.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{Read, entries, mapping, not_available, unknown_key, wrong_kind};
use super::report::{Place, Report};
use super::shorthand::RawCount;
use super::yaml_tree::{Node, Value};

/// How long a ban lasts, or a mapping.
#[derive(Clone, Debug)]
pub(super) struct RawBan(pub(super) RawBanFields);

mapping! {
    /// Refuses a key for a while after it was refused.
    "a ban"
    struct RawBanFields {
        /// Refusals that begin it. Default: 1.
        after: RawCount,
        /// The time within which they count, such as 1min.
        #[schemars(with = "Option<hints::Duration>")]
        within: RawText,
        /// How long it lasts, such as 15min.
        #[schemars(required, with = "hints::Duration")]
        span = "for": RawText,
    }
}

impl Read for RawBan {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(span) => {
                let span = Some(At { at: node.at, value: span.clone() });
                Some(Self(RawBanFields { span, ..RawBanFields::empty(node.at) }))
            }
            Value::Map(_) => RawBanFields::read(node, report).map(Self),
            _ => wrong_kind(node, "a duration or {after: N, within: DURATION, for: DURATION}", report),
        }
    }
}
