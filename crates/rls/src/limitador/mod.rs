//! Limits in the form of limitador, and those of them that apply to a request.
//!
//! `file` reads a limits file, `expression` the part of CEL that its conditions and variables are written in. `request` is what is
//! asked, `answer` what is answered.

mod answer;
mod expression;
mod file;
mod request;

use std::collections::{HashMap, HashSet};

pub use answer::{counters, headers, limits};
pub use expression::{Condition, Variable};
pub use file::{Limit, parse};
pub use request::Question;

use crate::descriptors::counter_key;

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
    ///
    /// # Errors
    /// A limit is in two files: its identity.
    pub fn new(limits: Vec<Limit>) -> Result<Self, String> {
        let (mut namespaces, mut known) = (HashMap::<String, Vec<usize>>::new(), HashSet::new());
        for (index, limit) in limits.iter().enumerate() {
            let identity = limit.identity();
            if known.contains(&identity) {
                return Err(identity);
            }
            known.insert(identity);
            namespaces.entry(limit.namespace.clone()).or_default().push(index);
        }
        Ok(Self { limits, namespaces })
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
    pub fn applied(&self, question: &Question) -> Vec<Applied> {
        let Question { namespace, descriptors, .. } = question;
        let apply = |index: &usize| {
            let limit = &self.limits[*index];
            let mut conditions = limit.conditions.iter().flat_map(|(_, conditions)| conditions);
            if !conditions.all(|condition| condition.holds(descriptors)) {
                return None;
            }
            let values = limit
                .variables
                .iter()
                .map(|(text, variable)| Some((text.as_str(), variable.value(descriptors)?)));
            let values: Vec<_> = values.collect::<Option<_>>()?;
            let entries = values.iter().map(|(text, value)| (*text, &**value));
            Some(Applied { limit: *index, key: counter_key(namespace, entries) })
        };
        self.of_namespace(namespace).iter().filter_map(apply).collect()
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_config::Report;

    use super::*;
    use crate::wire::ratelimit::{Entry, RateLimitDescriptor};

    const FILE: &str = "\
- namespace: web
  max_value: 10
  seconds: 60
  conditions: [\"descriptors[0]['req.method'] == 'POST'\"]
  variables: [\"descriptors[0].user\"]
- {namespace: web, max_value: 1000, seconds: 1, name: all, conditions:, variables: []}
- {namespace: other, max_value: 0, seconds: 1}
";

    fn limits(text: &str) -> Result<Limits, String> {
        let mut report = Report::default();
        let limits = parse(text, &mut report).ok_or_else(|| report.render("limits.yaml", text));
        limits.and_then(Limits::new)
    }

    fn question(namespace: &str, entries: &[(&str, &str)]) -> Question {
        let entries =
            entries.iter().map(|(key, value)| Entry::new(key.to_string(), value.to_string())).collect();
        let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
        Question { namespace: namespace.to_owned(), descriptors, hits: 1, headers: false }
    }

    #[test]
    fn limits_apply_by_conditions_and_variables() {
        let limits = limits(FILE).unwrap();
        let applied = |entries: &[(&str, &str)]| -> Vec<(usize, String)> {
            let applied = limits.applied(&question("web", entries));
            applied.into_iter().map(|applied| (applied.limit, applied.key)).collect()
        };
        let all = (1, "web".to_owned());
        assert_eq!(
            applied(&[("req.method", "POST"), ("user", "a|b")]),
            [(0, "web|descriptors[0].user=a\\|b".to_owned()), all.clone()]
        );
        assert_eq!(applied(&[("req.method", "GET"), ("user", "a")]), std::slice::from_ref(&all));
        assert_eq!(applied(&[("req.method", "POST")]), [all]);
        assert_eq!(limits.applied(&question("unknown", &[])), []);
        let (identity, again) = (limits.all()[0].identity(), [limits.all(), limits.all()].concat());
        assert_eq!(Limits::new(again).unwrap_err(), identity);
    }

    #[test]
    fn mistakes_have_their_place() {
        let text = "\
- {namespace: web, max_value: ten, second: 1, conditions: [user == 'a']}
- 3
- {namespace: web, max_value: 1, seconds: 60, variables: [\"descriptors[0].a\", \"descriptors[0].b\"]}
- {namespace: web, max_value: 2, seconds: 60, variables: [\"descriptors[0].b\", \"descriptors[0].a\"]}
- {namespace: web, max_value: 1, seconds: 0, policy: none, variables: descriptors}
";
        let report = limits(text).unwrap_err();
        for line in [
            "limits.yaml:1:31: error: `max_value` is a whole number from 0 to 1000000000, not `ten`",
            "limits.yaml:1:36: error: unknown key `second` in a limit",
            "limits.yaml:1:3: error: the limit has no `seconds`",
            "limits.yaml:1:60: error: expected `descriptors`, found `user == 'a'`",
            "limits.yaml:2:3: error: expected a limit (a mapping), found `3`",
            "limits.yaml:4:3: error: the limit is there twice, first in line 3",
            "limits.yaml:5:43: error: `seconds` is a whole number from 1 to 31622400, not `0`",
            "limits.yaml:5:46: error: unknown key `policy` in a limit",
            "limits.yaml:5:71: error: `variables` must be a list, found `descriptors`",
        ] {
            assert!(report.contains(line), "{line}\n{report}");
        }
        assert!(limits("limits: []").unwrap_err().contains("expected a list of limits, found a mapping"));
        assert_eq!(limits("[]\n").unwrap().all().len(), 0);
        assert!(limits("---\n").unwrap_err().contains("the file is empty"));
    }
}
