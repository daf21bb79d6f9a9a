//! The `metadata` of a descriptor: any YAML, which proxies get as JSON.

use sluicegate_config::{Problem, YamlNode, YamlValue};

use crate::wire::well_known::{Kind, Struct, Value};

/// The deepest nesting.
const MAX_DEPTH: usize = 32;

/// The mapping as a JSON object.
///
/// # Errors
/// It is no mapping, a key is no text, or it is nested too deeply.
pub(super) fn object(node: &YamlNode) -> Result<Struct, Problem> {
    match &node.value {
        YamlValue::Map(entries) => fields(entries, 0),
        _ => Err(Problem::new(node.at, format!("expected a mapping, found {}", node.kind()))),
    }
}

fn fields(entries: &[(YamlNode, YamlNode)], depth: usize) -> Result<Struct, Problem> {
    let mut found = Struct::default();
    for (key, node) in entries {
        let YamlValue::Scalar(name) = &key.value else {
            return Err(Problem::new(key.at, "a key of a mapping must be a text"));
        };
        found.fields.insert(name.clone(), value(node, depth + 1)?);
    }
    Ok(found)
}

fn value(node: &YamlNode, depth: usize) -> Result<Value, Problem> {
    if depth > MAX_DEPTH {
        return Err(Problem::new(node.at, format!("metadata is nested in more than {MAX_DEPTH} levels")));
    }
    Ok(match &node.value {
        YamlValue::Null | YamlValue::Wrong => Value { kind: Some(Kind::Null(0)) },
        YamlValue::Scalar(text) => scalar(text),
        YamlValue::List(items) => {
            Value::list(items.iter().map(|item| value(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        YamlValue::Map(entries) => Value::object(fields(entries, depth)?),
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
