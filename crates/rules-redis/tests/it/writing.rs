//! Batches: all or nothing, dry runs, large ones, and what others have left in Redis.

use sluicegate_rules::{Effect, FailureKind, Op, Precondition, Write};
use sluicegate_rules_redis::{MAX_CHANGES, ReadError, WriteError};

use crate::common::{Server, batch, delete, dry, ids, put, put_if, readable, rule, run_test};

#[test]
fn one_failure_of_a_thousand_undoes_the_batch() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        store.write(batch([put(rule("r500", "k", "old"))])).await.unwrap();
        let changes = (0..1_000).map(|n| put_if(rule(&format!("r{n}"), "k", "new"), Precondition::Absent));
        let Err(WriteError::Failed(failures)) = store.write(batch(changes)).await else {
            panic!("it exists")
        };
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].index, 500);
        let FailureKind::PreconditionFailed(Some(current)) = &failures[0].kind else { panic!("it exists") };
        assert_eq!((current.rule.note.as_str(), current.version), ("old", 1));
        assert_eq!(store.count().await.unwrap(), 1);
        assert_eq!(store.version().await.unwrap().version, 1);
        assert_eq!(store.exact("api", &["k".into()]).await.unwrap().len(), 1);
    });
}

#[test]
fn the_first_hundred_failures_are_reported_with_the_rules_as_they_are() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        let changes = [put(rule("a", "k", "")), delete("a")].into_iter().chain((0..150).map(|_| delete("a")));
        let Err(WriteError::Failed(failures)) = store.write(batch(changes)).await else {
            panic!("it is gone")
        };
        assert_eq!(failures.len(), 100);
        assert_eq!((failures[0].index, failures[99].index), (2, 101));
        assert!(failures.iter().all(|failure| failure.kind == FailureKind::NotFound));
        // The rule as it is at that place in the batch.
        let changes = [put(rule("a", "k", "first")), put_if(rule("a", "k", "second"), Precondition::Absent)];
        let Err(WriteError::Failed(failures)) = store.write(batch(changes)).await else {
            panic!("it exists")
        };
        let FailureKind::PreconditionFailed(Some(current)) = &failures[0].kind else { panic!("it exists") };
        assert_eq!((current.rule.note.as_str(), current.version), ("first", 1));
    });
}

#[test]
fn a_large_batch_is_sent_in_pieces_and_is_one_batch() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        let changes = |note: &'static str| {
            (0..12_345).map(move |n| put(rule(&format!("r{n:05}"), &format!("k{n}"), note)))
        };
        let dry_run = store.write(dry(changes("one"))).await.unwrap();
        assert_eq!(store.count().await.unwrap(), 0);
        let written = store.write(batch(changes("one"))).await.unwrap();
        assert_eq!(written, dry_run);
        assert_eq!((written.version, written.results.len()), (1, 12_345));
        assert!(written.results.iter().all(|outcome| outcome.effect == Effect::Created));
        assert_eq!(store.count().await.unwrap(), 12_345);
        let failing = changes("two").chain([delete("none")]);
        let Err(WriteError::Failed(failures)) = store.write(batch(failing)).await else {
            panic!("there is none")
        };
        assert_eq!((failures.len(), failures[0].index), (1, 12_345));
        assert_eq!(store.get("r00007").await.unwrap().unwrap().rule.note, "one");
        assert_eq!(server.command::<Vec<String>>(&["KEYS", "*staged*"]), Vec::<String>::new());
        let too_many = std::iter::repeat_with(|| delete("a")).take(MAX_CHANGES + 1);
        assert_eq!(store.write(batch(too_many)).await, Err(WriteError::TooLarge(MAX_CHANGES + 1)));
    });
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        for (id, limit) in [("", "api"), ("a\0b", "api"), ("a", "a\0b")] {
            let mut rule = rule(id, "k", "");
            rule.limit = limit.into();
            let refused = store.write(batch([put(rule)])).await;
            assert_eq!(refused, Err(WriteError::Unstorable(id.into())));
        }
        // A key is anything, and none is taken for another.
        let keys = ["k", "k\0", "k\0x", "", "k\u{1}", "[k", "(k"];
        let changes = keys.iter().enumerate().map(|(n, key)| put(rule(&format!("r{n}"), key, "")));
        store.write(batch(changes)).await.unwrap();
        for (n, key) in keys.iter().enumerate() {
            let found = store.exact("api", &[(*key).to_owned()]).await.unwrap();
            assert_eq!(ids(&readable(found)), [format!("r{n}")], "{key:?}");
        }
    });
}

#[test]
fn an_entry_that_cannot_be_read_is_named_and_can_be_replaced() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        store.write(batch([put(rule("a", "k", "")), put(rule("b", "k", ""))])).await.unwrap();
        server.command::<()>(&["HSET", "test:{rules}:rules", "a", "1-{\"id\":\"a\",\"new\":1}"]);
        let found = store.exact("api", &["k".into()]).await.unwrap();
        let [Err(ReadError::Content { id, .. }), Ok(other)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((id.as_str(), other.rule.id.as_str()), ("a", "b"));
        store.write(batch([put(rule("p", "k*", "")), put(rule("q", "k*", ""))])).await.unwrap();
        server.command::<()>(&["HSET", "test:{rules}:patterns", "p", "2p{"]);
        let (_, patterns) = store.patterns().await.unwrap();
        assert_eq!(patterns.iter().filter(|read| read.is_ok()).count(), 1);
        assert_eq!(patterns.len(), 2, "{patterns:?}");
        let conditional = store.write(batch([put_if(rule("a", "k", ""), Precondition::Absent)])).await;
        assert!(matches!(conditional, Err(WriteError::Unreadable(ReadError::Content { .. }))));
        let written = store.write(batch([put(rule("a", "other", ""))])).await.unwrap();
        assert_eq!((written.results[0].effect, &written.results[0].before), (Effect::Replaced, &None));
        assert_eq!(ids(&readable(store.exact("api", &["k".into()]).await.unwrap())), ["b"]);
        assert_eq!(ids(&readable(store.exact("api", &["other".into()]).await.unwrap())), ["a"]);
    });
}

#[test]
fn nothing_is_written_over_what_others_keep_under_a_name_or_without_memory() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        for name in ["ids", "keys", "patterns", "log"] {
            let name = format!("test:{{rules}}:{name}");
            server.command::<()>(&["SET", &name, "1"]);
            let refused = store.write(batch([put(rule("a", "k*", ""))])).await;
            assert!(matches!(refused, Err(WriteError::Refused(_))), "{refused:?}");
            assert_eq!(store.count().await.unwrap(), 0);
            server.command::<()>(&["DEL", &name]);
        }
        store.write(batch([put(rule("a", "k", "")), put(rule("b", "k", ""))])).await.unwrap();
        server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        let refused = store.write(batch([delete("a"), put(rule("c", "k", ""))])).await;
        assert!(matches!(refused, Err(WriteError::Refused(_))), "{refused:?}");
        assert_eq!(ids(&readable(store.exact("api", &["k".into()]).await.unwrap())), ["a", "b"]);
        server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(store.version().await.unwrap().version, 1);
    });
}

#[test]
fn scripts_that_the_server_forgets_are_sent_again() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        for n in 1..4 {
            server.command::<()>(&["SCRIPT", "FLUSH"]);
            assert_eq!(store.write(batch([put(rule(&format!("r{n}"), "k", ""))])).await.unwrap().version, n);
            server.command::<()>(&["SCRIPT", "FLUSH"]);
            assert_eq!(store.list(None, None, None, 9).await.unwrap().len() as u64, n);
        }
    });
}

#[test]
fn a_rule_that_becomes_a_pattern_has_changed() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        let put = |pattern| Write {
            op: Op::Put { rule: rule("a", "k", ""), pattern },
            precondition: Precondition::None,
        };
        let effects = [
            (false, Effect::Created),
            (true, Effect::Replaced),
            (true, Effect::Unchanged),
            (false, Effect::Replaced),
        ];
        for (pattern, effect) in effects {
            assert_eq!(store.write(batch([put(pattern)])).await.unwrap().results[0].effect, effect);
            assert_eq!(store.patterns().await.unwrap().1.len(), usize::from(pattern));
            assert_eq!(store.exact("api", &["k".into()]).await.unwrap().len(), usize::from(!pattern));
            assert_eq!(store.list(None, Some("k"), None, 9).await.unwrap().len(), 1);
        }
    });
}
