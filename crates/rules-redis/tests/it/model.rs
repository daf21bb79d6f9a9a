//! Random batches against a map in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_rules::{Batch, Changes, Effect, Op, Outcome, Precondition, Rule, Stored, Write, Written};
use sluicegate_rules_redis::WriteError;

use crate::common::{Server, Store, batch, dry, readable, rule_of};

#[derive(Clone, Default)]
struct Model {
    rules: BTreeMap<String, (Stored, bool)>,
    version: u64,
}

impl Model {
    /// Makes a batch on a copy; with the number of changes that fail if some do.
    fn apply(&self, batch: &Batch) -> Result<(Model, Vec<Outcome>), usize> {
        let (mut next, mut outcomes, mut failed) = (self.clone(), Vec::new(), 0);
        for Write { op, precondition } in &batch.changes {
            let before = next.rules.get(op.id()).map(|(stored, _)| stored.clone());
            if !precondition.holds(before.as_ref()) {
                failed += 1;
                continue;
            }
            let (effect, after) = match op {
                Op::Put { rule, pattern } => {
                    let same = |(stored, was): &(Stored, bool)| stored.rule == *rule && was == pattern;
                    if next.rules.get(&rule.id).is_some_and(same) {
                        (Effect::Unchanged, before.clone())
                    } else {
                        next.version = self.version + 1;
                        let stored = Stored { rule: rule.clone(), version: next.version };
                        next.rules.insert(rule.id.clone(), (stored.clone(), *pattern));
                        let effect = if before.is_some() { Effect::Replaced } else { Effect::Created };
                        (effect, Some(stored))
                    }
                }
                Op::Delete { id } if before.is_some() => {
                    next.rules.remove(id);
                    next.version = self.version + 1;
                    (Effect::Deleted, None)
                }
                Op::Delete { .. } => {
                    failed += 1;
                    continue;
                }
            };
            outcomes.push(Outcome { effect, before, after });
        }
        if failed > 0 { Err(failed) } else { Ok((next, outcomes)) }
    }

    fn select(&self, wanted: impl Fn(&Rule, bool) -> bool) -> Vec<Stored> {
        let wanted = self.rules.values().filter(|(stored, pattern)| wanted(&stored.rule, *pattern));
        wanted.map(|(stored, _)| stored.clone()).collect()
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
            [("r", id), ("l", limit), ("k\"é\n", key), ("n", note)].map(|(a, b)| format!("{a}{b}"));
        let rule = rule_of(&limit, &id, &key, &note);
        let op = if delete { Op::Delete { id } } else { Op::Put { rule, pattern } };
        Write { op, precondition }
    });
    prop::collection::vec(change, 1..5)
}

async fn compare(store: &Store, model: &Model) {
    assert_eq!(store.version().await.unwrap().version, model.version);
    assert_eq!(store.count().await.unwrap(), model.rules.len() as u64);
    assert_eq!(store.list(None, None, None, 100).await.unwrap(), model.select(|_, _| true));
    let (version, patterns) = store.patterns().await.unwrap();
    let mut patterns = readable(patterns);
    patterns.sort_by(|a, b| a.rule.id.cmp(&b.rule.id));
    assert_eq!((version, patterns), (model.version, model.select(|_, pattern| pattern)));
    let (limit, key) = ("l1", "k\"é\n2");
    assert_eq!(store.list(Some(limit), None, Some("r1"), 2).await.unwrap(), {
        let mut page = model.select(|rule, _| rule.limit == limit && rule.id.as_str() > "r1");
        page.truncate(2);
        page
    });
    assert_eq!(store.list(None, Some(key), None, 9).await.unwrap(), model.select(|rule, _| rule.key == key));
    let expected = model.select(|rule, pattern| rule.limit == limit && rule.key == key && !pattern);
    assert_eq!(readable(store.exact(limit, &["other".into(), key.into()]).await.unwrap()), expected);
    let mut limits: Vec<String> = model.rules.values().map(|(stored, _)| stored.rule.limit.clone()).collect();
    limits.sort_unstable();
    limits.dedup();
    assert_eq!(store.limits().await.unwrap(), limits);
    assert_eq!(store.get("r3").await.unwrap().as_ref(), model.rules.get("r3").map(|(stored, _)| stored));
}

/// The rules that the log of changes leads to.
async fn replayed(store: &Store) -> BTreeMap<String, Rule> {
    let Changes::List(changes) = store.changes(0, 1_000).await.unwrap() else {
        panic!("nothing is trimmed yet")
    };
    let mut rules = BTreeMap::new();
    let mut last = (0, 0);
    for change in changes {
        let next = (change.version, change.seq);
        assert!(next == (last.0, last.1 + 1) || next == (last.0 + 1, 0), "{next:?} after {last:?}");
        last = next;
        let id = change.before.as_ref().or(change.after.as_ref()).unwrap().id.clone();
        let before = match change.after {
            Some(rule) => rules.insert(id, rule),
            None => rules.remove(&id),
        };
        assert_eq!(before, change.before);
    }
    rules
}

async fn run(server: &Server, batches: Vec<(Vec<Write>, bool)>) {
    server.command::<()>(&["FLUSHALL"]);
    let store = server.store();
    let mut model = Model::default();
    for (changes, dry_run) in batches {
        let batch = if dry_run { dry(changes) } else { batch(changes) };
        match (store.write(batch.clone()).await, model.apply(&batch)) {
            (Ok(written), Ok((next, results))) => {
                assert_eq!(written, Written { version: next.version, results });
                model = if dry_run { model } else { next };
            }
            (Err(WriteError::Failed(failures)), Err(failed)) => assert_eq!(failures.len(), failed),
            (written, _) => panic!("{written:?}"),
        }
        compare(&store, &model).await;
    }
    let rules = model.rules.into_iter().map(|(id, (stored, _))| (id, stored.rule)).collect();
    assert_eq!(replayed(&store).await, rules);
}

#[test]
fn the_store_does_what_a_map_does() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let batches = prop::collection::vec((changes(), prop::bool::weighted(0.2)), 1..12);
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(batches in batches)| {
        runtime.block_on(run(&server, batches));
    });
}
