//! What editors are told of gateway.yaml: a JSON Schema.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::at::At;
use super::hints;
use super::raw::{RawBanFields, RawConfig, RawCostFields, RawListFile, RawPlanFields, RawSecretFile};
use super::raw_balance::{RawBalance, RawBalanceFields, RawEjection, RawEjectionFields, RawRetriesFields};
use super::raw_cors::{RawCors, RawCorsFields};
use super::raw_headers::{RawHeaders, RawHeadersFields};
use super::raw_listen::{RawDrainFields, RawListenerFields};
use super::raw_log::{RawAccessLog, RawAccessLogFields, RawSample, RawSampleFields};
use super::raw_route::{RawRedirectFields, RawRegex, RawRespond};
use super::raw_shape::{RawRewrite, RawRewriteFields};
use super::raw_upstream::RawServerFields;
use super::read::{Named, OneOrMany};
use super::shorthand::{
    RawAnswer, RawBan, RawCost, RawCount, RawDrain, RawList, RawListener, RawPlan, RawProxy, RawRedirect,
    RawRetries, RawSecret, RawServer,
};

/// The schema of the whole file.
pub(super) fn schema() -> Value {
    let generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.into_root_schema_for::<RawConfig>().to_value();
    schema["title"] = "gateway.yaml of Sluicegate".into();
    tidy(&mut schema);
    schema["patternProperties"] = json!({ "^x-": {} });
    schema
}

/// Takes out what comes of how the fields are declared here: a field may be absent, but never null, and `Raw` is a
/// word of this program.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Array(kinds)) = members.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    members.insert("type".to_owned(), kind);
                }
            }
            if let Some(Value::Array(choices)) = members.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(choice)] = choices.as_mut_slice() {
                    let choice = std::mem::take(choice);
                    members.remove("anyOf");
                    members.extend(choice);
                }
            }
            let has_words = members.contains_key("enum");
            if let Some(words) = members.remove("enum") {
                members.remove("type");
                let from_environment = json!({ "type": "string", "pattern": r"\$\{" });
                members.insert(
                    "anyOf".to_owned(),
                    json!([{ "type": "string", "enum": words }, from_environment]),
                );
            }
            if let Some(Value::Object(definitions)) = members.get_mut("definitions") {
                let named = std::mem::take(definitions).into_iter();
                definitions.extend(named.map(|(name, schema)| (name.replace("Raw", ""), schema)));
            }
            if let Some(Value::String(reference)) = members.get_mut("$ref") {
                *reference = reference.replace("Raw", "");
            }
            if let Some(Value::String(description)) = members.get("description")
                && let Some(default) = hints::default_in(description)
            {
                let default = serde_json::from_str(default).unwrap_or_else(|_| default.into());
                members.insert("default".to_owned(), default);
            }
            members.iter_mut().filter(|(name, _)| *name != "anyOf" || !has_words).for_each(|(_, m)| tidy(m));
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// A value for which a number is as natural as a text.
pub(super) struct Scalar;

/// A value, or a regular expression.
pub(super) struct OrRegex<T>(std::marker::PhantomData<T>);

/// A family of answer headers.
pub(super) struct Family;

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
pub(super) use schemas;

schemas! {
    Scalar, "Scalar" => _generator json_schema!({ "type": ["string", "number", "boolean"] });
    Family, "Family" => _generator json_schema!({ "type": "string", "enum": ["x-ratelimit", "ietf", "retry-after"] });
    RawCount, "Count" => _generator hints::number(hints::COUNT, &[]);
    RawCost, "Cost" => generator {
        number_or::<RawCostFields>(&hints::cost(), &["5", "header:X-Cost", "check:cost"], generator)
    };
    RawBalance, "Balance" => generator word_or::<RawBalanceFields>(&["round_robin", "least_requests", "random"], generator);
    RawEjection, "Ejection" => generator word_or::<RawEjectionFields>(&["off"], generator);
    RawRetries, "Retries" => generator number_or::<RawRetriesFields>(hints::COUNT, &[], generator);
    RawAnswer, "Answer" => generator word_or::<RawRespond>(&["usage"], generator);
    RawListener, "Listener" => generator text_or::<RawListenerFields>(&hints::listen_address(), generator);
    RawServer, "Server" => generator text_or::<RawServerFields>(&hints::server(), generator);
    RawPlan, "Plan" => generator {
        number_or::<RawPlanFields>(&format!("{}|{}", hints::COUNT, hints::rate()), &["1000/min"], generator)
    };
    RawAccessLog, "AccessLog" => generator text_or::<RawAccessLogFields>(".+", generator);
    RawSample, "Sample" => generator text_or::<RawSampleFields>(hints::SHARE, generator);
    RawRedirect, "Redirect" => generator text_or::<RawRedirectFields>(".+", generator);
    RawRewrite, "Rewrite" => generator text_or::<RawRewriteFields>(".+", generator);
    OrRegex<T> where T, "OrRegex" => generator {
        let (value, regex) = (generator.subschema_for::<T>(), generator.subschema_for::<RawRegex>());
        json_schema!({ "anyOf": [value, regex] })
    };
    RawHeaders, "RateLimitHeaders" => generator {
        let (families, fields) = (generator.subschema_for::<Vec<Family>>(), generator.subschema_for::<RawHeadersFields>());
        json_schema!({ "anyOf": [families, fields] })
    };
    RawCors, "Cors" => generator word_or::<RawCorsFields>(&["off"], generator);
    RawBan, "Ban" => generator text_or::<RawBanFields>(&hints::duration(), generator);
    RawDrain, "Drain" => generator text_or::<RawDrainFields>(&hints::duration(), generator);
    RawSecret, "Secret" => generator text_or::<RawSecretFile>(".*", generator);
    RawProxy, "Proxy" => generator text_or::<RawListFile>(&format!("{}|list:.+", hints::network()), generator);
    RawList, "List" => generator {
        let network = hints::text(&hints::network(), &["192.0.2.0/24", "2001:db8::/32"]);
        let file = generator.subschema_for::<RawListFile>();
        json_schema!({ "anyOf": [{ "type": "array", "items": network }, file] })
    };
    At<T> where T, "At" => generator T::json_schema(generator);
    Named<T> where T, "Named" => generator <BTreeMap<String, T>>::json_schema(generator);
    OneOrMany<T> where T, "OneOrMany" => generator {
        let (one, many) = (generator.subschema_for::<T>(), generator.subschema_for::<Vec<T>>());
        json_schema!({ "anyOf": [one, many] })
    };
}

/// A text that matches a pattern, or a mapping.
fn text_or<T: JsonSchema>(pattern: &str, generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [hints::text(pattern, &[]), generator.subschema_for::<T>()] })
}

/// A number, a text that matches a pattern, or a mapping.
fn number_or<T: JsonSchema>(pattern: &str, examples: &[&str], generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [hints::number(pattern, examples), generator.subschema_for::<T>()] })
}

/// One of a few words, or a mapping.
fn word_or<T: JsonSchema>(words: &[&str], generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string", "enum": words }, generator.subschema_for::<T>()] })
}
