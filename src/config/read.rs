//! Tree -> typed values, by one rule for every mapping: unknown and repeated keys are told, the rest is read on.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::node::{Node, Value};
use super::report::{Place, Problem, Report, nearest};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) at: Place,
    pub(super) value: T,
}

/// Something that a node can be read as. `None` means that the report now says why not.
pub(super) trait Read: Sized {
    fn read(node: &Node, report: &mut Report) -> Option<Self>;
}

/// A mapping whose keys are chosen by the user, in the file's order.
#[derive(Clone, Debug)]
pub(super) struct Named<T>(pub(super) Vec<(At<String>, T)>);

/// A single value or a list of them.
#[derive(Clone, Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

/// A field of the manual that this version does not have. Using it is an error, never silence.
#[derive(Clone, Debug)]
pub(super) struct Later;

impl<T> At<T> {
    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.at, message)
    }
}

impl<T: Read> Read for At<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        Some(Self { at: node.at, value: T::read(node, report)? })
    }
}

impl Read for String {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        text(node, "a text", report)
    }
}

impl Read for bool {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Scalar(text) if text == "true" => Some(true), // from the environment
            Value::Scalar(text) if text == "false" => Some(false),
            _ => wrong_kind(node, "true or false", report),
        }
    }
}

impl Read for Later {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        report.error(
            Problem::new(node.at, "this field is not available in this version of sluicegate")
                .help("remove it; CHANGELOG.md says which version brings it"),
        );
        None
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::List(items) => Some(items.iter().filter_map(|item| T::read(item, report)).collect()),
            _ => wrong_kind(node, "a list", report),
        }
    }
}

impl<T: Read> Read for OneOrMany<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::List(_) => Vec::read(node, report).map(Self),
            _ => Some(Self(vec![T::read(node, report)?])),
        }
    }
}

impl<T: Read> Read for Named<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let entries = entries(node, "a mapping of names", report)?;
        let read =
            |(key, value): (At<String>, &Node), report: &mut Report| Some((key, T::read(value, report)?));
        Some(Self(entries.into_iter().filter_map(|entry| read(entry, report)).collect()))
    }
}

/// The node's single value.
pub(super) fn text(node: &Node, expected: &str, report: &mut Report) -> Option<String> {
    match &node.value {
        Value::Scalar(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        _ => wrong_kind(node, expected, report),
    }
}

/// The node's single value, read by `parse`, whose error is reported at the node.
pub(super) fn parsed<T>(
    node: &Node,
    expected: &str,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let text = text(node, expected, report)?;
    parse(&text).map_err(|message| report.error(Problem::new(node.at, message))).ok()
}

pub(super) fn wrong_kind<T>(node: &Node, expected: &str, report: &mut Report) -> Option<T> {
    report.error(Problem::new(node.at, format!("expected {expected}, found {}", node.kind())));
    None
}

/// The entries of a mapping; a key given twice is an error at the second place.
pub(super) fn entries<'a>(
    node: &'a Node,
    expected: &str,
    report: &mut Report,
) -> Option<Vec<(At<String>, &'a Node)>> {
    let Value::Map(map) = &node.value else {
        return wrong_kind(node, expected, report);
    };
    let mut entries: Vec<(At<String>, &Node)> = Vec::with_capacity(map.len());
    for (key, value) in map {
        let Some(name) = At::<String>::read(key, report) else { continue };
        match entries.iter().find(|(earlier, _)| earlier.value == name.value) {
            Some((earlier, _)) => report.error(
                name.problem(format!("`{}` is given twice", name.value))
                    .help(format!("the first one is on line {}; keep one of them", earlier.at.line)),
            ),
            None => entries.push((name, value)),
        }
    }
    Some(entries)
}

/// Reports a key that no field has.
pub(super) fn unknown_key(key: &At<String>, what: &str, known: &[&str], report: &mut Report) {
    let problem = key.problem(format!("unknown key `{}` in {what}", key.value));
    report.error(match nearest(&key.value, known.iter().copied()) {
        Some(name) => problem.help(format!("did you mean `{name}`?")),
        None => problem.help(format!("known keys: {}", known.join(", "))),
    });
}

/// Declares a mapping of the file: its fields, what reads them, and what editors are told of them.
macro_rules! mapping {
    ($(#[$meta:meta])* $what:literal struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident $(= $key:literal)? : $ty:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub(super) struct $name {
            #[schemars(skip)]
            #[allow(dead_code, reason = "not every mapping is named in an error of its own")]
            pub(super) at: Place,
            $($(#[$field_meta])* $(#[schemars(rename = $key)])? pub(super) $field: Option<At<$ty>>,)*
        }

        impl Read for $name {
            fn read(node: &Node, report: &mut Report) -> Option<Self> {
                const KNOWN: &[&str] = &[$(mapping!(@key $field $($key)?)),*];
                let mut mapping = Self { at: node.at, $($field: None),* };
                for (key, value) in entries(node, concat!($what, " (a mapping)"), report)? {
                    match key.value.as_str() {
                        $(mapping!(@key $field $($key)?) => mapping.$field = At::read(value, report),)*
                        _ => unknown_key(&key, $what, KNOWN, report),
                    }
                }
                Some(mapping)
            }
        }
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
}
pub(super) use mapping;

/// What editors are told is what the value itself tells them.
macro_rules! schema_like {
    ($($outer:ident => $inner:ty),*) => {$(
        impl<T: JsonSchema> JsonSchema for $outer<T> {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$inner>::schema_name()
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$inner>::json_schema(generator)
            }
        }
    )*};
}
schema_like!(At => T, Named => std::collections::BTreeMap<String, T>);

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (one, many) = (generator.subschema_for::<T>(), generator.subschema_for::<Vec<T>>());
        schemars::json_schema!({ "anyOf": [one, many] })
    }
}
