//! How requests and answers are shaped, as it is written.

#[cfg(feature = "schema")]
use std::collections::BTreeMap;

use crate::raw::scalars::RawText;
#[cfg(feature = "schema")]
use crate::raw::schema_types::Scalar;
use crate::read::at::At;
use crate::read::report::Report;
use crate::read::yaml_tree::{Node, Value};
use crate::read::{Named, OneOrMany, Read, mapping};

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
pub(crate) enum RawRewrite {
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
crate::raw::schema_types::schemas! {
    RawRewrite, "Rewrite" => generator crate::raw::hints::text_or::<RawRewriteFields>(".+", generator);
}
