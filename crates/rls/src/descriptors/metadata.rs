//! The `metadata` of a descriptor: any YAML, which proxies get as JSON.

use sluicegate_config::{Problem, YamlNode, YamlValue};

use crate::wire::well_known::{Kind, Struct, Value};

/// The mapping as a JSON object.
///
/// # Errors
/// It is no mapping, or a key is no text.
pub(super) fn object(node: &YamlNode) -> Result<Struct, Problem> {
    match &node.value {
        YamlValue::Map(entries) => fields(entries),
        _ => Err(Problem::new(node.at, format!("expected a mapping, found {}", node.kind()))),
    }
}

fn fields(entries: &[(YamlNode, YamlNode)]) -> Result<Struct, Problem> {
    let mut found = Struct::default();
    for (key, node) in entries {
        let YamlValue::Scalar(name) = &key.value else {
            return Err(Problem::new(key.at, "a key of a mapping must be a text"));
        };
        found.fields.insert(name.clone(), value(node)?);
    }
    Ok(found)
}

fn value(node: &YamlNode) -> Result<Value, Problem> {
    Ok(match &node.value {
        YamlValue::Null | YamlValue::Wrong => Value { kind: Some(Kind::Null(0)) },
        YamlValue::Scalar(text) => scalar(text),
        YamlValue::List(items) => Value::list(items.iter().map(value).collect::<Result<_, _>>()?),
        YamlValue::Map(entries) => Value::object(fields(entries)?),
    })
}

/// A scalar, whose quotes are not known here: a text that looks like a number or a boolean is one.
fn scalar(text: &str) -> Value {
    let number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match (text, text.parse::<f64>()) {
        ("true" | "false", _) => Value { kind: Some(Kind::Bool(text == "true")) },
        (_, Ok(value)) if number && value.is_finite() => Value::number(value),
        _ => Value::text(text),
    }
}
