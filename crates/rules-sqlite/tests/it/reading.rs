//! What is read, page by page and since a version.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sluicegate_rules::Stored;
use sluicegate_rules_sqlite::{Changes, ReadError, RuleFile};

use crate::common::{batch, delete, ids, new_file, place, put, readable, rule, rule_of};

fn list(changes: Changes) -> Vec<sluicegate_rules_sqlite::Change> {
    match changes {
        Changes::List(list) => list,
        Changes::Trimmed => panic!("trimmed"),
    }
}

#[test]
fn a_new_file_is_empty_private_and_survives() {
    let (_folder, path) = place();
    fs::write(&path, "").unwrap();
    let file = RuleFile::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((file.count().unwrap(), file.version().unwrap().version), (0, 0));
    file.write(batch([put(rule("a", "k1", "")), put(rule("b", "m-*", ""))])).unwrap();
    let head = file.version().unwrap();
    assert_eq!((head.epoch.len(), head.version), (16, 1));
    drop(file);
    let left: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the file and its lock: {left:?}");

    let file = RuleFile::open(&path).unwrap();
    assert_eq!(file.version().unwrap(), head);
    assert_eq!(file.count().unwrap(), 2);
    assert_eq!(file.get("a").unwrap().unwrap().rule, rule("a", "k1", ""));
    assert_eq!(file.get("c").unwrap(), None);
}

#[test]
fn exact_rules_and_patterns_are_told_apart() {
    let (_folder, file) = new_file();
    file.write(batch([
        put(rule("a", "k1", "")),
        put(rule("b", "k2", "")),
        put(rule("c", "k1", "")),
        put(rule("d", "k*", "")),
        put(rule_of("other", "e", "k1", "")),
        put(rule_of("other", "f", "*", "")),
    ]))
    .unwrap();
    let exact = |limit: &str, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        readable(file.exact(limit, &keys).unwrap())
    };
    assert_eq!(ids(&exact("api", &["k2", "k1", "k3", "k*"])), ["b", "a", "c"]);
    assert_eq!(ids(&exact("other", &["k1"])), ["e"]);
    assert!(exact("none", &["k1"]).is_empty());
    assert!(exact("api", &[]).is_empty());
    let (version, patterns) = file.patterns().unwrap();
    let mut patterns = readable(patterns);
    patterns.sort_by(|a, b| a.rule.id.cmp(&b.rule.id));
    assert_eq!((version, ids(&patterns)), (1, vec!["d", "f"]));
}

#[test]
fn a_row_that_cannot_be_read_hides_no_other() {
    let (_folder, file) = new_file();
    let rules = [("a", "k"), ("b", "k"), ("c", "k"), ("p", "k*"), ("q", "k*")];
    file.write(batch(rules.map(|(id, key)| put(rule(id, key, ""))))).unwrap();
    let direct = rusqlite::Connection::open(file.path()).unwrap();
    for (id, body) in [("a", "'{\"id\":\"a\",\"new\":1}'"), ("c", "x'ff'"), ("p", "'{'")] {
        direct.execute(&format!("UPDATE rules SET body = {body} WHERE id = '{id}'"), ()).unwrap();
    }
    let named = |read: Vec<Result<Stored, ReadError>>| {
        let name = |read: Result<Stored, ReadError>| match read {
            Ok(stored) => stored.rule.id,
            Err(ReadError::Content { id, .. }) => format!("{id}?"),
            Err(other) => panic!("{other}"),
        };
        let mut names: Vec<String> = read.into_iter().map(name).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(named(file.exact("api", &["k".to_owned()]).unwrap()), "a? b c?");
    assert_eq!(named(file.patterns().unwrap().1), "p? q");
    assert_eq!(named(file.page(None, None, None, 9).unwrap()), "a? b c? p? q");
    assert!(matches!(file.get("c"), Err(ReadError::Content { .. })));
}

#[test]
fn pages_meet() {
    let (_folder, file) = new_file();
    let limit = |n: usize| if n.is_multiple_of(3) { "third" } else { "api" };
    let rules = (0..100).map(|n| put(rule_of(limit(n), &format!("r{n:02}"), &format!("k{}", n % 10), "")));
    file.write(batch(rules)).unwrap();
    for (limit, key, expected) in [
        (None, None, 100),
        (Some("third"), None, 34),
        (None, Some("k4"), 10),
        (Some("api"), Some("k4"), 7),
        (Some("none"), None, 0),
    ] {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let page = file.list(limit, key, seen.last().map(String::as_str), 7).unwrap();
            seen.extend(page.iter().map(|stored| stored.rule.id.clone()));
            assert!(page.iter().all(|stored| limit.is_none_or(|limit| stored.rule.limit == limit)));
            assert!(page.iter().all(|stored| key.is_none_or(|key| stored.rule.key == key)));
            if page.len() < 7 {
                break;
            }
        }
        assert_eq!(seen.len(), expected, "{limit:?} {key:?}");
        assert!(seen.is_sorted());
    }
}

#[test]
fn names_are_taken_as_they_are() {
    let (_folder, file) = new_file();
    let odd = ["'; DROP TABLE rules; --", "\u{0}nul\u{0}", "", "ключ", "%", "a,b"];
    file.write(batch(odd.iter().enumerate().map(|(n, key)| put(rule(&format!("{n}{key}"), key, "\u{0}")))))
        .unwrap();
    for (n, key) in odd.iter().enumerate() {
        let id = format!("{n}{key}");
        assert_eq!(
            ids(&readable(file.exact("api", &[(*key).to_owned()]).unwrap())),
            [id.as_str()],
            "{key:?}"
        );
        assert_eq!(file.get(&id).unwrap().unwrap().rule, rule(&id, key, "\u{0}"));
    }
}

#[test]
fn changes_are_listed_by_whole_versions() {
    let (_folder, file) = new_file();
    assert_eq!(list(file.changes(0, 10).unwrap()), []);
    file.write(batch([put(rule("a", "k*", "1")), put(rule("b", "k1", "1"))])).unwrap();
    file.write(batch([put(rule("a", "k1", "2")), delete("b"), put(rule("c", "k3", "2"))])).unwrap();
    file.write(batch([put(rule("c", "k3", "3"))])).unwrap();
    let versions = |since, most| -> Vec<_> {
        list(file.changes(since, most).unwrap()).iter().map(|change| (change.version, change.seq)).collect()
    };
    assert_eq!(versions(0, 100), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0)]);
    assert_eq!(versions(0, 4), [(1, 0), (1, 1)]);
    assert_eq!(versions(0, 5), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]);
    assert_eq!(versions(1, 0), [(2, 0), (2, 1), (2, 2)], "at least one version");
    assert_eq!(versions(2, 10), [(3, 0)]);
    assert_eq!(versions(3, 10), []);
    assert_eq!(file.changes(4, 10).unwrap(), Changes::Trimmed, "the file never had this version");

    let second = list(file.changes(1, 1).unwrap());
    assert!(second[0].pattern, "a was a pattern");
    assert_eq!(
        (&second[0].before, &second[0].after),
        (&Some(rule("a", "k*", "1")), &Some(rule("a", "k1", "2")))
    );
    assert_eq!((&second[1].before, &second[1].after), (&Some(rule("b", "k1", "1")), &None));
    assert_eq!((&second[2].before, second[2].pattern), (&None, false));
    assert_eq!((second[2].at, second[2].actor.as_str()), (1_700_000_000_000, "test"));
}

#[test]
fn old_changes_are_trimmed() {
    let (_folder, file) = new_file();
    for version in 1..=102 {
        file.write(batch((0..1_000).map(|n| put(rule(&format!("r{n}"), "k", &version.to_string())))))
            .unwrap();
    }
    assert_eq!(file.changes(0, 1).unwrap(), Changes::Trimmed);
    assert_eq!(file.changes(1, 1).unwrap(), Changes::Trimmed);
    let kept = list(file.changes(2, 1_000_000).unwrap());
    assert_eq!((kept.len(), kept[0].version, kept[0].seq), (100_000, 3, 0));

    // A batch that is cut in the middle is of no use to anybody.
    file.write(batch([put(rule("one", "more", ""))])).unwrap();
    assert_eq!(file.changes(2, 1).unwrap(), Changes::Trimmed);
    assert_eq!(list(file.changes(3, 1).unwrap())[0].version, 4);
}
