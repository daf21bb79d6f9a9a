//! Values on one line: of JSON, or as much of YAML as a list of consumers needs.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'t> {
    /// Nothing, or `null`.
    Nothing,
    Text(Cow<'t, str>),
    List(Vec<Value<'t>>),
    Map(Vec<(Cow<'t, str>, Value<'t>)>),
}

/// What is said of a number or a boolean of JSON.
pub(super) const NOT_TEXT: Wrong = "numbers and booleans are written as texts, in quotes";

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Value<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(NOT_TEXT)
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Value::Nothing)
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Value::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Value::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut map = Vec::new();
                // Read as a value, because that borrows from the line where it can.
                while let Some(key) = entries.next_key()? {
                    let Value::Text(key) = key else { return Err(A::Error::custom(NOT_TEXT)) };
                    map.push((key, entries.next_value()?));
                }
                Ok(Value::Map(map))
            }
        }

        deserializer.deserialize_any(Visit)
    }
}

/// What is wrong with a line. It never quotes the line: there may be a secret in it.
pub(super) type Wrong = &'static str;

/// What is still to be read of a line.
pub(super) struct Scan<'t> {
    rest: &'t str,
}

/// Lists and mappings inside each other: an entry holds metadata, and that holds texts.
const DEEPEST: usize = 2;
/// What is said of a tag: none is known, and to drop one would read another file than the one that was meant.
pub(super) const TAG: Wrong =
    "a tag means nothing here; leave it out, or put a value that begins with ! in quotes";
/// What begins something else than a text.
const RESERVED: [char; 12] = ['&', '*', '!', '|', '>', '%', '@', '`', '?', ',', ']', '}'];

impl<'t> Scan<'t> {
    pub(super) fn new(rest: &'t str) -> Self {
        Self { rest: rest.trim() }
    }

    /// The name before a colon.
    pub(super) fn key(&mut self) -> Result<Cow<'t, str>, Wrong> {
        let bad = "expected `FIELD: VALUE`";
        if self.rest.starts_with('!') {
            return Err(TAG);
        }
        if self.rest.starts_with(['"', '\'']) {
            let key = self.quoted()?;
            self.rest = self.rest.trim_start().strip_prefix(':').ok_or(bad)?;
            return Ok(key);
        }
        let colons = self.rest.match_indices(':').map(|(at, _)| at);
        let ends = |at: &usize| matches!(self.rest.as_bytes().get(at + 1), None | Some(b' ' | b'\t'));
        let end = colons.into_iter().find(ends).ok_or(bad)?;
        let key = &self.rest[..end];
        if key.is_empty() || key.contains(['{', '}', '[', ']', ',', '#', '"', '\'']) {
            return Err(bad);
        }
        self.rest = &self.rest[end + 1..];
        Ok(Cow::Borrowed(key.trim_end()))
    }

    /// The value that fills the rest of the line.
    pub(super) fn value(&mut self) -> Result<Value<'t>, Wrong> {
        let value = self.part(0)?;
        let rest = self.rest.trim_start();
        let commented = rest.len() < self.rest.len() && rest.starts_with('#');
        match rest.is_empty() || commented {
            true => Ok(value),
            false => Err("something stands behind the value"),
        }
    }

    fn part(&mut self, depth: usize) -> Result<Value<'t>, Wrong> {
        let trimmed = self.rest.trim_start();
        let blank = trimmed.len() < self.rest.len();
        match trimmed.chars().next() {
            None => Ok(Value::Nothing),
            Some('#') if blank && depth == 0 => Ok(Value::Nothing),
            Some('"' | '\'') => {
                self.rest = trimmed;
                self.quoted().map(Value::Text)
            }
            Some('[' | '{') if depth == DEEPEST => Err("a list or a mapping stands where a text is expected"),
            Some('[') => {
                let mut items = Vec::new();
                self.members(']', |scan| scan.part(depth + 1).map(|item| items.push(item)))?;
                Ok(Value::List(items))
            }
            Some('{') => {
                let mut entries = Vec::new();
                self.members('}', |scan| {
                    scan.rest = scan.rest.trim_start();
                    let key = scan.key()?;
                    entries.push((key, scan.part(depth + 1)?));
                    Ok(())
                })?;
                Ok(Value::Map(entries))
            }
            Some(_) => {
                self.rest = trimmed;
                self.plain(depth > 0)
            }
        }
    }

    /// What stands between brackets, with commas between.
    fn members(
        &mut self,
        close: char,
        mut member: impl FnMut(&mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.rest = &self.rest.trim_start()[1..];
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix(close) {
                self.rest = rest;
                return Ok(());
            }
            if self.rest.is_empty() {
                return Err("a bracket is not closed; lists and mappings in brackets end on their line");
            }
            member(self)?;
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None if self.rest.starts_with(close) => {}
                None => return Err("expected a comma or a closing bracket, on the same line"),
            }
        }
    }

    fn plain(&mut self, in_brackets: bool) -> Result<Value<'t>, Wrong> {
        let dash = self.rest.starts_with("- ") || self.rest == "-";
        let reserved = !(in_brackets && self.rest.starts_with([',', ']', '}']));
        if self.rest.starts_with('!') {
            return Err(TAG);
        }
        if dash || (reserved && self.rest.starts_with(RESERVED)) {
            return Err("the value begins with a character that means something in YAML; put it in quotes");
        }
        let comment = self.rest.find(" #").unwrap_or(self.rest.len());
        let bracket = self.rest.find([',', '[', ']', '{', '}']).filter(|_| in_brackets);
        let end = bracket.map_or(comment, |at| at.min(comment));
        let text = self.rest[..end].trim_end();
        if text.contains(": ") || text.ends_with(':') {
            return Err("a value with a colon and a space in it needs quotes");
        }
        self.rest = &self.rest[end..];
        Ok(match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Nothing,
            text => Value::Text(Cow::Borrowed(text)),
        })
    }

    /// A text in quotes. The usual one has nothing to undo and is not copied.
    fn quoted(&mut self) -> Result<Cow<'t, str>, Wrong> {
        let unclosed = "a quote is not closed on its line";
        let quote = if self.rest.starts_with('"') { '"' } else { '\'' };
        let inside = &self.rest[1..];
        let end = inside.find([quote, '\\']).ok_or(unclosed)?;
        let behind = &inside[end..];
        if behind.starts_with(quote) && !(quote == '\'' && behind.starts_with("''")) {
            self.rest = &behind[1..];
            return Ok(Cow::Borrowed(&inside[..end]));
        }
        let mut text = String::new();
        let mut chars = inside.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' if quote == '\'' && chars.next_if(|(_, next)| *next == '\'').is_some() => {
                    text.push('\'')
                }
                '\\' if quote == '"' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\' | '/'))) => text.push(escaped),
                    _ => return Err("in double quotes only \\\", \\\\ and \\/ are known here"),
                },
                c if c == quote => {
                    self.rest = &inside[at + 1..];
                    return Ok(Cow::Owned(text));
                }
                c => text.push(c),
            }
        }
        Err(unclosed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value<'_> {
        Value::Text(Cow::Borrowed(value))
    }

    fn value(line: &str) -> Result<Value<'_>, Wrong> {
        Scan::new(line).value()
    }

    #[test]
    fn values_are_read_as_yaml_reads_them() {
        for (line, meant) in [
            ("plain text # comment", text("plain text")),
            ("a#b", text("a#b")),
            ("sha256:00ff", text("sha256:00ff")),
            (r#""a: \"b\"" # c"#, text("a: \"b\"")),
            ("'it''s' ", text("it's")),
            (r"'a\b'", text(r"a\b")),
            ("''", text("")),
            ("~", Value::Nothing),
            ("", Value::Nothing),
            ("[]", Value::List(vec![])),
            ("[a, 'b, c' ,d]", Value::List(vec![text("a"), text("b, c"), text("d")])),
            (
                r#"{a: 1, "b":"2", c: }"#,
                Value::Map(vec![
                    ("a".into(), text("1")),
                    ("b".into(), text("2")),
                    ("c".into(), Value::Nothing),
                ]),
            ),
        ] {
            assert_eq!(value(line), Ok(meant), "{line}");
        }
    }

    #[test]
    fn what_yaml_would_read_differently_is_refused() {
        for line in [
            "a: b", "&a b", "*a", "|", "[a", "{a: b", "\"a", "'a' b", "[[[a]]]", "[a b] c", "- a", "{a}",
            "\"\\n\"",
        ] {
            assert!(value(line).is_err(), "{line} is {:?}", value(line));
        }
    }
}
