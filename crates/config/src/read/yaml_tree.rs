//! Parses YAML text into a tree of values with line and column.
//!
//! The only file that touches the YAML library. A tree, and not typed values at once, because all mistakes of a
//! file are reported together: a typed deserializer stops at the first.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::NonFiniteFloatPolicy;
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

use crate::read::report::{Place, Problem};
use crate::read::syntax;

/// A YAML value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it stands.
    pub at: Place,
    /// The value.
    pub value: Value,
    /// The bytes of the file that it was read from; for an alias those of what it repeats.
    source: Range<usize>,
}

/// What YAML can say. Numbers and booleans keep their text: `0012` is a token, `1.10` a version.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing, or `null`.
    Null,
    /// A text, number or boolean, as it is written.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping.
    Map(Vec<(Node, Node)>),
    /// A value that is already reported as wrong; no further error is added for it.
    Wrong,
}

/// The tree of `text`.
///
/// # Errors
/// The first mistake of syntax: behind it nothing can be trusted.
pub fn parse(text: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough, // told by the reader, with both places
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options) {
        Ok(spanned) => {
            let mut tree = Node::from(spanned);
            tree.finish(text);
            Ok(tree)
        }
        Err(error) => {
            let at = error.location().map_or(Place::START, |l| Place::new(l.line(), l.column(), 1));
            let message = error.without_snippet().to_string();
            // The library ends its message with a place of its own; the report has one already.
            let message = message.split(" at line ").next().unwrap_or(&message).trim_end();
            Err(syntax::explain(text, at, message))
        }
    }
}

impl Node {
    /// What kind of value this is, for "expected …, found …".
    pub fn kind(&self) -> String {
        match &self.value {
            Value::Scalar(text) if text.chars().count() <= 60 => format!("`{text}`"),
            Value::Scalar(_) => "a text".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
            Value::Null | Value::Wrong => "nothing".to_owned(),
        }
    }

    /// Gives plain values their text back: the library tells a number, not how it was written.
    fn finish(&mut self, text: &str) {
        match &mut self.value {
            Value::Scalar(value) => {
                let source = text.get(self.source.clone()).unwrap_or_default().trim();
                let plain = !source.is_empty()
                    && !source.contains(['\n', '\r'])
                    && !source.starts_with(['"', '\''])
                    && value.trim().len() == value.len(); // else it is of a block, and its end is not in the source
                if plain {
                    source.clone_into(value);
                }
            }
            Value::List(items) => items.iter_mut().for_each(|item| item.finish(text)),
            Value::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                key.finish(text);
                value.finish(text);
            }),
            Value::Null | Value::Wrong => {}
        }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        let (used, defined) = (spanned.referenced, byte_range(&spanned.defined));
        let length = match &spanned.value {
            Value::Scalar(_) => used.span().len(),
            _ => 1,
        };
        Self { at: Place::new(used.line(), used.column(), length), value: spanned.value, source: defined }
    }
}

fn byte_range(location: &Location) -> Range<usize> {
    let span = location.span();
    match (span.byte_offset(), span.byte_len()) {
        (Some(start), Some(length)) => start as usize..(start + length) as usize,
        _ => 0..0,
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

macro_rules! scalars {
    ($($visit:ident($ty:ty))*) => {$(
        fn $visit<E>(self, value: $ty) -> Result<Value, E> {
            Ok(Value::Scalar(value.to_string()))
        }
    )*};
}

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

    scalars! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_i128(i128) visit_u128(u128) visit_f64(f64) visit_str(&str) }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a mapping, in the order of the file.
    fn values(text: &str) -> Vec<String> {
        let Value::Map(entries) = parse(text).unwrap().value else { panic!("{text} is not a mapping") };
        entries.iter().map(|(_, value)| value.kind()).collect()
    }

    #[test]
    fn what_looks_like_a_number_keeps_its_text() {
        for written in ["0012", "1.10", "0x1F", "1e3", "1_000", "+5", ".inf", "0.1e400", "-007", "True"] {
            let expected = [format!("`{written}`"), format!("`{written}`"), "`x`".to_owned()];
            let text = format!("\u{feff}# ž\r\na: &n {written} # n\r\nb: *n\r\nc: x");
            assert_eq!(values(&text), expected, "{text}");
            assert_eq!(values(&format!("{{a: {written}, <<: {{b: {written}}}, c: 'x'}}"))[0], expected[0]);
        }
        assert_eq!(
            values("a: !!int 12\nb: !!str 1.10\nc: '1.10'\nd: \"a\\tb\""),
            ["`12`", "`1.10`", "`1.10`", "`a\tb`"]
        );
        assert_eq!(values("a: |\n  1.10\nb: >-\n  a\n  b\nc: a\n  b\n"), ["`1.10\n`", "`a b`", "`a b`"]);
    }

    #[test]
    fn keys_that_are_given_twice_are_both_there() {
        assert_eq!(values("a: 1\na: 2\n1: 3\n0x1: 4").len(), 4);
    }
}
