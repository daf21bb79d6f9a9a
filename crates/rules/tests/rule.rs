//! The form of a rule: what is wrong with it, how it is read and changed.
#![allow(missing_docs, clippy::unwrap_used)]

use serde_json::json;
use sluicegate_rules::{Rule, RuleMode};

fn rule() -> Rule {
    let (id, limit, key) = ("acme".to_owned(), "per-key".to_owned(), "k1".to_owned());
    Rule { id, limit, key, rate: Some("500/min".into()), ..Rule::default() }
}

fn mistakes(change: impl FnOnce(&mut Rule)) -> Vec<(&'static str, String)> {
    let mut rule = rule();
    change(&mut rule);
    let mistakes = rule.check().err().unwrap_or_default();
    mistakes.into_iter().map(|mistake| (mistake.field, mistake.detail)).collect()
}

fn only(field: &'static str, detail: &str) -> Vec<(&'static str, String)> {
    vec![(field, detail.to_owned())]
}

#[test]
fn good_rules() {
    assert_eq!(mistakes(|_| ()), []);
    assert_eq!(mistakes(|rule| rule.id = format!("{:-<128}", "A.b_c:d@9")), []);
    assert_eq!(mistakes(|rule| rule.key = "*".repeat(32)), []);
    assert_eq!(mistakes(|rule| rule.key = "ü ".repeat(341)), []);
    assert_eq!(mistakes(|rule| (rule.rate, rule.exempt) = (None, true)), []);
    assert_eq!(mistakes(|rule| (rule.rate, rule.mode) = (None, Some(RuleMode::Off))), []);
    assert_eq!(mistakes(|rule| rule.from = Some("1970-01-01T00:00:00Z".into())), []);
    assert_eq!(mistakes(|rule| rule.until = Some("2499-12-31T23:59:59+00:00".into())), []);
    assert_eq!(mistakes(|rule| (rule.burst, rule.max, rule.priority) = (Some(1), Some(1), 1_000_000)), []);
}

#[test]
fn mistakes_of_texts() {
    let missing_id = "`id` is missing; give 1 to 128 characters: letters, digits and `-_.:@`";
    assert_eq!(mistakes(|rule| rule.id.clear()), only("id", missing_id));
    let long = "`id` has 129 characters; at most 128 are allowed";
    assert_eq!(mistakes(|rule| rule.id = "a".repeat(129)), only("id", long));
    let foreign = "`id` has the character `\\n`; only letters, digits and `-_.:@` are allowed";
    assert_eq!(mistakes(|rule| rule.id = "a\nb".into()), only("id", foreign));
    let dots = "`id` is `..`, which cannot stand in a URL; choose another";
    assert_eq!(mistakes(|rule| rule.id = "..".into()), only("id", dots));
    let limit = "`limit` is missing; name the limit that the rule changes";
    assert_eq!(mistakes(|rule| rule.limit.clear()), only("limit", limit));
    let missing_key = "`key` is missing; give a key such as `k1` or a pattern such as `merchant-*`";
    assert_eq!(mistakes(|rule| rule.key.clear()), only("key", missing_key));
    let long_key = "`key` has 1026 bytes; at most 1024 are allowed";
    assert_eq!(mistakes(|rule| rule.key = "ü".repeat(513)), only("key", long_key));
    let control = "`key` has a control character; remove it";
    assert_eq!(mistakes(|rule| rule.key = "a\0".into()), only("key", control));
    let stars = "`key` has 33 `*`; at most 32 are allowed";
    assert_eq!(mistakes(|rule| rule.key = "*a".repeat(33)), only("key", stars));
    let note = "`note` has 1025 bytes; at most 1024 are allowed";
    assert_eq!(mistakes(|rule| rule.note = "n".repeat(1_025)), only("note", note));
}

#[test]
fn mistakes_of_numbers() {
    let burst = "`burst` is 0; give at least 1, or leave it out";
    assert_eq!(mistakes(|rule| rule.burst = Some(0)), only("burst", burst));
    let max = "`max` is 0; give at least 1, or leave it out";
    assert_eq!(mistakes(|rule| rule.max = Some(0)), only("max", max));
    for wrong in [-1_000_001, 1_000_001] {
        let detail = format!("`priority` is {wrong}; give a number between -1000000 and 1000000");
        assert_eq!(mistakes(|rule| rule.priority = wrong), only("priority", &detail));
    }
    let nothing = "the rule changes nothing; give `rate`, `burst`, `max`, `mode` or `exempt`";
    assert_eq!(mistakes(|rule| rule.rate = None), only("rate", nothing));
    let both = "`exempt` makes `rate` meaningless; remove one of them";
    assert_eq!(mistakes(|rule| rule.exempt = true), only("exempt", both));
}

#[test]
fn mistakes_of_times() {
    let with = |from: &str, until: &str| {
        mistakes(|rule| (rule.from, rule.until) = (Some(from.into()), Some(until.into())))
    };
    let (early, late) = ("2026-12-24T00:00:00Z", "2026-12-24T00:00:01Z");
    assert_eq!(with(early, late), []);
    assert_eq!(with(late, early), only("until", "`until` is before `from`"));
    let equal = "`until` is equal to `from`, so the rule would never be in force";
    assert_eq!(with(early, "2026-12-24T01:00:00+01:00"), only("until", equal));
    let form = |field: &str| {
        format!(
            "`{field}` is not a time in RFC 3339 (date, time with seconds, and `Z` or an offset); write it like \
             `2026-12-24T00:00:00Z`"
        )
    };
    assert_eq!(with("tomorrow", "2026-12-24"), [("from", form("from")), ("until", form("until"))]);
    let range = "`until` is not between 1970 and 2500";
    assert_eq!(with(early, "2500-01-01T00:00:00Z"), only("until", range));
    let range = "`from` is not between 1970 and 2500";
    assert_eq!(with("1969-12-31T23:59:59.999Z", late), only("from", range));
}

#[test]
fn all_mistakes_are_found_at_once() {
    let fields: Vec<_> = Rule { priority: i32::MAX, ..Rule::default() }.check().unwrap_err();
    let fields: Vec<_> = fields.iter().map(|mistake| mistake.field).collect();
    assert_eq!(fields, ["id", "limit", "key", "rate", "priority"]);
}

#[test]
fn a_rule_is_read() {
    let text = r#"{"id": "acme", "limit": "per-key", "key": "k1", "rate": "500/min", "burst": 50, "mode": "shadow",
        "from": null, "until": "2026-12-24T00:00:00Z"}"#;
    let read = Rule::from_json(text).unwrap();
    let until = Some("2026-12-24T00:00:00Z".into());
    assert_eq!(read, Rule { burst: Some(50), mode: Some(RuleMode::Shadow), until, ..rule() });
    assert_eq!(Rule::from_json(&serde_json::to_string(&read).unwrap()), Ok(read));
    assert_eq!(Rule::from_json(" {}"), Ok(Rule::default()));
}

#[test]
fn messages_of_what_cannot_be_read() {
    let known = "the known ones are `id`, `limit`, `key`, `rate`, `burst`, `max`, `mode`, `exempt`, `priority`, `from`, \
                 `until`, `note`";
    for (text, message) in [
        (r#"{"id": }"#, "no valid JSON: expected value at line 1 column 8"),
        ("", "no valid JSON: EOF while parsing a value at line 1 column 0"),
        (r#"["acme"]"#, "expected an object with the fields of a rule, found an array"),
        ("7", "expected an object with the fields of a rule, found 7"),
        (r#"{"burst": 1.0}"#, "`burst`: expected a whole number, found 1.0"),
        (r#"{"burst": -1}"#, "`burst`: expected a whole number, found -1"),
        (r#"{"max": "7"}"#, r#"`max`: expected a whole number, found "7""#),
        (r#"{"mode": "on"}"#, r#"`mode`: expected `enforce`, `shadow` or `off`, found "on""#),
        (r#"{"exempt": null}"#, "`exempt`: expected `true` or `false`, found null"),
        (r#"{"id": {}}"#, "`id`: expected a text, found an object"),
        (r#"{"id": "a", "id": "b"}"#, "duplicate field `id` at line 1 column 16"),
        (r#"{} {}"#, "no valid JSON: trailing characters at line 1 column 4"),
    ] {
        assert_eq!(Rule::from_json(text), Err(message.into()), "{text}");
    }
    let long = format!(r#"{{"rate": [], "priority": "{}"}}"#, "x".repeat(1_000));
    let shown = format!("`priority`: expected a whole number, found \"{}…", "x".repeat(39));
    assert_eq!(Rule::from_json(&long), Err(shown));
    assert_eq!(Rule::from_json(r#"{"brust": 1}"#), Err(format!("unknown field `brust`; {known}")));
}

#[test]
fn a_patch_changes_what_it_names() {
    let rule = Rule { burst: Some(5), priority: 3, until: Some("2026-12-24T00:00:00Z".into()), ..rule() };
    assert_eq!(rule.patched(&json!({})), Ok(rule.clone()));
    let changed = Rule { burst: Some(7), note: "n".into(), ..rule.clone() };
    assert_eq!(rule.patched(&json!({"burst": 7, "note": "n", "id": "acme"})), Ok(changed));
    let reset = Rule { burst: None, priority: 0, until: None, rate: None, exempt: true, ..rule.clone() };
    let patch =
        json!({"burst": null, "priority": null, "until": null, "rate": null, "exempt": true, "max": null});
    assert_eq!(rule.patched(&patch), Ok(reset.clone()));
    // The default of a field is what it has when it is absent.
    assert_eq!(reset.patched(&json!({"exempt": null})), Ok(Rule { exempt: false, ..reset.clone() }));
}

#[test]
fn messages_of_patches() {
    let error = |patch| rule().patched(&patch).unwrap_err();
    let id = "`id` cannot be changed; create a rule with the other id and delete this one";
    assert_eq!(error(json!({"id": "other"})), id);
    assert_eq!(error(json!({"id": null})), id);
    assert_eq!(error(json!([])), "expected an object with the fields to change, found an array");
    assert_eq!(error(json!(null)), "expected an object with the fields to change, found null");
    assert_eq!(error(json!({"burst": "x"})), r#"`burst`: expected a whole number, found "x""#);
    assert_eq!(
        error(json!({"rate": {"count": 1}})),
        "`rate`: expected a text such as `500/min`, found an object"
    );
    assert!(
        error(json!({"brust": null})).starts_with("unknown field `brust`; the known ones are `id`, `limit`,")
    );
}
