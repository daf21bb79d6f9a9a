//! Random batches against a map in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_rules::{Rule, Stored};
use sluicegate_rules_sqlite::{Batch, Changes, Op, Precondition, RuleFile, Write, WriteError};

use crate::common::{batch, dry, new_file, readable, rule_of};

#[derive(Clone, Default)]
struct Model {
    rules: BTreeMap<String, (Stored, bool)>,
    version: u64,
}

impl Model {
    /// Makes a batch on a copy; `None` if a change of it fails.
    fn apply(&self, batch: &Batch) -> Option<Model> {
        let mut next = self.clone();
        for Write { op, precondition } in &batch.changes {
            let current = next.rules.get(op.id()).map(|(stored, _)| stored.version);
            let holds = match precondition {
                Precondition::None => true,
                Precondition::Absent => current.is_none(),
                Precondition::Exists => current.is_some(),
                Precondition::Version(versions) => current.is_some_and(|current| versions.contains(&current)),
            };
            if !holds {
                return None;
            }
            match op {
                Op::Put { rule, pattern } => {
                    let same = |(stored, was): &(Stored, bool)| stored.rule == *rule && was == pattern;
                    if !next.rules.get(&rule.id).is_some_and(same) {
                        next.version = self.version + 1;
                        let stored = Stored { rule: rule.clone(), version: next.version };
                        next.rules.insert(rule.id.clone(), (stored, *pattern));
                    }
                }
                Op::Delete { id } => {
                    next.rules.remove(id)?;
                    next.version = self.version + 1;
                }
            }
        }
        Some(next)
    }

    fn select(&self, wanted: impl Fn(&Rule, bool) -> bool) -> Vec<Stored> {
        self.rules
            .values()
            .filter(|(stored, pattern)| wanted(&stored.rule, *pattern))
            .map(|(s, _)| s.clone())
            .collect()
    }
}

fn changes() -> impl Strategy<Value = Vec<Write>> {
    let precondition = prop_oneof![
        5 => Just(Precondition::None),
        1 => Just(Precondition::Absent),
        2 => Just(Precondition::Exists),
        3 => prop::collection::vec(1..12_u64, 1..6).prop_map(Precondition::Version),
    ];
    let names = (0..5_u8, 0..2_u8, 0..3_u8, 0..2_u8);
    let change = (names, any::<bool>(), prop::bool::weighted(0.25), precondition);
    let change = change.prop_map(|((id, limit, key, note), pattern, delete, precondition)| {
        let [id, limit, key, note] =
            [("r", id), ("l", limit), ("k", key), ("n", note)].map(|(a, b)| format!("{a}{b}"));
        let rule = rule_of(&limit, &id, &key, &note);
        let op = if delete { Op::Delete { id } } else { Op::Put { rule, pattern } };
        Write { op, precondition }
    });
    prop::collection::vec(change, 1..5)
}

fn compare(file: &RuleFile, model: &Model) {
    assert_eq!(file.version().unwrap().version, model.version);
    assert_eq!(file.count().unwrap(), model.rules.len() as u64);
    assert_eq!(file.list(None, None, None, 100).unwrap(), model.select(|_, _| true));
    let (version, patterns) = file.patterns().unwrap();
    let mut patterns = readable(patterns);
    patterns.sort_by(|a, b| a.rule.id.cmp(&b.rule.id));
    assert_eq!((version, patterns), (model.version, model.select(|_, pattern| pattern)));
    let limit = "l1";
    assert_eq!(file.list(Some(limit), None, Some("r1"), 2).unwrap(), {
        let mut page = model.select(|rule, _| rule.limit == limit && rule.id.as_str() > "r1");
        page.truncate(2);
        page
    });
    let expected = model.select(|rule, pattern| rule.limit == limit && rule.key == "k2" && !pattern);
    assert_eq!(readable(file.exact(limit, &["k2".into()]).unwrap()), expected);
}

/// The rules that the log of changes leads to.
fn replayed(file: &RuleFile) -> BTreeMap<String, Rule> {
    let Changes::List(changes) = file.changes(0, 1_000).unwrap() else { panic!("nothing is trimmed yet") };
    let mut rules = BTreeMap::new();
    for change in changes {
        let id = change.before.as_ref().or(change.after.as_ref()).unwrap().id.clone();
        let before = match change.after {
            Some(rule) => rules.insert(id, rule),
            None => rules.remove(&id),
        };
        assert_eq!(before, change.before);
    }
    rules
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_file_does_what_a_map_does(batches in prop::collection::vec((changes(), prop::bool::weighted(0.2)), 1..12)) {
        let (_folder, file) = new_file();
        let mut model = Model::default();
        for (changes, dry_run) in batches {
            let batch = if dry_run { dry(changes) } else { batch(changes) };
            let expected = model.apply(&batch);
            match file.write(batch) {
                Ok(written) => {
                    let next = expected.expect("a change must fail");
                    assert_eq!(written.version, next.version);
                    model = if dry_run { model } else { next };
                }
                Err(WriteError::Failed(_)) => assert!(expected.is_none()),
                Err(error) => panic!("{error}"),
            }
            compare(&file, &model);
        }
        let rules = model.rules.into_iter().map(|(id, (stored, _))| (id, stored.rule)).collect();
        assert_eq!(replayed(&file), rules);
    }
}
