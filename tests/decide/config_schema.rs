//! gateway.schema.json finds the mistakes that `check` finds, as far as a single value shows them.
//!
//! The validator is of this file, because it is short and those that exist bring dozens of crates along. It knows the
//! words of JSON Schema that the schema uses, and fails at any other.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;
use sluicegate_config::{Problem, schema};
use sluicegate_gateway::resources::{Loaded, parse};

/// Words of messages about what no schema can know, and why.
const BEYOND: &[(&str, &str)] = &[
    ("a priority cannot be in", "names that mean something else"),
    ("has no effect w", "fields that depend on others"),
    ("cannot have `proxy_protocol`", "fields that depend on others"),
    ("cannot decide by the limit", "fields that depend on others"),
    ("does not answer requests itself", "fields that depend on others"),
    ("could be a limit of the files", "fields that depend on others"),
    ("in the name of the file", "files"),
    ("several files have the domain", "files"),
    ("several files have the limit", "files"),
    ("`penalty` and", "fields that depend on others"),
    ("the bucket would hold", "fields that depend on others"),
    ("`queue` and", "fields that depend on others"),
    ("a queue is kept in one place", "fields that depend on others"),
    ("credentials in Redis need", "fields that depend on others"),
    ("have the same queue", "names that depend on others"),
    ("does not fit into", "fields that depend on others"),
    ("`max_body` of a queue", "bounds of values with units"),
    ("`fair` and", "fields that depend on others"),
    ("`fair` divides", "fields that depend on others"),
    ("`fair` needs", "fields that depend on others"),
    ("all requests have the key `global`", "fields that depend on others"),
    ("`warn` is a part", "bounds of values with units"),
    ("`min_in_flight` is above", "fields that depend on others"),
    ("nobody can be on the plan", "fields that depend on others"),
    ("there are no consumers", "fields that depend on others"),
    ("together the floors are", "fields that depend on others"),
    ("`floors` has no region", "fields that depend on others"),
    ("too small to be divided", "fields that depend on others"),
    ("`regions` divides the limits", "fields that depend on others"),
    ("names 1 to 64 regions", "fields that depend on others"),
    ("a region needs a part", "bounds of values with units"),
    ("cannot read", "files"),
    ("holds no", "files"),
    ("holds a certificate that is none", "files"),
    ("has expired", "files"),
    ("cannot be used", "files"),
    ("is not the key of", "files"),
    (" mistake", "files"),
    ("expected PEM", "files"),
    ("is not set", "the environment"),
    ("closing `}`", "the environment"),
    ("names no environment variable", "the environment"),
    ("no name of an environment variable", "the environment"),
    ("there is no", "names elsewhere"),
    ("are called", "names elsewhere"),
    ("is given twice", "names elsewhere"),
    ("the same address as", "names elsewhere"),
    ("have the address", "names elsewhere"),
    ("share addresses", "names elsewhere"),
    ("is given here and in the URL", "names elsewhere"),
    ("the first one with", "names elsewhere"),
    ("means nothing", "fields that depend on others"),
    ("`sync: leased`:", "fields that depend on others"),
    ("are kept in one place", "fields that depend on others"),
    ("needs", "fields that depend on others"),
    ("need something", "fields that depend on others"),
    ("leads nowhere", "fields that depend on others"),
    (" has both `", "fields that depend on others"),
    ("has `", "fields that depend on others"),
    ("can never be admitted", "fields that depend on others"),
    ("199 years", "fields that depend on others"),
    ("a sliding_log holds at most", "fields that depend on others"),
    ("counts by path:", "fields that depend on others"),
    ("does not say who clients are", "fields that depend on others"),
    ("is not forwarded as it was written", "fields that depend on others"),
    ("keeps its %2F", "fields that depend on others"),
    ("never waits in a lane", "fields that depend on others"),
    ("has no database but 0", "fields that depend on others"),
    ("a sentinel has no database", "fields that depend on others"),
    ("not a socket of this machine", "fields that depend on others"),
    ("is for all routes", "fields that depend on others"),
    ("those with underscores are removed", "fields that depend on others"),
    (":443` is not an origin", "origins with the usual port, which browsers leave out"),
    ("only fixed_window counts by it", "fields that depend on others"),
    ("do not go together", "fields that depend on others"),
    ("not a name that a certificate can be for", "what a URL means"),
    ("is between", "bounds of values with units"),
    ("is at least", "bounds of values with units"),
    ("is at most", "bounds of values with units"),
    ("longer than nothing", "bounds of values with units"),
    ("has at least 32 bytes", "bounds of values with units"),
    ("is empty", "empty lists and texts"),
    ("needs a name", "empty lists and texts"),
    ("`header_case` has at most", "lengths of lists"),
    ("a query parameter has a name", "empty lists and texts"),
    ("is not a regular expression", "what an expression means"),
    ("matches no path", "what an expression means"),
    ("matches no host", "what an expression means"),
    ("KiB compiled", "what an expression means"),
    ("has no key before or after it", "empty lists and texts"),
    ("not in normal form", "what a path means"),
    ("twice", "what a path means"),
    ("not a parameter name", "what a path means"),
    ("is not the front of a path", "what a path means"),
    ("expected a path such as /healthz", "what a path means"),
    ("is neither a path nor a URL", "templates"),
    ("parameter of a path", "templates"),
    ("`{", "templates"),
    ("regular expression", "templates"),
    ("group", "templates"),
    ("this URL", "what a URL means"),
    ("URL of", "what a URL means"),
    ("holds no user or password", "what a URL means"),
    ("can be anybody's", "what a URL means"),
    ("can be read by anybody", "what a URL means"),
    ("can be changed by anybody", "what a URL means"),
    ("such as https://id.example.com", "what a URL means"),
    ("is not a host", "headers and names"),
    ("header name", "headers and names"),
    ("cannot be forwarded", "headers and names"),
    ("cannot be sent on", "headers and names"),
    ("content type", "headers and names"),
    ("cannot be the name", "headers and names"),
    ("cannot be changed", "headers and names"),
    ("unknown key `", "words of lists of words"),
    ("unknown field", "words of lists of words"),
    ("unknown header", "words of lists of words"),
    ("unknown version", "words of lists of words"),
    ("found nothing", "fields without a value"),
    ("names lists", "names elsewhere"),
    ("does not ask the limit", "names elsewhere"),
    ("name different databases", "fields that depend on others"),
    ("is shorter than", "fields that depend on others"),
    ("is not an address, and this limit", "fields that depend on others"),
    ("`default_rate` is above `max_rate`", "fields that depend on others"),
    ("until the answer is there", "fields that depend on others"),
    ("when the answer is there", "fields that depend on others"),
    ("cannot be settled", "fields that depend on others"),
    ("is a secret, and is never logged", "headers and names"),
    ("is not a header value", "headers and names"),
    ("the header has no value", "headers and names"),
    ("has no line break", "headers and names"),
    ("has to name its host", "headers and names"),
    ("given once or not at all", "headers and names"),
    ("cannot be the prefix", "headers and names"),
    ("host of a redirect", "templates"),
    ("names no host", "templates"),
    ("a redirect has the status", "bounds of values with units"),
    ("is not a path", "templates"),
    ("not the host", "templates"),
    ("cannot stand in", "templates"),
    ("found `300-200`", "what a status means"),
    ("found `10.0.0.256`", "exempt values, which may be keys"),
    ("found `fd00::/129`", "exempt values, which may be keys"),
    ("found `10.0.0.0/33`", "exempt values, which may be keys"),
    ("found `1_00`", "numbers, which YAML reads in its own way"),
    ("found `2.0`", "numbers, which YAML reads in its own way"),
    ("found `0x1F`", "numbers, which YAML reads in its own way"),
    ("found `9999", "numbers that are too large"),
    ("found `lots/min`", "the environment"),
];

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new("tests/config").join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn check(file: &Path) -> Loaded {
    let text = fs::read_to_string(file).unwrap();
    parse(text, file.file_name().unwrap().to_str().unwrap(), file.parent().unwrap())
}

/// A text as editors read it; none if it is no YAML.
fn yaml(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).ok()
}

/// Where a value is not what a schema wants, as paths into the value.
fn wrong(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut BTreeSet<String>) {
    let Value::Object(words) = schema else { panic!("{schema} is no schema") };
    for (word, wanted) in words {
        let fits = match word.as_str() {
            "type" => {
                let one = std::slice::from_ref(wanted);
                wanted.as_array().map_or(one, Vec::as_slice).iter().any(|kind| is(value, kind))
            }
            "enum" => wanted.as_array().unwrap().contains(value),
            "pattern" => {
                let pattern = Regex::new(wanted.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= wanted.as_u64().unwrap()),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
            "required" => wanted.as_array().unwrap().iter().all(|name| {
                value.as_object().is_none_or(|members| members.contains_key(name.as_str().unwrap()))
            }),
            _ => true,
        };
        if !fits {
            found.insert(at.to_owned());
        }
        match word.as_str() {
            "$ref" => {
                let target = root.pointer(wanted.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                wrong(root, target, value, at, found);
            }
            "anyOf" => alternatives(root, wanted.as_array().unwrap(), value, at, found),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    wrong(root, wanted, item, &format!("{at}/{index}"), found);
                }
            }
            "properties" | "additionalProperties" | "propertyNames" => {
                let known = |name: &String| words.get("properties").and_then(|known| known.get(name));
                let extends = |name: &str| {
                    let patterns = words.get("patternProperties").and_then(Value::as_object);
                    patterns.is_some_and(|all| all.keys().any(|p| Regex::new(p).unwrap().is_match(name)))
                };
                for (name, member) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}/{name}");
                    match (word.as_str(), known(name)) {
                        ("properties", Some(schema)) => wrong(root, schema, member, &at, found),
                        ("additionalProperties", None) if extends(name) => {}
                        ("additionalProperties", None) if *wanted == Value::Bool(false) => {
                            found.insert(at);
                        }
                        ("additionalProperties", None) => wrong(root, wanted, member, &at, found),
                        ("propertyNames", _) => {
                            wrong(root, wanted, &Value::String(name.clone()), &at, found);
                        }
                        _ => {}
                    }
                }
            }
            "type" | "enum" | "pattern" | "minLength" | "minimum" | "maximum" | "required"
            | "patternProperties" | "description" | "title" | "examples" | "default" | "definitions"
            | "$schema" | "format" => {}
            _ => panic!("the validator of this test does not know `{word}`"),
        }
    }
}

/// Of a value that fits no alternative the mistakes are those of the one whose kind it is.
fn alternatives(root: &Value, all: &[Value], value: &Value, at: &str, found: &mut BTreeSet<String>) {
    let of = |schema: &Value| {
        let mut found = BTreeSet::new();
        wrong(root, schema, value, at, &mut found);
        found
    };
    if all.iter().any(|schema| of(schema).is_empty()) {
        return;
    }
    let own_kind = |schema: &&Value| {
        let target = schema.get("$ref").map(|reference| reference.as_str().unwrap().trim_start_matches('#'));
        let kind = &target.map_or(*schema, |target| root.pointer(target).unwrap())["type"];
        kind.is_string() && is(value, kind)
    };
    match all.iter().find(own_kind) {
        Some(schema) => found.extend(of(schema)),
        None => _ = found.insert(at.to_owned()),
    }
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("the schema knows no {other}"),
    }
}

fn found(value: &Value) -> BTreeSet<String> {
    let schema = schema();
    let mut found = BTreeSet::new();
    wrong(&schema, &schema, value, "", &mut found);
    found
}

#[test]
fn what_check_accepts_the_schema_accepts() {
    for file in files("good").into_iter().chain(files("doubtful")).chain(["gateway.yaml".into()]) {
        let value = yaml(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(found(&value), BTreeSet::new(), "{}", file.display());
    }
}

#[test]
fn what_check_finds_in_a_single_value_the_schema_finds() {
    let beyond = |problem: &&Problem| BEYOND.iter().any(|(words, _)| problem.message.contains(words));
    let (mut missed, mut of_form) = (String::new(), 0);
    for file in files("bad") {
        let text = fs::read_to_string(&file).unwrap();
        let Some(value) = yaml(&text) else { continue }; // editors tell that as well
        let loaded = check(&file);
        let errors: Vec<&Problem> = loaded.report.errors.iter().filter(|problem| !beyond(problem)).collect();
        of_form += errors.len();
        let found = found(&value);
        if found.len() < errors.len() {
            let messages: Vec<&str> = errors.iter().map(|problem| problem.message.as_str()).collect();
            missed += &format!("{}: {messages:#?}, but the schema finds {found:?}\n", file.display());
        }
    }
    assert!(missed.is_empty(), "{missed}");
    assert!(of_form > 150, "{of_form} mistakes of form");
}

/// Each kind of mistake that is beyond a schema is met in a file, so that the list does not outlive its reasons.
#[test]
fn mistakes_beyond_a_schema_exist() {
    let all: String = files("bad").iter().map(|file| check(file).rendered).collect();
    let never: Vec<_> = BEYOND.iter().filter(|(words, _)| !all.contains(words)).collect();
    assert!(never.is_empty(), "{never:#?}");
}

/// Editors show a text for each field, and its default is one that may be written there.
#[test]
fn every_field_is_described() {
    fn walk(root: &Value, schema: &Value, place: &str, defaults: &mut usize) {
        match schema {
            Value::Object(words) => {
                for (word, member) in words {
                    for (name, property) in
                        member.as_object().filter(|_| word == "properties").into_iter().flatten()
                    {
                        assert!(property["description"].is_string(), "{place}/{name} has no description");
                        let Some(default) = property.get("default") else { continue };
                        let mut found = BTreeSet::new();
                        wrong(root, property, default, "", &mut found);
                        assert!(found.is_empty(), "{default} is no value of {place}/{name}");
                        *defaults += 1;
                    }
                    if !["default", "examples", "enum", "required"].contains(&word.as_str()) {
                        walk(root, member, &format!("{place}/{word}"), defaults);
                    }
                }
            }
            Value::Array(members) => members.iter().for_each(|member| walk(root, member, place, defaults)),
            _ => {}
        }
    }
    let (schema, mut defaults) = (schema(), 0);
    walk(&schema, &schema, "", &mut defaults);
    assert!(defaults > 60, "{defaults} defaults");
}
