//! Limits in the form of limitador, and those of them that apply to a request.
//!
//! `file` reads a limits file, `expression` the part of CEL that its conditions and variables are written in.

mod expression;
mod file;

use std::collections::HashMap;

pub use expression::{Condition, Variable};
pub use file::{Limit, parse};

use crate::descriptors::counter_key;
use crate::wire::ratelimit::RateLimitDescriptor;

/// The limits of all files.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    limits: Vec<Limit>,
    /// The indices of the limits of each namespace.
    namespaces: HashMap<String, Vec<usize>>,
}

/// A limit that applies to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its index.
    pub limit: usize,
    /// What it counts apart: the values of its variables.
    pub key: String,
}

impl Limits {
    /// Brings the limits of all files together.
    pub fn new(limits: Vec<Limit>) -> Self {
        let mut namespaces: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, limit) in limits.iter().enumerate() {
            namespaces.entry(limit.namespace.clone()).or_default().push(index);
        }
        Self { limits, namespaces }
    }

    /// All limits, in the order of the files.
    pub fn all(&self) -> &[Limit] {
        &self.limits
    }

    /// The indices of the limits of a namespace.
    pub fn of_namespace(&self, namespace: &str) -> &[usize] {
        self.namespaces.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The limits that apply to a request: all their conditions hold, and it has all their variables.
    pub fn applied(&self, namespace: &str, descriptors: &[RateLimitDescriptor]) -> Vec<Applied> {
        let apply = |index: &usize| {
            let limit = &self.limits[*index];
            if !limit.conditions.iter().all(|condition| condition.holds(descriptors)) {
                return None;
            }
            let values: Option<Vec<_>> =
                limit.variables.iter().map(|variable| variable.value(descriptors)).collect();
            let values = values?;
            let names = limit.written_variables.iter().map(String::as_str);
            let key = counter_key(namespace, names.zip(values.iter().map(|value| &**value)));
            Some(Applied { limit: *index, key })
        };
        self.of_namespace(namespace).iter().filter_map(apply).collect()
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_config::Report;

    use super::*;
    use crate::wire::ratelimit::Entry;

    const FILE: &str = "\
- namespace: web
  max_value: 10
  seconds: 60
  conditions: [\"descriptors[0]['req.method'] == 'POST'\"]
  variables: [descriptors[0].user]
- {namespace: web, max_value: 1000, seconds: 1, name: all}
- {namespace: other, max_value: 0, seconds: 1}
";

    fn limits(text: &str) -> Result<Limits, String> {
        let mut report = Report::default();
        parse(text, &mut report).map(Limits::new).ok_or_else(|| report.render("limits.yaml", text))
    }

    fn request(entries: &[(&str, &str)]) -> Vec<RateLimitDescriptor> {
        let entries =
            entries.iter().map(|(key, value)| Entry::new(key.to_string(), value.to_string())).collect();
        vec![RateLimitDescriptor { entries, ..Default::default() }]
    }

    #[test]
    fn limits_apply_by_conditions_and_variables() {
        let limits = limits(FILE).unwrap();
        let applied = |entries: &[(&str, &str)]| -> Vec<(usize, String)> {
            let applied = limits.applied("web", &request(entries));
            applied.into_iter().map(|applied| (applied.limit, applied.key)).collect()
        };
        let all = (1, "web".to_owned());
        assert_eq!(
            applied(&[("req.method", "POST"), ("user", "a|b")]),
            [(0, "web|descriptors[0].user=a\\|b".to_owned()), all.clone()]
        );
        assert_eq!(applied(&[("req.method", "GET"), ("user", "a")]), [all.clone()]);
        assert_eq!(applied(&[("req.method", "POST")]), [all]);
        assert_eq!(limits.applied("unknown", &[]), []);
    }

    #[test]
    fn mistakes_have_their_place() {
        let text = "- {namespace: web, max_value: ten, second: 1, conditions: [user == 'a']}\n- 3\n";
        let report = limits(text).unwrap_err();
        for line in [
            "limits.yaml:1:31: error: `max_value` is a whole number from 0 to 1000000000, not `ten`",
            "limits.yaml:1:36: error: unknown key `second` in a limit",
            "error: the limit has no `seconds`",
            "error: expected `descriptors`, found `user == 'a'`",
            "limits.yaml:2:3: error: expected a limit (a mapping), found `3`",
        ] {
            assert!(report.contains(line), "{line}\n{report}");
        }
    }
}
