//! `cors` as it is written: a mapping, or `off`.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::report::Report;
use crate::read::yaml_tree::{Node, Value};
use crate::read::{OneOrMany, Read, mapping, wrong_kind};

/// Which pages may read answers; `None` for none.
#[derive(Clone, Debug)]
pub(crate) struct RawCors(pub(crate) Option<RawCorsFields>);

mapping! {
    /// Cross-origin resource sharing (CORS): which origins may read responses.
    "cors"
    struct RawCorsFields {
        /// Origins: https://app.example.com, https://*.example.com for all subdomains, or `*` alone for all.
        #[schemars(required, with = "OneOrMany<hints::Origin>")]
        origins: OneOrMany<At<RawText>>,
        /// Whether cross-origin requests may carry cookies and client certificates. Default: false.
        credentials: bool,
        /// Response headers that pages may read, in addition to the rate limit headers.
        #[schemars(with = "Option<OneOrMany<hints::Header>>")]
        expose: OneOrMany<At<RawText>>,
        /// Methods that pages may use. Default: the one that the preflight request asks for.
        #[schemars(with = "Option<OneOrMany<hints::Method>>")]
        methods: OneOrMany<At<RawText>>,
        /// Request headers that pages may set. Default: those that the preflight request asks for.
        #[schemars(with = "Option<OneOrMany<hints::Header>>")]
        headers: OneOrMany<At<RawText>>,
        /// How long browsers may remember the answer to a preflight request, up to 24h.
        #[schemars(with = "Option<hints::Duration>")]
        max_age: RawText,
    }
}

impl Read for RawCors {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text == "off" => Some(Self(None)),
            Value::Map(_) => RawCorsFields::read(node, report).map(|fields| Self(Some(fields))),
            _ => wrong_kind(
                node,
                "cors (a mapping such as {origins: [https://app.example.com]}) or off",
                report,
            ),
        }
    }
}

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawCors, "Cors" => generator crate::raw::hints::word_or::<RawCorsFields>(&["off"], generator);
}
