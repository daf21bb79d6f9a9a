//! The JSON form of a rule: reading it with messages that name the field, and merge patches.

use serde_json::{Map, Value};

use crate::Rule;

/// The fields of a rule, each with what it takes.
const FIELDS: [(&str, &str); 12] = [
    ("id", "a text"),
    ("limit", "a text"),
    ("key", "a text"),
    ("rate", "a text such as `500/min`"),
    ("burst", "a whole number"),
    ("max", "a whole number"),
    ("mode", "`enforce`, `shadow` or `off`"),
    ("exempt", "`true` or `false`"),
    ("priority", "a whole number"),
    ("from", "a text such as `2026-12-24T00:00:00Z`"),
    ("until", "a text such as `2026-12-24T00:00:00Z`"),
    ("note", "a text"),
];

/// So many characters of a wrong value are shown.
const SHOWN: usize = 40;

impl Rule {
    /// Reads a rule from its JSON form. Fields that are absent have their default; [`Rule::check`] says whether they
    /// may be absent.
    ///
    /// # Errors
    /// A sentence that names the field, or the line and column where the text is no JSON.
    pub fn from_json(text: &str) -> Result<Self, String> {
        // The derived reader takes an array for the fields in order; a rule is an object.
        let typed = match text.trim_start().starts_with('{') {
            true => match serde_json::from_str(text) {
                Ok(rule) => return Ok(rule),
                Err(error) => error.to_string(),
            },
            false => "expected an object".to_owned(),
        };
        let value: Value = serde_json::from_str(text).map_err(|error| format!("no valid JSON: {error}"))?;
        // What the value does not show, such as a field that is given twice, the typed reader has said.
        of_value(value).and(Err(typed))
    }

    /// The rule after a merge patch (RFC 7396) of its JSON form: a field of the patch replaces that of the rule, and
    /// `null` sets its default.
    ///
    /// # Errors
    /// A sentence that names the field: it is unknown, its value is of the wrong kind, or it is `id`, which a patch
    /// cannot change.
    pub fn patched(&self, patch: &Value) -> Result<Self, String> {
        let Value::Object(fields) = patch else {
            return Err(format!("expected an object with the fields to change, found {}", shown(patch)));
        };
        if fields.get("id").is_some_and(|id| *id != self.id) {
            return Err("`id` cannot be changed; create a rule with the other id and delete this one".into());
        }
        if let Some(unknown) = fields.keys().find(|name| expected(name).is_none()) {
            return Err(unknown_field(unknown));
        }
        let mut document = serde_json::to_value(self).map_err(|error| error.to_string())?;
        merge(&mut document, patch);
        of_value(document)
    }
}

fn of_value(value: Value) -> Result<Rule, String> {
    let Value::Object(fields) = &value else {
        return Err(format!("expected an object with the fields of a rule, found {}", shown(&value)));
    };
    for (name, value) in fields {
        let expected = expected(name).ok_or_else(|| unknown_field(name))?;
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        if serde_json::from_value::<Rule>(alone.into()).is_err() {
            return Err(format!("`{name}`: expected {expected}, found {}", shown(value)));
        }
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// What the field takes; `None` if there is no such field.
fn expected(name: &str) -> Option<&'static str> {
    FIELDS.iter().find(|(field, _)| *field == name).map(|(_, expected)| *expected)
}

fn unknown_field(name: &str) -> String {
    let known: Vec<String> = FIELDS.iter().map(|(field, _)| format!("`{field}`")).collect();
    format!("unknown field `{}`; the known ones are {}", cut(name.escape_debug()), known.join(", "))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "an array".into(),
        plain => cut(plain.to_string().chars()),
    }
}

fn cut(mut chars: impl Iterator<Item = char>) -> String {
    let mut text: String = chars.by_ref().take(SHOWN).collect();
    if chars.next().is_some() {
        text.push('…');
    }
    text
}

/// `MergePatch` of RFC 7396, section 2.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                merge(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_fields_is_that_of_the_type() {
        let all = Rule {
            rate: Some("1/s".into()),
            burst: Some(1),
            max: Some(1),
            mode: Some(crate::RuleMode::Off),
            exempt: true,
            ..Rule::default()
        };
        let Value::Object(fields) = serde_json::to_value(all).unwrap() else { panic!("a rule is an object") };
        let mut listed: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        let mut actual: Vec<&str> = fields.keys().map(String::as_str).collect();
        actual.sort_unstable();
        assert_eq!(listed, actual);
    }

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn merges_as_the_standard_says() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let mut value: Value = serde_json::from_str(target).unwrap();
            merge(&mut value, &serde_json::from_str(patch).unwrap());
            assert_eq!(value, serde_json::from_str::<Value>(result).unwrap(), "{target} {patch}");
        }
    }
}
