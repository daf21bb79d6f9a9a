//! `headers`: the rate limit headers of responses, as it is written.

use crate::raw::scalars::RawText;
#[cfg(feature = "schema")]
use crate::raw::schema_types::Family;
use crate::read::at::At;
use crate::read::report::Report;
use crate::read::yaml_tree::{Node, Value};
use crate::read::{Read, mapping};

mapping! {
    /// The rate limit headers of responses.
    "headers"
    struct RawHeadersFields {
        /// The families that the gateway sends: x-ratelimit, ietf, retry-after. Default: all.
        #[schemars(with = "Option<Vec<Family>>")]
        families: Vec<At<RawText>>,
        /// The same headers in responses of the upstream: replace (default), keep, or rename (X-Upstream-RateLimit-Limit).
        #[schemars(extend("enum" = ["replace", "keep", "rename"]))]
        upstream: RawText,
    }
}

/// A list of families, or a mapping.
#[derive(Clone, Debug)]
pub(crate) struct RawHeaders(pub(crate) RawHeadersFields);

impl Read for RawHeaders {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if matches!(node.value, Value::Map(_)) {
            return RawHeadersFields::read(node, report).map(Self);
        }
        let families = Some(Read::read(node, report)?);
        Some(Self(RawHeadersFields { families, ..RawHeadersFields::empty(node.at) }))
    }
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawHeaders, "RateLimitHeaders" => generator {
        let (families, fields) = (generator.subschema_for::<Vec<Family>>(), generator.subschema_for::<RawHeadersFields>());
        schemars::json_schema!({ "anyOf": [families, fields] })
    };
}
