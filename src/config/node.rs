//! YAML text -> a tree in which every value knows its line and column.
//!
//! The only file that touches the YAML library. A tree, and not typed values at once, because all mistakes of a
//! file are reported together: a typed deserializer stops at the first.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::report::{Place, Problem};

/// A YAML value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

/// What YAML can say. Numbers keep their text, so that `10k` and `10` are read in one way.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// The tree of `text`.
///
/// # Errors
/// The first mistake of syntax: behind it nothing can be trusted.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins, // told by the reader, with both places
        strict_booleans: true,
        with_snippet: false,
    };
    if text.trim().is_empty() {
        return Err(Problem::new(Place::START, "the file is empty")
            .help("a gateway needs at least `listen` and `routes`"));
    }
    match serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options) {
        Ok(spanned) => Ok(Node::from(spanned)),
        Err(error) => {
            let at = error.location().map_or(Place::START, |l| Place::new(l.line(), l.column(), 1));
            let message = error.without_snippet().to_string();
            // The library ends its message with a place of its own; the report has one already.
            let message = message.split(" at line ").next().unwrap_or(&message).trim_end().to_owned();
            Err(Problem::new(at, format!("not valid YAML: {message}")))
        }
    }
}

impl Node {
    /// What kind of value this is, for "expected …, found …".
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        let location = spanned.referenced;
        let length = match &spanned.value {
            Value::Scalar(text) => text.chars().count().max(1),
            _ => 1,
        };
        Self { at: Place::new(location.line(), location.column(), length as u64), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Scalar(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Value>>()? {
            items.push(Node::from(item));
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<Value>, Spanned<Value>>()? {
            entries.push((Node::from(key), Node::from(value)));
        }
        Ok(Value::Map(entries))
    }
}
