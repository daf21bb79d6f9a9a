//! The part of CEL that limits are written in: a value of a descriptor, alone or compared with a text.

use sluicegate_config::Mistake;

use crate::wire::ratelimit::RateLimitDescriptor;

/// The most descriptors that an expression can index.
const MAX_INDEX: usize = crate::wire::decode::MAX_DESCRIPTORS;

/// So many characters of an expression are shown in a message.
const MAX_SHOWN: usize = 60;

/// What is supported.
const SUPPORTED: &str =
    "supported are descriptors[0].key and descriptors[0]['key'], compared with a text by == and !=, and &&";

/// A value of a descriptor: `descriptors[0].path` or `descriptors[0]['path']`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    index: usize,
    key: String,
}

/// A comparison of a value with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    variable: Variable,
    is_equal: bool,
    text: String,
}

impl Variable {
    /// Reads a variable.
    ///
    /// # Errors
    /// What is not supported of CEL, or is not CEL.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let mut rest = Rest(text);
        let variable = rest.variable()?;
        rest.end()?;
        Ok(variable)
    }

    /// Its value; `None` if there is no such descriptor or entry.
    pub fn value<'d>(&self, descriptors: &'d [RateLimitDescriptor]) -> Option<std::borrow::Cow<'d, str>> {
        let entries = &descriptors.get(self.index)?.entries;
        entries.iter().rev().find(|entry| entry.key == self.key.as_bytes()).map(|entry| entry.value())
    }
}

impl Condition {
    /// Reads conditions that are joined by `&&`.
    ///
    /// # Errors
    /// What is not supported of CEL, or is not CEL.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Mistake> {
        let mut rest = Rest(text);
        let mut all = Vec::new();
        loop {
            let variable = rest.variable()?;
            let is_equal = match () {
                () if rest.eat("==") => true,
                () if rest.eat("!=") => false,
                () => return Err(rest.unexpected("`==` or `!=`")),
            };
            let text = rest.text()?;
            all.push(Self { variable, is_equal, text });
            if !rest.eat("&&") {
                rest.end()?;
                return Ok(all);
            }
        }
    }

    /// Whether it holds. A condition about a value that the request does not have never holds.
    pub fn holds(&self, descriptors: &[RateLimitDescriptor]) -> bool {
        self.variable.value(descriptors).is_some_and(|value| (value == self.text) == self.is_equal)
    }
}

/// What is left of an expression.
struct Rest<'t>(&'t str);

impl<'t> Rest<'t> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        if let Some(rest) = rest {
            self.0 = rest;
        }
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), Mistake> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    fn end(&self) -> Result<(), Mistake> {
        if self.0.trim().is_empty() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    fn unexpected(&self, wanted: &str) -> Mistake {
        let rest = self.0.trim();
        let found = match rest.char_indices().nth(MAX_SHOWN) {
            _ if rest.is_empty() => "the end".to_owned(),
            Some((end, _)) => format!("`{}…`", &rest[..end]),
            None => format!("`{rest}`"),
        };
        Mistake::new(format!("expected {wanted}, found {found}")).help(SUPPORTED)
    }

    fn variable(&mut self) -> Result<Variable, Mistake> {
        let whole = Self(self.0);
        let root = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        if root != "descriptors" {
            let error = whole.unexpected("`descriptors`");
            let is_name = root.starts_with(|c: char| c.is_ascii_alphabetic())
                && !["true", "false", "null"].contains(&root)
                && !self.0.starts_with(['(', '.', '[']);
            return Err(match is_name {
                true => error.help(format!("no request has a plain name: write descriptors[0]['{root}']")),
                false => error,
            });
        }
        self.expect("[")?;
        let whole = Self(self.0);
        let digits = self.take(|c| c.is_ascii_digit());
        let index = digits.parse().ok().filter(|index| *index < MAX_INDEX);
        let index = index.ok_or_else(|| whole.unexpected(&format!("an index below {MAX_INDEX}")))?;
        self.expect("]")?;
        if self.eat(".") {
            let key = self.take(|c| c.is_ascii_alphanumeric() || c == '_').to_owned();
            if key.is_empty() || key.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(self.unexpected("the name of a key"));
            }
            return Ok(Variable { index, key });
        }
        self.expect("[")?;
        let key = self.text()?;
        self.expect("]")?;
        Ok(Variable { index, key })
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let text = self.0.trim_start();
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        self.0 = &text[end..];
        &text[..end]
    }

    /// A text in single or double quotes, without escapes.
    fn text(&mut self) -> Result<String, Mistake> {
        let quote = match () {
            () if self.eat("'") => '\'',
            () if self.eat("\"") => '"',
            () => return Err(self.unexpected("a text in quotes")),
        };
        let Some(end) = self.0.find(quote) else {
            return Err(self.unexpected(&format!("a closing {quote}")));
        };
        let text = &self.0[..end];
        if text.contains('\\') {
            return Err(Mistake::new("escapes in texts are not supported").help(SUPPORTED));
        }
        self.0 = &self.0[end + 1..];
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ratelimit::Entry;

    fn request() -> Vec<RateLimitDescriptor> {
        let entries = vec![Entry::new("path", "/a"), Entry::new("req.method", "GET")];
        vec![RateLimitDescriptor::default(), RateLimitDescriptor { entries, ..Default::default() }]
    }

    #[test]
    fn conditions_hold_for_values() {
        let holds = |text: &str| {
            Condition::parse_all(text).unwrap().iter().all(|condition| condition.holds(&request()))
        };
        assert!(holds("descriptors[1].path == '/a'"));
        assert!(holds(" descriptors[1][\"req.method\"]=='GET' && descriptors[1]['path'] != \"/b\" "));
        assert!(!holds("descriptors[1].path != '/a'"));
        assert!(!holds("descriptors[0].path != '/a'"), "a missing value is not another one");
        assert!(!holds("descriptors[9].path == '/a'"));
    }

    #[test]
    fn variables_have_values() {
        let value =
            |text: &str| Variable::parse(text).unwrap().value(&request()).map(|value| value.into_owned());
        assert_eq!(value("descriptors[1].path"), Some("/a".to_owned()));
        assert_eq!(value("descriptors[1]['user']"), None);
    }

    #[test]
    fn other_parts_of_cel_are_named() {
        for (text, found) in [
            ("user_id == 'a'", "expected `descriptors`, found `user_id == 'a'`"),
            ("'a' == descriptors[0].path", "expected `descriptors`, found `'a' == descriptors[0].path`"),
            ("size(descriptors) == 1", "expected `descriptors`, found `size(descriptors) == 1`"),
            ("descriptors[0].path.startsWith('/a')", "expected `==` or `!=`, found `.startsWith('/a')`"),
            ("descriptors[0].path == /a", "expected a text in quotes, found `/a`"),
            ("descriptors[0].path == 'a", "expected a closing ', found `a`"),
            ("descriptors[0].path == 'a' || true", "expected the end, found `|| true`"),
            ("descriptors[100].path == 'a'", "expected an index below 100, found `100].path == 'a'`"),
            ("descriptors[0].path == 'a\\'b'", "escapes in texts are not supported"),
            ("descriptors[0].1 == 'a'", "expected the name of a key, found `== 'a'`"),
        ] {
            let error = Condition::parse_all(text).unwrap_err();
            assert_eq!(error.message, found);
        }
        let plain = Variable::parse("user_id").unwrap_err();
        assert_eq!(plain.help.unwrap(), "no request has a plain name: write descriptors[0]['user_id']");
    }
}
