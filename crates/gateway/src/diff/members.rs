//! The members of mappings, compared.

use serde_json::Value;

/// The members of a mapping, or the elements of a list with their names.
pub(super) fn named(value: &Value) -> Vec<(&str, &Value)> {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.as_str(), value)).collect(),
        Value::Array(elements) => {
            let name = |element: &'_ Value| element["name"].as_str().map(str::len).is_some();
            let all = elements.iter().filter(|element| name(element));
            all.map(|element| (element["name"].as_str().unwrap_or_default(), element)).collect()
        }
        _ => Vec::new(),
    }
}

/// The names of the members that differ.
pub(super) fn fields(old: &Value, new: &Value) -> Vec<String> {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return Vec::new() };
    let null = Value::Null;
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = |name: &&String| old.get(*name).unwrap_or(&null) != new.get(*name).unwrap_or(&null);
    names.into_iter().filter(differs).cloned().collect()
}
