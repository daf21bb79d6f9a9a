//! Pages, and the log of changes.

use sluicegate_rules::Changes;

use crate::common::{Server, Store, batch, delete, ids, put, readable, rule, rule_of, run_test};

async fn all(store: &Store, limit: Option<&str>, most: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    loop {
        let page = store.list(limit, None, found.last().map(String::as_str), most).await.unwrap();
        found.extend(ids(&page).into_iter().map(str::to_owned));
        if page.len() < most {
            return found;
        }
    }
}

#[test]
fn pages_meet() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        assert_eq!(all(&store, None, 3).await, Vec::<String>::new());
        // One limit has most of the rules, and one has the first and the last.
        let limit = |n: usize| {
            if n.is_multiple_of(100) {
                "few"
            } else if n.is_multiple_of(7) {
                "some"
            } else {
                "most"
            }
        };
        let id = |n: usize| format!("{}{n:04}", if n.is_multiple_of(2) { "R" } else { "r" });
        let changes = (0..1_001).map(|n| put(rule_of(limit(n), &id(n), "k", "")));
        store.write(batch(changes)).await.unwrap();
        let mut expected: Vec<String> = (0..1_001).map(id).collect();
        expected.sort_unstable();
        for most in [7, 64, 500, 1_001, 5_000] {
            assert_eq!(all(&store, None, most).await, expected, "{most}");
        }
        expected.retain(|id| limit(id[1..].parse().unwrap()) == "few");
        assert_eq!(all(&store, Some("few"), 2).await, expected);
        assert_eq!(store.list(None, None, None, 0).await.unwrap(), []);
        assert_eq!(store.list(Some("few"), Some("k"), Some("R0300"), 2).await.unwrap().len(), 2);
        assert_eq!(store.list(Some("none"), None, None, 2).await.unwrap(), []);
        assert_eq!(store.limits().await.unwrap(), ["few", "most", "some"]);
    });
}

#[test]
fn exact_rules_come_in_the_order_of_the_keys_and_then_of_ids() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        let changes = [("d", "k1"), ("b", "k2"), ("c", "k1"), ("a", "k3"), ("e", "k*")];
        store.write(batch(changes.map(|(id, key)| put(rule(id, key, ""))))).await.unwrap();
        let keys = ["k2", "k1", "k", "k*"].map(str::to_owned);
        assert_eq!(ids(&readable(store.exact("api", &keys).await.unwrap())), ["b", "c", "d"]);
        assert!(store.exact("ap", &keys).await.unwrap().is_empty());
        assert!(store.exact("api", &[]).await.unwrap().is_empty());
    });
}

#[test]
fn changes_are_listed_by_whole_versions() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        for (note, count) in [("one", 3), ("two", 4), ("three", 1)] {
            let changes = (0..count).map(|n| put(rule(&format!("r{n}"), "k*", note)));
            store.write(batch(changes)).await.unwrap();
        }
        store.write(batch([delete("r0")])).await.unwrap();
        for (since, most, expected) in [
            (0, 1, vec![1; 3]),
            (0, 3, vec![1; 3]),
            (0, 6, vec![1; 3]),
            (0, 7, vec![1, 1, 1, 2, 2, 2, 2]),
            (1, 1, vec![2; 4]),
            (2, 9, vec![3, 4]),
            (4, 9, vec![]),
        ] {
            let Changes::List(changes) = store.changes(since, most).await.unwrap() else {
                panic!("it is kept")
            };
            assert_eq!(
                changes.iter().map(|change| change.version).collect::<Vec<_>>(),
                expected,
                "{since} {most}"
            );
        }
        let Changes::List(changes) = store.changes(3, 9).await.unwrap() else { panic!("it is kept") };
        let last = &changes[0];
        assert_eq!(
            (last.seq, last.pattern, last.at, last.actor.as_str()),
            (0, true, 1_700_000_000_000, "test")
        );
        assert_eq!((last.before.as_ref().unwrap().note.as_str(), &last.after), ("three", &None));
        assert_eq!(store.changes(5, 9).await.unwrap(), Changes::Trimmed);
    });
}

#[test]
fn a_trimmed_log_says_so() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        for version in 1..=5 {
            let changes = (0..2).map(|n| put(rule(&format!("r{n}"), "k", &version.to_string())));
            store.write(batch(changes)).await.unwrap();
        }
        // One change of version 3 is left.
        server.command::<()>(&["XTRIM", "test:{rules}:log", "MAXLEN", "5"]);
        for (since, kept) in [(0, false), (2, false), (3, true), (4, true), (5, true)] {
            assert_eq!(matches!(store.changes(since, 99).await.unwrap(), Changes::List(_)), kept, "{since}");
        }
        server.command::<()>(&["DEL", "test:{rules}:log"]);
        assert_eq!(store.changes(4, 99).await.unwrap(), Changes::Trimmed);
        assert_eq!(store.changes(5, 99).await.unwrap(), Changes::List(Vec::new()));
        assert_eq!(store.write(batch([delete("r0")])).await.unwrap().version, 6);
        assert!(matches!(store.changes(5, 99).await.unwrap(), Changes::List(changes) if changes.len() == 1));
    });
}

#[test]
fn the_log_keeps_about_a_hundred_thousand_changes() {
    let server = Server::start();
    run_test(async {
        let store = server.store();
        for note in 0..11 {
            let changes = (0..10_000).map(|n| put(rule(&format!("r{n}"), "k", &note.to_string())));
            store.write(batch(changes)).await.unwrap();
        }
        let kept: u64 = server.command(&["XLEN", "test:{rules}:log"]);
        assert!((100_000..101_000).contains(&kept), "{kept}");
        assert_eq!(store.changes(0, 1).await.unwrap(), Changes::Trimmed);
        assert!(
            matches!(store.changes(1, 1).await.unwrap(), Changes::List(changes) if changes.len() == 10_000)
        );
    });
}
