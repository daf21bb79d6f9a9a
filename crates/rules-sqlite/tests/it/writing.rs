//! Batches: all or nothing, preconditions, dry runs.

use sluicegate_rules::Stored;
use sluicegate_rules_sqlite::{
    Changes, Effect, Failure, FailureKind, Op, Outcome, Precondition, ReadError, RuleFile, Write, WriteError,
};

use crate::common::{batch, delete, delete_if, dry, new_file, put, put_if, rule};

fn effects(results: &[Outcome]) -> Vec<Effect> {
    results.iter().map(|outcome| outcome.effect).collect()
}

/// All that can be seen of a file.
fn content(file: &RuleFile) -> (u64, Vec<Stored>, Changes) {
    (
        file.version().unwrap().version,
        file.list(None, None, None, 1_000).unwrap(),
        file.changes(0, 1_000).unwrap(),
    )
}

#[test]
fn one_version_for_a_batch_and_none_for_nothing() {
    let (_folder, file) = new_file();
    let written = file.write(batch([put(rule("a", "k1", "")), put(rule("b", "k2", ""))])).unwrap();
    assert_eq!((written.version, effects(&written.results)), (1, vec![Effect::Created; 2]));
    let written = file.write(batch([put(rule("a", "k1", "")), put(rule("b", "k2", ""))])).unwrap();
    assert_eq!((written.version, effects(&written.results)), (1, vec![Effect::Unchanged; 2]));
    assert_eq!(file.commits(), 1, "nothing to commit");

    let written =
        file.write(batch([put(rule("a", "k1", "")), put(rule("b", "k3", "")), delete("b")])).unwrap();
    assert_eq!(effects(&written.results), [Effect::Unchanged, Effect::Replaced, Effect::Deleted]);
    let stored = |rule, version| Some(Stored { rule, version });
    assert_eq!(written.results[0].after, stored(rule("a", "k1", ""), 1));
    assert_eq!(written.results[1].before, stored(rule("b", "k2", ""), 1));
    assert_eq!(written.results[1].after, stored(rule("b", "k3", ""), 2));
    assert_eq!(written.results[2].before, written.results[1].after);
    assert_eq!((written.version, file.version().unwrap().version, file.count().unwrap()), (2, 2, 1));
    assert_eq!(file.write(batch([])).unwrap().version, 2);
}

#[test]
fn a_rule_that_becomes_a_pattern_has_changed() {
    let (_folder, file) = new_file();
    let as_pattern = |pattern| Write {
        op: Op::Put { rule: rule("a", "10.0.0.0/8", ""), pattern },
        precondition: Precondition::None,
    };
    file.write(batch([as_pattern(false)])).unwrap();
    assert_eq!(effects(&file.write(batch([as_pattern(true)])).unwrap().results), [Effect::Replaced]);
    assert_eq!(file.patterns().unwrap().1.len(), 1);
    assert_eq!(effects(&file.write(batch([as_pattern(true)])).unwrap().results), [Effect::Unchanged]);
}

#[test]
fn one_failure_undoes_the_batch() {
    let (_folder, file) = new_file();
    file.write(batch([put(rule("a", "k1", "")), put(rule("b", "k1", ""))])).unwrap();
    let before = content(&file);
    let current = file.get("a").unwrap().map(Box::new);
    let failed = file.write(batch([
        put(rule("c", "k1", "")),
        put_if(rule("a", "k2", ""), Precondition::Absent),
        put_if(rule("a", "k2", ""), Precondition::Version(vec![7, 8])),
        put_if(rule("d", "k1", ""), Precondition::Exists),
        delete("d"),
        delete_if("d", Precondition::Exists),
        put_if(rule("c", "k2", ""), Precondition::Absent),
        delete_if("b", Precondition::Version(vec![0, 1])),
    ]));
    let of_this_batch = Some(Box::new(Stored { rule: rule("c", "k1", ""), version: 2 }));
    let expected = [
        (1, FailureKind::PreconditionFailed(current.clone())),
        (2, FailureKind::PreconditionFailed(current)),
        (3, FailureKind::PreconditionFailed(None)),
        (4, FailureKind::NotFound),
        (5, FailureKind::PreconditionFailed(None)),
        (6, FailureKind::PreconditionFailed(of_this_batch)),
    ];
    let expected = expected.into_iter().map(|(index, kind)| Failure { index, kind }).collect();
    assert_eq!(failed, Err(WriteError::Failed(expected)));
    assert_eq!(content(&file), before);
}

#[test]
fn the_first_hundred_failures_are_reported() {
    let (_folder, file) = new_file();
    let Err(WriteError::Failed(failures)) = file.write(batch((0..250).map(|n| delete(&n.to_string()))))
    else {
        panic!("there is nothing to delete");
    };
    assert_eq!((failures.len(), failures[99].index), (100, 99));
}

#[test]
fn a_dry_run_tells_the_same_and_changes_nothing() {
    let (_folder, file) = new_file();
    file.write(batch([put(rule("a", "k1", "")), put(rule("b", "k1", ""))])).unwrap();
    let before = content(&file);
    let changes = || [put(rule("a", "k2", "")), delete("b"), put(rule("c", "k*", ""))];
    let reply = file.write(dry(changes())).unwrap();
    assert_eq!(content(&file), before);
    assert_eq!(file.commits(), 1);
    assert!(matches!(file.write(dry([delete("c")])), Err(WriteError::Failed(_))));
    assert_eq!(file.write(batch(changes())).unwrap(), reply);
}

#[test]
fn a_row_that_is_no_rule_is_named() {
    let (_folder, file) = new_file();
    file.write(batch([put(rule("a", "k1", "")), put(rule("b", "k2", ""))])).unwrap();
    let shell = rusqlite::Connection::open(file.path()).unwrap();
    shell.execute("UPDATE rules SET body = '{\"id\": \"a\", \"speed\": 1}' WHERE id = 'a'", ()).unwrap();
    let named = |error: &ReadError| matches!(error, ReadError::Content { id, .. } if id == "a");
    assert!(named(&file.get("a").unwrap_err()));
    assert_eq!(file.exact("api", &["k2".into()]).unwrap().len(), 1);
    match file.write(batch([put(rule("a", "k1", "new"))])) {
        Err(WriteError::Unreadable(error)) => assert!(named(&error)),
        other => panic!("{other:?}"),
    }
    file.write(batch([put(rule("b", "k3", ""))])).unwrap();
    shell
        .execute("UPDATE rules SET body = (SELECT body FROM rules WHERE id = 'b') WHERE id = 'a'", ())
        .unwrap();
    assert!(named(&file.get("a").unwrap_err()), "its body is of another rule");
}
