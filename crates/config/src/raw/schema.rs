//! What editors are told of gateway.yaml: a JSON Schema.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::raw::RawConfig;
use crate::raw::hints;

/// The schema of the whole file.
pub(crate) fn schema() -> Value {
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
