//! A file as a tree. All its mistakes are reported together, each with its place.
//!
//! The YAML reader refuses files that are nested deeply, so functions can call themselves here.
//!
//! What the original reads without a word and then ignores, such as a field of a limit beside it, is a warning here.

use std::collections::HashMap;

use sluicegate_config::{Place, Problem, Report, YamlNode, YamlValue, nearest, parse_yaml};

use super::metadata;
use super::tree::{Amount, Domain, Node, Rule};
use crate::wire::ratelimit::Unit;

const ROOT: &[&str] = &["domain", "descriptors"];
const DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const RATE_LIMIT: &[&str] = &["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const REPLACES: &[&str] = &["name"];

/// The domain of a file, and everything that is wrong with it. `None` if something is.
pub fn parse(text: &str, report: &mut Report) -> Option<Domain> {
    let before = report.errors.len();
    let tree = parse_yaml(text).map_err(|problem| report.error(problem)).ok()?;
    let mut reader = Reader { report, domain: Domain::default(), paths: HashMap::new() };
    reader.file(&tree);
    let Reader { report, domain, .. } = reader;
    report.sort();
    (report.errors.len() == before).then_some(domain)
}

struct Reader<'r> {
    report: &'r mut Report,
    domain: Domain,
    /// How often each path was used.
    paths: HashMap<String, u32>,
}

/// The fields of a mapping.
struct Fields<'t> {
    found: Vec<(&'t str, Place, &'t YamlNode)>,
}

impl<'t> Fields<'t> {
    /// A field that is there and not null.
    fn get(&self, name: &str) -> Option<&'t YamlNode> {
        let (.., node) = self.found.iter().find(|(known, ..)| *known == name)?;
        (!matches!(node.value, YamlValue::Null | YamlValue::Wrong)).then_some(*node)
    }

    fn place(&self, name: &str) -> Option<Place> {
        self.found.iter().find(|(known, ..)| *known == name).map(|(_, place, _)| *place)
    }
}

impl Reader<'_> {
    fn file(&mut self, tree: &YamlNode) {
        self.domain.nodes.push(Node::default());
        if matches!(tree.value, YamlValue::Null) {
            self.error(Place::START, "the file is empty", "a file has a `domain` and `descriptors`");
            return;
        }
        let Some(fields) = self.fields(tree, "the file", ROOT) else { return };
        self.domain.name = self.text(&fields, "domain");
        if self.domain.name.is_empty() && self.report.errors.is_empty() {
            let at = fields.place("domain").unwrap_or(Place::START);
            self.error(
                at,
                "the file has no `domain`",
                "write the domain that the proxy names in its requests",
            );
        }
        let path = self.domain.name.clone();
        self.descriptors(&fields, 0, (&path, true));
        self.unknown_replacements();
    }

    fn descriptors(&mut self, fields: &Fields<'_>, parent: usize, (path, is_literal): (&str, bool)) {
        let Some(node) = fields.get("descriptors") else { return };
        let mut lines = HashMap::new();
        for item in self.list(node) {
            let Some(fields) = self.fields(item, "a descriptor", DESCRIPTOR) else { continue };
            let (key, value) = (self.text(&fields, "key"), self.text(&fields, "value"));
            if key.is_empty() {
                self.error(
                    item.at,
                    "the descriptor has no `key`",
                    "write the key of the entry that it stands for",
                );
                continue;
            }
            let has_value = !value.is_empty();
            let joined = if value.is_empty() { key } else { format!("{key}_{value}") };
            let at = fields.place("key").unwrap_or(item.at);
            if let Some(line) = lines.insert(joined.clone(), at.line) {
                let text = format!("`{joined}` is there twice, first in line {line}");
                self.error(at, &text, "descriptors beside each other need different keys or values");
                continue;
            }
            let is_literal = is_literal && has_value && !joined.contains('*');
            let path = format!("{path}.{joined}");
            let rule = self.rule(&fields, (&path, is_literal));
            let share_threshold = self.is_true(&fields, "share_threshold");
            if share_threshold && !joined.contains('*') {
                let at = fields.place("share_threshold").unwrap_or(item.at);
                self.error(
                    at,
                    "there is nothing to share: the value has no `*`",
                    "only values of a wildcard share a counter",
                );
            }
            let node = Node {
                rule,
                share_threshold,
                value_to_metric: self.is_true(&fields, "value_to_metric"),
                ..Node::default()
            };
            let index = self.domain.nodes.len();
            self.domain.nodes.push(node);
            let parent = &mut self.domain.nodes[parent];
            if joined.contains('*') {
                parent.wildcards.push((joined.clone(), index));
            }
            parent.children.insert(joined, index);
            self.descriptors(&fields, index, (&path, is_literal));
        }
    }

    /// The limit of a descriptor, if it has one.
    fn rule(&mut self, descriptor: &Fields<'_>, (path, is_literal): (&str, bool)) -> Option<usize> {
        let shadow_mode = self.is_true(descriptor, "shadow_mode");
        let quota_mode = self.is_true(descriptor, "quota_mode");
        let detailed_metric = self.is_true(descriptor, "detailed_metric");
        let metadata = descriptor
            .get("metadata")
            .and_then(|node| metadata::object(node).map_err(|problem| self.report.error(problem)).ok());
        let Some(node) = descriptor.get("rate_limit") else {
            for name in ["shadow_mode", "quota_mode", "detailed_metric", "metadata"] {
                if let Some(at) = descriptor.place(name) {
                    self.warning(at, &format!("`{name}` has no effect: the descriptor has no `rate_limit`"));
                }
            }
            return None;
        };
        let fields = self.fields(node, "a rate limit", RATE_LIMIT)?;
        let name = self.text(&fields, "name");
        let rule = Rule {
            path: self.unique(path),
            is_literal,
            amount: self.amount(&fields, node.at)?,
            replaces: self.replaces(&fields, &name),
            name,
            shadow_mode,
            quota_mode,
            detailed_metric,
            metadata,
            at: descriptor.place("rate_limit").unwrap_or(node.at),
        };
        self.domain.rules.push(rule);
        Some(self.domain.rules.len() - 1)
    }

    /// A path that no other rule has: `a.b` within `c` has the same as `b` within `a` within `c`.
    fn unique(&mut self, path: &str) -> String {
        let count = self.paths.entry(path.to_owned()).or_default();
        *count += 1;
        if *count == 1 { path.to_owned() } else { format!("{path}#{count}") }
    }

    fn amount(&mut self, fields: &Fields<'_>, at: Place) -> Option<Amount> {
        const UNITS: &str = "write second, minute, hour, day, week, month or year";
        let (unlimited, text) = (self.is_true(fields, "unlimited"), self.text(fields, "unit"));
        let unit = Unit::named(&text);
        let unit_at = fields.get("unit").map_or(at, |node| node.at);
        let count = self.count(fields);
        if unlimited {
            if unit.is_some() {
                self.error(unit_at, "an unlimited limit has no unit", "remove `unit` or `unlimited`");
            }
            return Some(Amount::Unlimited);
        }
        let Some(unit) = unit else {
            match text.as_str() {
                "" => self.error(unit_at, "the limit has no `unit`", UNITS),
                _ => self.error(unit_at, &format!("`{text}` is no unit"), UNITS),
            }
            return None;
        };
        if fields.get("requests_per_unit").is_none() {
            self.warning(at, "the limit has no `requests_per_unit`: it refuses all requests, like 0");
        }
        Some(Amount::Limited { requests_per_unit: count?, unit })
    }

    fn count(&mut self, fields: &Fields<'_>) -> Option<u32> {
        let Some(node) = fields.get("requests_per_unit") else { return Some(0) };
        let number = match &node.value {
            YamlValue::Scalar(text) => whole_number(text),
            _ => None,
        };
        if number.is_none() {
            let text = format!("expected a whole number up to {}, found {}", u32::MAX, node.kind());
            self.report.error(Problem::new(node.at, text));
        }
        number
    }

    fn replaces(&mut self, fields: &Fields<'_>, own: &str) -> Vec<String> {
        let mut names = Vec::new();
        let Some(node) = fields.get("replaces") else { return names };
        for item in self.list(node) {
            let Some(fields) = self.fields(item, "an entry of `replaces`", REPLACES) else { continue };
            let name = self.text(&fields, "name");
            if name.is_empty() {
                self.error(
                    item.at,
                    "the entry has no `name`",
                    "write the name of the limit that is replaced",
                );
            } else if name == own {
                self.error(item.at, "a limit cannot replace itself", "write the name of another limit");
            } else {
                names.push(name);
            }
        }
        names
    }

    /// Warns of names in `replaces` that no limit has.
    fn unknown_replacements(&mut self) {
        let rules = &self.domain.rules;
        let mut warnings = Vec::new();
        for rule in rules {
            for name in rule.replaces.iter().filter(|name| rules.iter().all(|rule| rule.name != **name)) {
                let text = format!("`replaces` names `{name}`, but no limit of this file has this name");
                warnings.push((rule.at, text));
            }
        }
        warnings.into_iter().for_each(|(at, text)| self.warning(at, &text));
    }

    /// The fields of a mapping; those that are not in `known` are mistakes, or ignored if another mapping has them.
    fn fields<'t>(&mut self, node: &'t YamlNode, what: &str, known: &[&str]) -> Option<Fields<'t>> {
        let YamlValue::Map(entries) = &node.value else {
            let text = format!("{what} must be a mapping, found {}", node.kind());
            self.report.error(Problem::new(node.at, text));
            return None;
        };
        let mut found: Vec<(&str, Place, &YamlNode)> = Vec::new();
        for (key, value) in entries {
            let YamlValue::Scalar(name) = &key.value else {
                self.report.error(Problem::new(key.at, "a key of a mapping must be a text"));
                continue;
            };
            if found.iter().any(|(other, ..)| other == name) {
                self.report.error(Problem::new(key.at, format!("`{name}` is given twice")));
            } else if known.contains(&name.as_str()) {
                found.push((name, key.at, value));
            } else if [ROOT, DESCRIPTOR, RATE_LIMIT, REPLACES].concat().contains(&name.as_str()) {
                self.warning(key.at, &format!("`{name}` has no effect here: {what} has no such field"));
            } else {
                let near = nearest(name, known.iter().copied());
                let help = near.map_or_else(
                    || format!("{what} has: {}", known.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                self.error(key.at, &format!("unknown key `{name}` in {what}"), &help);
            }
        }
        Some(Fields { found })
    }

    fn list<'t>(&mut self, node: &'t YamlNode) -> &'t [YamlNode] {
        if let YamlValue::List(items) = &node.value {
            return items;
        }
        self.report.error(Problem::new(node.at, format!("expected a list, found {}", node.kind())));
        &[]
    }

    /// The text of a field; empty if it is not there.
    fn text(&mut self, fields: &Fields<'_>, name: &str) -> String {
        match fields.get(name) {
            None => String::new(),
            Some(YamlNode { value: YamlValue::Scalar(text), .. }) => text.clone(),
            Some(node) => {
                let text = format!("`{name}` must be a text, found {}", node.kind());
                self.report.error(Problem::new(node.at, text));
                String::new()
            }
        }
    }

    /// Whether a field is there and true, in one of the words of YAML 1.1, which the original reads.
    fn is_true(&mut self, fields: &Fields<'_>, name: &str) -> bool {
        let Some(node) = fields.get(name) else { return false };
        let text = if let YamlValue::Scalar(text) = &node.value { text.as_str() } else { "" };
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => true,
            "false" | "no" | "off" | "n" => false,
            _ => {
                let text = format!("`{name}` must be true or false, found {}", node.kind());
                self.report.error(Problem::new(node.at, text));
                false
            }
        }
    }

    fn error(&mut self, at: Place, message: &str, help: &str) {
        self.report.error(Problem::new(at, message).help(help));
    }

    fn warning(&mut self, at: Place, message: &str) {
        self.report.warning(Problem::new(at, message));
    }
}

/// A whole number as YAML 1.1 has it: with underscores, hexadecimal, octal or binary.
fn whole_number(text: &str) -> Option<u32> {
    let text = text.replace('_', "");
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'o' | b'O', ..] => (&text[2..], 8),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text.as_str(), 10),
    };
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_yaml() {
        let number = whole_number;
        assert_eq!(
            (number("500"), number("1_000"), number("0x10"), number("010")),
            (Some(500), Some(1_000), Some(16), Some(8))
        );
        assert_eq!((number("0"), number("0b11"), number("4294967295")), (Some(0), Some(3), Some(u32::MAX)));
        assert_eq!(
            (number("4294967296"), number("-1"), number("1.5"), number(""), number("0x")),
            (None, None, None, None, None)
        );
    }
}
