//! The tree of a domain, and the limit of a descriptor.

use std::collections::HashMap;

use sluicegate_config::Place;

use super::wildcard::matches;
use crate::wire::ratelimit::Unit;
use crate::wire::well_known::Struct;

/// The limits of a file.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    pub(super) name: String,
    /// The first is the root.
    pub(super) nodes: Vec<Node>,
    pub(super) rules: Vec<Rule>,
}

/// A descriptor of the file, or the root of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The descriptors within it by `key_value`, or by `key` if they have no value.
    pub(super) children: HashMap<String, usize>,
    /// Those of `children` that have a `*`, in the order of the file.
    pub(super) wildcards: Vec<(String, usize)>,
    pub(super) rule: Option<usize>,
    pub(super) share_threshold: bool,
    pub(super) value_to_metric: bool,
}

/// A descriptor with a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The domain and the keys and values of the file: `domain.key_value.key2`. No other rule of the file has it.
    pub path: String,
    /// Whether its descriptors have all their values, so that all requests that it applies to have one counter.
    pub is_literal: bool,
    /// How much it admits.
    pub amount: Amount,
    /// Its name, which others can replace; empty if it has none.
    pub name: String,
    /// Names of limits that do not apply to a request that this one applies to.
    pub replaces: Vec<String>,
    /// Whether it never refuses.
    pub shadow_mode: bool,
    /// Whether a request is refused only if all groups of such limits refuse it.
    pub quota_mode: bool,
    /// Whether metrics name all values.
    pub detailed_metric: bool,
    /// What a proxy is told of a request that this limit admits.
    pub metadata: Option<Struct>,
    /// Where its `rate_limit` stands.
    pub at: Place,
}

/// How much a rule admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Everything; nothing is counted.
    Unlimited,
    /// So many hits per unit.
    Limited {
        /// Hits; 0 refuses all requests.
        requests_per_unit: u32,
        /// Never [`Unit::Unknown`].
        unit: Unit,
    },
}

/// The rule that applies to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its index in [`Domain::rules`].
    pub rule: usize,
    /// What is counted apart under it: see [`counter_key`].
    pub key: String,
}

/// How an entry was found.
#[derive(Clone, Copy)]
struct Step<'d> {
    node: &'d Node,
    by: By<'d>,
}

#[derive(Clone, Copy)]
enum By<'d> {
    /// Key and value.
    Value,
    /// A wildcard, with the key.
    Wildcard(&'d str),
    Key,
}

impl Domain {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limits, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule that applies to the entries of a descriptor.
    ///
    /// At each level the key with the value is looked up, then wildcards in the order of the file, then the key alone. What is
    /// found first is followed, and there is no way back: a descriptor below a less exact one is not tried. The last entry has to
    /// end at a descriptor with a limit.
    pub fn find<K: AsRef<str>, V: AsRef<str>>(&self, entries: &[(K, V)]) -> Option<Found> {
        let (rule, steps) = self.steps(entries)?;
        let values = entries.iter().zip(&steps);
        let values =
            values.map(|((key, value), step)| (key.as_ref(), step.counted(key.as_ref(), value.as_ref())));
        Some(Found { rule, key: counter_key(&self.name, values) })
    }

    /// The name that the metrics of the original have for the limit of a descriptor: values are in it where the file says
    /// `detailed_metric` or `value_to_metric`.
    pub fn metric_name<K: AsRef<str>, V: AsRef<str>>(&self, entries: &[(K, V)]) -> Option<String> {
        let (rule, steps) = self.steps(entries)?;
        let detailed = self.rules[rule].detailed_metric;
        let mut name = self.name.clone();
        for ((key, value), step) in entries.iter().zip(&steps) {
            let (key, value) = (key.as_ref(), value.as_ref());
            let part = match (step.by, detailed || step.node.value_to_metric) {
                (By::Wildcard(_), _) if step.node.share_threshold => step.counted(key, value),
                (By::Wildcard(pattern), false) => value_of(pattern, key),
                (By::Key, false) => "",
                _ => value,
            };
            name.push('.');
            name.push_str(key);
            if !part.is_empty() {
                name.push('_');
                name.push_str(part);
            }
        }
        Some(name)
    }

    fn steps<K: AsRef<str>, V: AsRef<str>>(&self, entries: &[(K, V)]) -> Option<(usize, Vec<Step<'_>>)> {
        let mut node = self.nodes.first()?;
        let mut steps = Vec::with_capacity(entries.len());
        let mut joined = String::new();
        for (key, value) in entries {
            joined.clear();
            joined.extend([key.as_ref(), "_", value.as_ref()]);
            let (index, by) = node.child(&joined, key.as_ref())?;
            node = &self.nodes[index];
            steps.push(Step { node, by });
        }
        node.rule.map(|rule| (rule, steps))
    }
}

impl Node {
    fn child(&self, joined: &str, key: &str) -> Option<(usize, By<'_>)> {
        if let Some(index) = self.children.get(joined) {
            return Some((*index, By::Value));
        }
        if let Some((pattern, index)) = self.wildcards.iter().find(|(pattern, _)| matches(pattern, joined)) {
            return Some((*index, By::Wildcard(pattern)));
        }
        self.children.get(key).map(|index| (*index, By::Key))
    }
}

impl<'d> Step<'d> {
    /// The value that is counted: that of the wildcard if its values share a counter.
    fn counted(&self, key: &str, value: &'d str) -> &'d str {
        match self.by {
            By::Wildcard(pattern) if self.node.share_threshold => value_of(pattern, key),
            _ => value,
        }
    }
}

/// The value of a wildcard, which is `key_value`.
fn value_of<'d>(pattern: &'d str, key: &str) -> &'d str {
    pattern.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')).unwrap_or(pattern)
}

/// The text of a counter: `domain|key=value|key2=value2`, with a backslash before each `\`, `|` and `=` of a name or value. It
/// does not change when limits change, and no two descriptors have the same.
pub fn counter_key<'a>(domain: &str, entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::with_capacity(64);
    escaped(&mut text, domain);
    for (key, value) in entries {
        text.push('|');
        escaped(&mut text, key);
        text.push('=');
        escaped(&mut text, value);
    }
    text
}

fn escaped(text: &mut String, part: &str) {
    let mut rest = part;
    while let Some(at) = rest.find(['\\', '|', '=']) {
        text.push_str(&rest[..at]);
        text.push('\\');
        text.push_str(&rest[at..=at]);
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_different_descriptors_have_different_keys() {
        assert_eq!(counter_key("d", [("k", "v"), ("x", "")]), "d|k=v|x=");
        assert_eq!(counter_key("d|", [("k=", "a|b\\")]), "d\\||k\\==a\\|b\\\\");
        assert_ne!(counter_key("d", [("a", "b|c=d")]), counter_key("d", [("a", "b"), ("c", "d")]));
    }
}
