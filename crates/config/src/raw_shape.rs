//! How requests and answers are shaped, as it is written.

#[cfg(feature = "schema")]
use std::collections::BTreeMap;

use super::at::At;
use super::read::{Named, OneOrMany, Read, mapping};
use super::report::Report;
use super::scalars::RawText;
#[cfg(feature = "schema")]
use super::schema_types::Scalar;
use super::yaml_tree::{Node, Value};

mapping! {
    /// Headers that are changed: first removed, then set, then added. In values, {client_ip}, {host}, {path}, {user} and
    /// their like are replaced.
    "headers that are changed"
    struct RawHeaderChanges {
        /// Headers that are set; existing ones of the same name are replaced.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        set: Named<At<RawText>>,
        /// Headers that are added, besides existing ones of the same name.
        #[schemars(with = "Option<BTreeMap<String, Scalar>>")]
        add: Named<At<RawText>>,
        /// Headers that are removed.
        remove: OneOrMany<At<RawText>>,
    }
}

mapping! {
    /// A replacement by a regular expression.
    "rewrite"
    struct RawRewriteFields {
        /// A regular expression, searched for in the normalized path.
        #[schemars(required)]
        pattern = "match": RawText,
        /// The replacement; $1 and $name are the groups of the match.
        #[schemars(required)]
        to: RawText,
    }
}

/// A rewrite: a path with variables, or `{match: REGEX, to: …}`.
#[derive(Clone, Debug)]
pub(super) enum RawRewrite {
    Template(String),
    Regex(Box<RawRewriteFields>),
}

impl Read for RawRewrite {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) => Some(Self::Template(text.clone())),
            _ => RawRewriteFields::read(node, report).map(|fields| Self::Regex(Box::new(fields))),
        }
    }
}

#[cfg(feature = "schema")]
super::schema_types::schemas! {
    RawRewrite, "Rewrite" => generator super::hints::text_or::<RawRewriteFields>(".+", generator);
}
