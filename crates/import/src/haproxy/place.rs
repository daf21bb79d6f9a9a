//! What a route is chosen by: tests of a request, and several of them together.

use crate::names::escaped;
use crate::regex::regex;
use crate::yaml::{Node, list, map, text};
use sluicegate_config::MatchRegex;

/// A text that a host, path or query parameter is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    /// An expression for the whole text.
    Regex(String),
    /// Any value of a parameter.
    Any,
}

/// A test that a route can make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Host(Vec<Pattern>),
    Path(Vec<Pattern>),
    Method(Vec<String>),
    /// A header and its exact value, or `*`.
    Header(String, String),
    Query(String, Pattern),
}

/// Tests that a request has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    host: Option<Vec<Pattern>>,
    path: Option<Vec<Pattern>>,
    methods: Option<Vec<String>>,
    headers: Vec<(String, String)>,
    query: Vec<(String, Pattern)>,
}

/// What one more test means at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Narrowed {
    /// All requests at the place pass it.
    Always,
    /// None does.
    Never,
    /// Those at this place do.
    To(Box<Place>),
    /// Those that do cannot be described by one route.
    Inexpressible,
}

impl Place {
    /// The requests at this place that pass a test.
    pub(super) fn and(&self, test: &Test) -> Narrowed {
        let mut place = self.clone();
        let known = match test {
            Test::Host(wanted) => patterns(&mut place.host, wanted),
            Test::Path(wanted) => patterns(&mut place.path, wanted),
            Test::Method(wanted) => match &mut place.methods {
                None => {
                    place.methods = Some(wanted.clone());
                    Some(())
                }
                Some(methods) => {
                    methods.retain(|method| wanted.contains(method));
                    if methods.is_empty() {
                        return Narrowed::Never;
                    }
                    Some(())
                }
            },
            Test::Header(name, value) => match place.headers.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) if known == value || value == "*" => Some(()),
                Some((_, known)) if known == "*" => {
                    known.clone_from(value);
                    Some(())
                }
                Some(_) => return Narrowed::Never,
                None => {
                    place.headers.push((name.clone(), value.clone()));
                    Some(())
                }
            },
            Test::Query(name, value) => match place.query.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) if known == value || *value == Pattern::Any => Some(()),
                Some((_, known)) if *known == Pattern::Any => {
                    known.clone_from(value);
                    Some(())
                }
                Some(_) => None,
                None => {
                    place.query.push((name.clone(), value.clone()));
                    Some(())
                }
            },
        };
        match known {
            None => Narrowed::Inexpressible,
            Some(()) if place.host.as_ref().or(place.path.as_ref()).is_some_and(Vec::is_empty) => {
                Narrowed::Never
            }
            Some(()) if place.path.as_ref().is_some_and(Vec::is_empty) => Narrowed::Never,
            Some(()) if place == *self => Narrowed::Always,
            Some(()) => Narrowed::To(Box::new(place)),
        }
    }

    /// The `match` of a route; empty if it matches everything.
    pub(super) fn node(&self) -> Node {
        let mut node = map();
        if let Some(host) = &self.host {
            node.insert("host", one_or_list(host.iter().map(host_node)));
        }
        if let Some(path) = &self.path {
            node.insert("path", one_or_list(path.iter().map(path_node)));
        }
        if let Some(methods) = &self.methods {
            node.insert("methods", list(methods.iter().map(text)));
        }
        if !self.headers.is_empty() {
            let headers = self.headers.iter().fold(map(), |all, (name, value)| all.with(name, text(value)));
            node.insert("headers", headers);
        }
        if !self.query.is_empty() {
            let query = self.query.iter().fold(map(), |all, (name, value)| all.with(name, value_node(value)));
            node.insert("query", query);
        }
        node
    }

    /// A word for the name of a route at this place.
    pub(super) fn word(&self) -> String {
        let shown = |pattern: &Pattern| match pattern {
            Pattern::Exact(text) | Pattern::Prefix(text) | Pattern::Suffix(text) => text.clone(),
            Pattern::Regex(text) => text.trim_start_matches("(?i)").replace(['?', '*', '+'], ""),
            Pattern::Any => String::new(),
        };
        let path = self.path.as_ref().and_then(|path| path.first()).map(shown);
        let host = self.host.as_ref().and_then(|host| host.first()).map(shown);
        let method = self.methods.as_ref().and_then(|methods| methods.first()).cloned();
        [host, path, method].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Intersects patterns with others; `None` if that cannot be written.
fn patterns(have: &mut Option<Vec<Pattern>>, wanted: &[Pattern]) -> Option<()> {
    let Some(known) = have else {
        *have = Some(wanted.to_vec());
        return Some(());
    };
    let mut out: Vec<Pattern> = Vec::new();
    for one in known.iter() {
        for other in wanted {
            if let Some(found) = meet(one, other)?
                && !out.contains(&found)
            {
                out.push(found);
            }
        }
    }
    *known = out;
    Some(())
}

/// The texts that match two patterns: `None` if they cannot be written, `Some(None)` if there are none.
fn meet(one: &Pattern, other: &Pattern) -> Option<Option<Pattern>> {
    use Pattern::{Any, Exact, Prefix, Regex, Suffix};
    let if_so = |so: bool, pattern: &Pattern| Some(so.then(|| pattern.clone()));
    match (one, other) {
        (a, b) if a == b => Some(Some(a.clone())),
        (Any, found) | (found, Any) => Some(Some(found.clone())),
        (Exact(_), Exact(_)) => Some(None),
        (found @ Exact(text), Prefix(begin)) | (Prefix(begin), found @ Exact(text)) => {
            if_so(text.starts_with(begin.as_str()), found)
        }
        (found @ Exact(text), Suffix(end)) | (Suffix(end), found @ Exact(text)) => {
            if_so(text.ends_with(end.as_str()), found)
        }
        (Prefix(a), Prefix(b)) if a.starts_with(b.as_str()) => Some(Some(one.clone())),
        (Prefix(a), Prefix(b)) => if_so(b.starts_with(a.as_str()), other),
        (Suffix(a), Suffix(b)) if a.ends_with(b.as_str()) => Some(Some(one.clone())),
        (Suffix(a), Suffix(b)) => if_so(b.ends_with(a.as_str()), other),
        (Prefix(begin), Suffix(end)) | (Suffix(end), Prefix(begin)) => {
            Some(Some(Regex(format!("{}.*{}", escaped(begin), escaped(end)))))
        }
        (Regex(expression), found @ Exact(text)) | (found @ Exact(text), Regex(expression)) => {
            if_so(MatchRegex::new(expression, false).ok()?.matches(text.as_bytes()), found)
        }
        (found @ Regex(expression), Prefix(begin)) | (Prefix(begin), found @ Regex(expression)) => {
            with_beginning(found, expression, begin)
        }
        (found @ Regex(expression), Suffix(end)) | (Suffix(end), found @ Regex(expression)) => {
            let (folded, body) =
                expression.strip_prefix("(?i)").map_or((false, expression.as_str()), |body| (true, body));
            let literal = ending(body);
            let common = literal.len().min(end.len());
            let differ = match (literal.get(literal.len() - common..), end.get(end.len() - common..)) {
                (Some(a), Some(b)) => !same(a, b, folded),
                _ => false,
            };
            let end = escaped(end);
            match body.strip_suffix(".*") {
                _ if expression.ends_with(&end) => Some(Some(found.clone())),
                _ if differ => Some(None),
                Some(front) if !body.contains('|') && !folded => Some(Some(Regex(format!("{front}.*{end}")))),
                Some(front) if !body.contains('|') => Some(Some(Regex(format!("(?i:{front}).*{end}")))),
                _ => None,
            }
        }
        (Regex(_), Regex(_)) => None,
    }
}

/// An expression and a prefix: all texts of the expression have it, none has, or that cannot be said.
fn with_beginning(found: &Pattern, expression: &str, begin: &str) -> Option<Option<Pattern>> {
    let flagged = expression.strip_prefix("(?i)").or_else(|| expression.strip_prefix("(?i:"));
    let (folded, body) = flagged.map_or((false, expression), |body| (true, body));
    let literal = beginning(body);
    let common = literal.len().min(begin.len());
    match (literal.get(..common), begin.get(..common)) {
        (Some(a), Some(b)) if !same(a, b, folded) => Some(None),
        _ if !folded && literal.starts_with(begin) => Some(Some(found.clone())),
        _ => None,
    }
}

fn same(a: &str, b: &str, folded: bool) -> bool {
    if folded { a.eq_ignore_ascii_case(b) } else { a == b }
}

/// The text that an expression ends with.
fn ending(expression: &str) -> &str {
    let mut end = expression;
    while let Some(c) = end.chars().next_back() {
        if ".[]()^$|*+?{}\\".contains(c) {
            break;
        }
        end = &end[..end.len() - c.len_utf8()];
    }
    let text = &expression[end.len()..];
    match end.strip_suffix("\\.") {
        _ if expression.contains('|') => "",
        // `\d` is not a letter.
        _ if end.ends_with('\\') => text.get(1..).unwrap_or_default(),
        Some(front) if !front.ends_with('\\') => &expression[front.len() + 1..],
        _ => text,
    }
}

/// The text that an expression begins with.
fn beginning(expression: &str) -> String {
    let mut out = String::new();
    let mut characters = expression.chars().peekable();
    while let Some(c) = characters.next() {
        let c = match c {
            '\\' if characters.peek().is_some_and(|next| next.is_ascii_punctuation()) => {
                characters.next().unwrap_or(c)
            }
            '\\' | '.' | '[' | '(' | ')' | '^' | '$' | '|' | '*' | '+' | '?' | '{' => break,
            c => c,
        };
        if characters.peek().is_some_and(|next| "*?{".contains(*next)) {
            break; // this character may be absent
        }
        out.push(c);
    }
    if expression.contains('|') && !expression.contains('(') { String::new() } else { out }
}

pub(super) fn one_or_list(nodes: impl Iterator<Item = Node>) -> Node {
    let mut nodes: Vec<_> = nodes.collect();
    if nodes.len() == 1 { nodes.remove(0) } else { list(nodes) }
}

pub(super) fn host_node(pattern: &Pattern) -> Node {
    match pattern {
        Pattern::Exact(host) => text(host),
        Pattern::Suffix(end) if end.starts_with('.') && end.len() > 1 => text(format!("*{end}")),
        other => value_node(other),
    }
}

pub(super) fn path_node(pattern: &Pattern) -> Node {
    match pattern {
        Pattern::Exact(path) => text(path.replace('{', "%7B").replace('}', "%7D")),
        Pattern::Prefix(path) if path.ends_with('/') && path.len() > 1 && !path.contains(['{', '}']) => {
            text(format!("{path}*"))
        }
        other => value_node(other),
    }
}

fn value_node(pattern: &Pattern) -> Node {
    match pattern {
        Pattern::Exact(value) => text(value),
        Pattern::Prefix(begin) => regex(&format!("{}.*", escaped(begin))),
        Pattern::Suffix(end) => regex(&format!(".*{}", escaped(end))),
        Pattern::Regex(pattern) => regex(pattern),
        Pattern::Any => text("*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(pattern: Pattern) -> Test {
        Test::Path(vec![pattern])
    }

    #[test]
    fn tests_narrow_a_place() {
        let Narrowed::To(api) = Place::default().and(&path(Pattern::Prefix("/api/".into()))) else {
            panic!()
        };
        assert_eq!(api.node().file_value(), "{path: /api/*}");
        assert_eq!(api.and(&path(Pattern::Prefix("/a".into()))), Narrowed::Always);
        assert_eq!(api.and(&path(Pattern::Exact("/x".into()))), Narrowed::Never);
        assert_eq!(api.and(&path(Pattern::Regex("/.*x".into()))), Narrowed::Inexpressible);
        assert_eq!(api.and(&path(Pattern::Regex("(?i)/admin.*".into()))), Narrowed::Never);
        let regex = Pattern::Regex(r"/api/v\.[a-z]+".into());
        let Narrowed::To(version) = api.and(&path(regex.clone())) else { panic!() };
        assert_eq!(
            version.and(&path(Pattern::Exact("/api/v.x".into()))),
            Narrowed::To(Box::new(Place {
                path: Some(vec![Pattern::Exact("/api/v.x".into())]),
                ..Place::default()
            }))
        );
        assert_eq!(version.and(&path(Pattern::Exact("/api/x".into()))), Narrowed::Never);
        assert_eq!(
            (beginning("/a?b"), beginning(r"/a\.b(c|d)"), beginning("/a|/b")),
            ("/".into(), "/a.b".into(), String::new())
        );
        let Narrowed::To(image) = api.and(&path(Pattern::Suffix(".png".into()))) else { panic!() };
        assert_eq!(image.node().file_value(), r"{path: {regex: '/api/.*\.png'}}");
        let other_end = path(Pattern::Suffix(".css".into()));
        assert_eq!(image.and(&other_end), Narrowed::Never);
        let admin = path(Pattern::Regex("(?i)/admin.*".into()));
        let Narrowed::To(admin) = Place::default().and(&admin) else { panic!() };
        let Narrowed::To(styles) = admin.and(&other_end) else { panic!() };
        assert_eq!(styles.node().file_value(), r"{path: {regex: '(?i:/admin).*\.css'}}");
        assert_eq!(styles.and(&path(Pattern::Prefix("/static".into()))), Narrowed::Never);
        assert_eq!(
            (ending(r".*\.png"), ending(r"/a\d"), ending(r"\\.b"), ending("a|b")),
            (".png", "", "b", "")
        );
        let Narrowed::To(post) = api.and(&Test::Method(vec!["POST".into()])) else { panic!() };
        assert_eq!(post.and(&Test::Method(vec!["GET".into()])), Narrowed::Never);
        assert_eq!(post.word(), "/api/ POST");
        let host = Test::Host(vec![Pattern::Suffix(".example.com".into())]);
        let Narrowed::To(host) = Place::default().and(&host) else { panic!() };
        assert_eq!(host.node().file_value(), "{host: \"*.example.com\"}");
        assert_eq!(host.and(&Test::Host(vec![Pattern::Exact("a.org".into())])), Narrowed::Never);
    }
}
