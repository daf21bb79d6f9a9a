//! A gateway.yaml as it is written: with a comment beside each part that names the line it comes from.

use crate::report::Source;

/// The widest line on which a mapping or a list stands in braces or brackets.
const WIDTH: usize = 100;

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    value: Value,
    /// Behind the value, or behind the key of a block.
    comment: Option<String>,
    /// Lines above it.
    above: Vec<String>,
    /// Never in braces or brackets.
    block: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Boolean(bool),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A text; quoted where YAML requires it. References to the environment in it are escaped.
pub fn text(text: impl ToString) -> Node {
    Node::new(Value::Text(text.to_string()))
}

/// `true` or `false`.
pub fn boolean(value: bool) -> Node {
    Node::new(Value::Boolean(value))
}

/// A list.
pub fn list(items: impl IntoIterator<Item = Node>) -> Node {
    Node::new(Value::List(items.into_iter().collect()))
}

/// An empty mapping; [`Node::with`] adds to it.
pub fn map() -> Node {
    Node::new(Value::Map(Vec::new()))
}

impl Node {
    fn new(value: Value) -> Self {
        Self { value, comment: None, above: Vec::new(), block: false }
    }

    /// Adds an entry to a mapping.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, node: Node) -> Self {
        self.insert(key, node);
        self
    }

    /// Adds an entry to a mapping if there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, node: Option<Node>) -> Self {
        match node {
            Some(node) => self.with(key, node),
            None => self,
        }
    }

    /// Adds an entry to a mapping. It replaces one of the same name.
    ///
    /// # Panics
    /// It is not a mapping.
    pub fn insert(&mut self, key: impl Into<String>, node: Node) {
        let Value::Map(entries) = &mut self.value else { panic!("only mappings have entries") };
        let key = key.into();
        match entries.iter_mut().find(|(known, _)| *known == key) {
            Some((_, value)) => *value = node,
            None => entries.push((key, node)),
        }
    }

    /// Names the line that it comes from.
    #[must_use]
    pub fn source(self, source: &Source) -> Self {
        self.comment(source)
    }

    /// Adds a comment behind it.
    #[must_use]
    pub fn comment(mut self, comment: impl ToString) -> Self {
        let comment = one_line(&comment.to_string());
        self.comment = Some(match self.comment.take() {
            Some(before) => format!("{before}, {comment}"),
            None => comment,
        });
        self
    }

    /// Adds a line of comment above it.
    #[must_use]
    pub fn above(mut self, comment: impl ToString) -> Self {
        self.above.push(one_line(&comment.to_string()));
        self
    }

    /// Writes each entry on a line of its own, however short they are.
    #[must_use]
    pub fn block(mut self) -> Self {
        self.block = true;
        self
    }

    /// The list with one more item.
    ///
    /// # Panics
    /// It is not a list.
    #[must_use]
    pub fn and(mut self, item: Self) -> Self {
        let Value::List(items) = &mut self.value else { panic!("only lists have items") };
        items.push(item);
        self
    }

    /// The items of a list; none of anything else.
    pub fn into_items(self) -> Vec<Self> {
        match self.value {
            Value::List(items) => items,
            Value::Text(_) | Value::Boolean(_) | Value::Map(_) => Vec::new(),
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Boolean(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The same without comments.
    #[must_use]
    pub fn plain(self) -> Self {
        let value = match self.value {
            Value::List(items) => Value::List(items.into_iter().map(Self::plain).collect()),
            Value::Map(entries) => {
                Value::Map(entries.into_iter().map(|(key, node)| (key, node.plain())).collect())
            }
            value => value,
        };
        Self { value, comment: None, above: Vec::new(), block: self.block }
    }

    /// The comment behind it.
    pub fn comment_text(&self) -> Option<String> {
        self.comment.clone()
    }

    /// The entries of a mapping; none of anything else.
    pub fn into_entries(self) -> Vec<(String, Self)> {
        match self.value {
            Value::Map(entries) => entries,
            Value::Text(_) | Value::Boolean(_) | Value::List(_) => Vec::new(),
        }
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        match &self.value {
            Value::Text(_) | Value::Boolean(_) => false,
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
        }
    }

    /// The file whose top is this mapping, below some lines of comment. Empty sections are left out.
    pub fn file(&self, comments: &[String]) -> String {
        let mut out: String = comments.iter().map(|line| format!("# {}\n", one_line(line))).collect();
        if let Value::Map(entries) = &self.value {
            for (key, node) in entries.iter().filter(|(_, node)| !node.is_empty()) {
                if !out.is_empty() {
                    out.push('\n');
                }
                entry(&mut out, 0, "", key, node);
            }
        }
        out
    }

    /// The value on one line, for tests.
    #[cfg(test)]
    pub(crate) fn file_value(&self) -> String {
        self.flow().unwrap_or_default()
    }

    /// The value on one line, if it has no comments in it and is not to be a block.
    fn flow(&self) -> Option<String> {
        let plain = |node: &Self| node.comment.is_none() && node.above.is_empty();
        match &self.value {
            Value::Text(text) => Some(scalar(text)),
            Value::Boolean(value) => Some(value.to_string()),
            _ if self.block && !self.is_empty() => None,
            Value::List(items) => {
                let items: Option<Vec<_>> =
                    items.iter().map(|item| plain(item).then(|| item.flow())?).collect();
                Some(format!("[{}]", items?.join(", ")))
            }
            Value::Map(entries) => {
                let entries: Option<Vec<_>> = entries
                    .iter()
                    .map(|(key, node)| {
                        plain(node).then(|| Some(format!("{}: {}", scalar(key), node.flow()?)))?
                    })
                    .collect();
                Some(format!("{{{}}}", entries?.join(", ")))
            }
        }
    }
}

/// Writes `key: value`. `lead` is what stands before the key on its line, such as the dash of a list, and is as wide as the indent
/// of the value's further entries.
fn entry(out: &mut String, indent: usize, lead: &str, key: &str, node: &Node) {
    let pad = " ".repeat(indent);
    let first = if lead.is_empty() { pad.clone() } else { lead.to_owned() };
    node.above.iter().for_each(|line| *out += &format!("{pad}# {line}\n"));
    let start = format!("{first}{}:", scalar(key));
    value(out, indent + 2, &start, node);
}

/// Writes a value behind `start`, the beginning of its line.
fn value(out: &mut String, indent: usize, start: &str, node: &Node) {
    let comment = node.comment.as_ref().map(|comment| format!("  # {comment}")).unwrap_or_default();
    let is_text = matches!(node.value, Value::Text(_) | Value::Boolean(_));
    if let Some(flow) = node.flow().filter(|flow| is_text || start.len() + 1 + flow.chars().count() <= WIDTH)
    {
        *out += &format!("{start} {flow}{comment}\n");
        return;
    }
    match &node.value {
        Value::Text(_) | Value::Boolean(_) => {}
        Value::List(items) => {
            *out += &format!("{start}{comment}\n");
            items.iter().for_each(|one| item(out, indent, one));
        }
        Value::Map(entries) => {
            *out += &format!("{start}{comment}\n");
            entries.iter().for_each(|(key, node)| entry(out, indent, "", key, node));
        }
    }
}

/// Writes an item of a list.
fn item(out: &mut String, indent: usize, node: &Node) {
    let pad = " ".repeat(indent);
    node.above.iter().for_each(|line| *out += &format!("{pad}# {line}\n"));
    let dash = format!("{pad}-");
    match &node.value {
        Value::Map(entries) if node.flow().is_none_or(|flow| indent + 2 + flow.chars().count() > WIDTH) => {
            let mut entries = entries.iter();
            let Some((key, first)) = entries.next() else { return };
            let first = match &node.comment {
                Some(comment) => first.clone().comment(comment),
                None => first.clone(),
            };
            entry(out, indent + 2, &format!("{dash} "), key, &first);
            entries.for_each(|(key, node)| entry(out, indent + 2, "", key, node));
        }
        _ => value(out, indent + 2, &dash, node),
    }
}

/// A scalar of YAML, plain if it can be, else in quotes.
fn scalar(text: &str) -> String {
    let text = text.replace("${", "$${");
    if is_plain(&text) {
        text
    } else if text.chars().any(char::is_control) {
        let escaped: String = text.chars().map(escaped).collect();
        format!("\"{escaped}\"")
    } else if text.contains(['\\', '"']) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        format!("\"{text}\"")
    }
}

/// A character within double quotes.
fn escaped(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    }
}

/// Whether YAML reads it without quotes as this text, within braces and brackets too.
fn is_plain(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '$'));
    let rest = |c: char| c.is_ascii_alphanumeric() || "/_.$-+:@%=~^*()|;".contains(c);
    let word = text.to_ascii_lowercase();
    first
        && text.chars().all(rest)
        && !text.ends_with(':')
        && !text.starts_with("...")
        && !matches!(word.as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n")
}

/// A comment cannot have a second line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_name_their_lines() {
        let at = |line| Source { file: "nginx.conf".into(), line };
        let limit = map().with("key", text("ip")).with("rate", text("10/s")).source(&at(3));
        let route = map()
            .with("name", text("api"))
            .with("match", map().with("path", list([text("/v1/*"), map().with("regex", text(r"/a\.b"))])))
            .with("limits", list([text("one").source(&at(9))]))
            .source(&at(7))
            .above("the first");
        let file = map()
            .with("lists", map())
            .with("limits", map().with("one", limit).block())
            .with("routes", list([route.block()]));
        let expected = "# From nginx.conf\n\nlimits:\n  one: {key: ip, rate: 10/s}  # nginx.conf:3\n\nroutes:\n  # the first\n  \
                        - name: api  # nginx.conf:7\n    match: {path: [/v1/*, {regex: '/a\\.b'}]}\n    limits:\n      \
                        - one  # nginx.conf:9\n";
        assert_eq!(file.file(&["From nginx.conf".into()]), expected);
    }

    #[test]
    fn texts_are_quoted_where_yaml_needs_it() {
        for (plain, written) in [
            ("a-b", "a-b"),
            ("*.example.com", "\"*.example.com\""),
            ("a: b", "\"a: b\""),
            ("off", "\"off\""),
            ("", "\"\""),
            ("it's \\d", "'it''s \\d'"),
            ("line\nbreak\"\\", "\"line\\nbreak\\\"\\\\\""),
            ("${HOME}", "\"$${HOME}\""),
            ("10/s", "10/s"),
            ("[::]:80", "\"[::]:80\""),
            ("#x", "\"#x\""),
            ("a #x", "\"a #x\""),
            ("ümlaut", "\"ümlaut\""),
        ] {
            assert_eq!(scalar(plain), written);
        }
    }
}
