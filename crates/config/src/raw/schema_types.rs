//! How editors are told of values that a file does not write as they are declared.

use std::collections::BTreeMap;

use schemars::json_schema;

use crate::read::at::At;
use crate::read::{Named, OneOrMany};

/// A value for which a number is as natural as a text.
pub(crate) struct Scalar;

/// A family of answer headers.
pub(crate) struct Family;

/// Implements `JsonSchema` for types that a file does not write as they are declared.
macro_rules! schemas {
    ($($ty:ty $(where $generic:ident)?, $name:expr => $generator:ident $schema:expr;)*) => {$(
        impl $(<$generic: schemars::JsonSchema>)? schemars::JsonSchema for $ty {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    )*};
}
pub(crate) use schemas;

schemas! {
    Scalar, "Scalar" => _generator json_schema!({ "type": ["string", "number", "boolean"] });
    Family, "Family" => _generator json_schema!({ "type": "string", "enum": ["x-ratelimit", "ietf", "retry-after"] });
    At<T> where T, "At" => generator T::json_schema(generator);
    Named<T> where T, "Named" => generator <BTreeMap<String, T>>::json_schema(generator);
    OneOrMany<T> where T, "OneOrMany" => generator {
        let (one, many) = (generator.subschema_for::<T>(), generator.subschema_for::<Vec<T>>());
        json_schema!({ "anyOf": [one, many] })
    };
}
