//! docs/reference.md lists every field of gateway.yaml as the schema describes it. `UPDATE=1 cargo test --test decide config`
//! writes it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::config::compare;

const HEAD: &str = "# Reference

Every field of gateway.yaml with its type, range and default. This page is generated from the types of the program, so it is complete; the
[guide](configuration.md) explains what the fields mean together, and `sluicegate schema` prints the same for editors.

`NAME` stands for names that you choose. A value of another type than a mapping or a list may refer to the environment (`${NAME}`). The types are
described under [Values](configuration.md#values) and [Keys](configuration.md#keys).
";

/// The types of texts, each with one that belongs to it, and one that does not.
const TYPES: &[(&str, &str, &str)] = &[
    ("count", "10k", "64KiB"),
    ("duration", "1h30m", "example"),
    ("size", "64KiB", "example"),
    ("percentage", "10%", "example"),
    ("rate", "20/15s", "a b"),
    ("status", "4xx", "example"),
    ("key", "api_key | ip", "a b"),
    ("`header:NAME`", "header:X-Cost", "header:X-Cost | ip"),
    ("`check:cost`", "check:cost", "a b"),
    ("`jwt:CLAIM`, `consumer:metadata.NAME`, `check:rate`", "check:rate", "a b"),
    ("URL of a Redis", "redis://10.0.0.1", "app://localhost"),
    ("URL of a server", "http://10.0.0.1:9000", "app://localhost"),
    ("address", "[::]:8080", "a b"),
    ("network", "10.0.0.0/8", "a b"),
    ("origin", "app://localhost", "a b"),
    ("host pattern", "*.example.com", "a b"),
    ("path pattern", "/users/{id}", "a b"),
];

/// What a pattern of the schema accepts. Methods are tokens, as names of headers are, and have examples.
fn text_type(pattern: &str, examples: &Value) -> Option<String> {
    let Some((_, own)) = pattern.split_once("\\$\\{|") else {
        return (pattern != "\\$\\{").then(|| "text".to_owned()); // an environment variable alone
    };
    let regex = Regex::new(own).unwrap();
    if regex.is_match("any text: at all") {
        return Some("text".to_owned());
    }
    if regex.is_match("!#$%&'*+.^_`|~") {
        return Some(if examples[0] == "GET" { "method" } else { "header name" }.to_owned());
    }
    let found: Vec<&str> = TYPES
        .iter()
        .filter(|(_, member, other)| regex.is_match(member) && !regex.is_match(other))
        .map(|(name, ..)| *name)
        .collect();
    Some(if found.is_empty() { "text".to_owned() } else { found.join(" or ") })
}

struct Reference<'s> {
    root: &'s Value,
    text: String,
    /// The mappings that have a section.
    described: BTreeSet<String>,
}

/// The heading of a place as an anchor.
fn anchor(place: &str) -> String {
    place.to_lowercase().replace('.', "")
}

/// A number with separators.
fn number(value: &Value) -> String {
    let digits = value.to_string();
    let grouped = digits.len() > 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let separator =
        |at: usize| if grouped && at > 0 && (digits.len() - at).is_multiple_of(3) { "," } else { "" };
    digits.char_indices().map(|(at, digit)| format!("{}{digit}", separator(at))).collect()
}

fn range(schema: &Value) -> String {
    match (&schema["minimum"], &schema["maximum"]) {
        (least, most) if !least.is_null() && least == most => format!(", {}", number(least)),
        (least, Value::Null) if least.as_u64().is_some_and(|least| least > 0) => {
            format!(", from {}", number(least))
        }
        (_, Value::Null) => String::new(),
        (least, most) => {
            format!(", {} to {}", if least.is_null() { "0".into() } else { number(least) }, number(most))
        }
    }
}

impl<'s> Reference<'s> {
    fn resolve(&self, schema: &'s Value) -> &'s Value {
        let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        reference.map_or(schema, |reference| self.root.pointer(reference).unwrap())
    }

    /// The type of a value; mappings below it are added to `below`, with their places.
    fn kind(&self, schema: &'s Value, place: &str, below: &mut Vec<(String, &'s Value)>) -> Vec<String> {
        let schema = self.resolve(schema);
        if let Some(forms) = schema["anyOf"].as_array() {
            let mut kinds: Vec<String> = Vec::new();
            for kind in forms.iter().flat_map(|form| self.kind(form, place, below)) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            return kinds;
        }
        if let Some(words) = schema["enum"].as_array() {
            return words
                .iter()
                .map(|word| format!("`{}`", word.as_str().map_or_else(|| word.to_string(), str::to_owned)))
                .collect();
        }
        if schema["properties"].is_object() {
            below.push((place.to_owned(), schema));
            return vec![format!("[mapping](#{})", anchor(place))];
        }
        if schema["items"].is_object() {
            let kinds = self.kind(&schema["items"], place, below);
            return if kinds.is_empty() {
                Vec::new()
            } else {
                vec![format!("list of {}", kinds.join(" or "))]
            };
        }
        if schema["additionalProperties"].is_object() {
            let kinds = self.kind(&schema["additionalProperties"], &format!("{place}.NAME"), below);
            return vec![format!("mapping of names to {}", kinds.join(" or "))];
        }
        if let Some(pattern) = schema["pattern"].as_str() {
            return text_type(pattern, &schema["examples"])
                .map(|kind| kind + &range(schema))
                .into_iter()
                .collect();
        }
        let one = std::slice::from_ref(&schema["type"]);
        let words = schema["type"].as_array().map_or(one, Vec::as_slice);
        let scalar = words.len() > 2;
        let names = words.iter().map(|word| match word.as_str().unwrap() {
            "string" => "text".to_owned(),
            "integer" => format!("whole number{}", range(schema)),
            other => other.to_owned(),
        });
        if scalar { vec!["text, number or boolean".to_owned()] } else { names.collect() }
    }

    /// A section with the fields of a mapping, and those of the mappings below it.
    fn section(&mut self, place: &str, schema: &'s Value) {
        if !self.described.insert(place.to_owned()) {
            return;
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !place.is_empty() {
            let about = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
            self.text += &format!("\n## {place}\n\n{about}{}", if about.is_empty() { "" } else { "\n\n" });
        } else {
            self.text += "\n";
        }
        self.text += "| field | type | default | |\n| --- | --- | --- | --- |\n";
        let mut below = Vec::new();
        for (name, field) in schema["properties"].as_object().unwrap() {
            let path = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
            let kinds = self.kind(field, &path, &mut below);
            assert!(!kinds.is_empty(), "{path} has no type");
            let default = match &field["default"] {
                Value::Null if required.contains(&name.as_str()) => "required".to_owned(),
                Value::Null => String::new(),
                Value::String(text) => format!("`{text}`"),
                other => format!("`{other}`"),
            };
            let about = field["description"].as_str().unwrap_or_else(|| panic!("{path} has no description"));
            let cells =
                [kinds.join(" or "), default, about.replace('\n', " ")].map(|cell| cell.replace('|', "\\|"));
            self.text += &format!("| `{name}` | {} |\n", cells.join(" | "));
        }
        for (place, schema) in below {
            self.section(&place, schema);
        }
    }
}

#[test]
fn the_reference_is_that_of_the_schema() {
    let schema = sluicegate_config::schema();
    let mut reference = Reference { root: &schema, text: HEAD.to_owned(), described: BTreeSet::new() };
    reference.section("", &schema);
    let mut wrong = String::new();
    compare(&reference.text, Path::new("docs/reference.md"), &mut wrong);
    assert!(wrong.is_empty(), "{wrong}\n`UPDATE=1 cargo test --test decide config` brings it up to date.");
}
