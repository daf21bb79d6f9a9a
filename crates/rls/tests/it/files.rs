//! Files of envoyproxy/ratelimit, right and wrong.

use sluicegate_config::Report;
use sluicegate_rls::descriptors::{Amount, parse};
use sluicegate_rls::wire::ratelimit::Unit;
use sluicegate_rls::wire::well_known::Value;

use super::domain;

/// What is said of a file.
fn said(text: &str) -> String {
    let mut report = Report::default();
    let domain = parse(text, &mut report);
    assert_eq!(domain.is_none(), !report.errors.is_empty());
    report.render("f.yaml", text)
}

#[test]
fn all_that_a_file_can_say_is_read() {
    let domain = domain(
        "---
domain: web
descriptors:
  - key: tier
    value: 404
    shadow_mode: yes
    quota_mode: true
    detailed_metric: on
    metadata: {pool: blue, weight: 2}
    rate_limit: {unit: WEEK, requests_per_unit: 1_000, name: tiers, replaces: [{name: users}, {name: free}]}
    descriptors:
      - {key: user, rate_limit: {unit: second, requests_per_unit: 0, name: users}}
      - {key: staff, rate_limit: {unlimited: true, name: free}}
      - {key: nothing}
",
    );
    assert_eq!(domain.name(), "web");
    let [tier, user, staff] = domain.rules() else { panic!("{:?}", domain.rules()) };
    assert_eq!(tier.path, "web.tier_404");
    assert_eq!(tier.amount, Amount::Limited { requests_per_unit: 1_000, unit: Unit::Week });
    assert_eq!(
        (tier.name.as_str(), tier.replaces.as_slice()),
        ("tiers", &["users".to_owned(), "free".to_owned()][..])
    );
    assert!(tier.shadow_mode && tier.quota_mode && tier.detailed_metric);
    assert_eq!(tier.metadata.as_ref().unwrap().fields["pool"], Value::text("blue"));
    assert_eq!(tier.metadata.as_ref().unwrap().fields["weight"], Value::number(2.0));
    assert_eq!((tier.at.line, tier.at.column), (10, 5));
    assert_eq!(user.path, "web.tier_404.user");
    assert_eq!(user.amount, Amount::Limited { requests_per_unit: 0, unit: Unit::Second });
    assert_eq!((staff.path.as_str(), staff.amount), ("web.tier_404.staff", Amount::Unlimited));
    assert!(!user.shadow_mode && !user.quota_mode);
}

#[test]
fn every_unit_is_known() {
    for (name, unit) in [
        ("second", Unit::Second),
        ("Minute", Unit::Minute),
        ("HOUR", Unit::Hour),
        ("day", Unit::Day),
        ("week", Unit::Week),
        ("month", Unit::Month),
        ("year", Unit::Year),
    ] {
        let file = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: {name}, requests_per_unit: 1}}}}]\n"
        );
        assert_eq!(domain(&file).rules()[0].amount, Amount::Limited { requests_per_unit: 1, unit });
    }
}

#[test]
fn two_rules_have_two_paths() {
    let file = "domain: d\ndescriptors:\n- {key: a.b, rate_limit: {unit: day}}\n- {key: a, descriptors: [{key: b, rate_limit: {unit: day}}]}\n";
    let domain = domain(file);
    let paths: Vec<_> = domain.rules().iter().map(|rule| rule.path.as_str()).collect();
    assert_eq!(paths, ["d.a.b", "d.a.b#2"]);
}

#[test]
fn all_mistakes_are_reported_with_their_place() {
    let file = "\
domian: web
descriptors:
  - key: client
    ratelimit: {unit: minute, requests_per_unit: 5}
  - key: client
    value: [a]
  - value: x
  - key: path
    rate_limit: {unit: fortnight, requests_per_unit: -5}
  - key: host
    share_threshold: true
    rate_limit: {unlimited: true, unit: day, name: a, replaces: [{name: a}, {}]}
  - text
";
    assert_eq!(
        said(file),
        "f.yaml:1:1: error: unknown key `domian` in the file
  1 | domian: web
    | ^^^^^^
  help: did you mean `domain`?
f.yaml:4:5: error: unknown key `ratelimit` in a descriptor
  4 |     ratelimit: {unit: minute, requests_per_unit: 5}
    |     ^^^^^^^^^
  help: did you mean `rate_limit`?
f.yaml:5:5: error: `client` is there twice, first in line 3
  5 |   - key: client
    |     ^^^
  help: descriptors beside each other need different keys or values
f.yaml:6:12: error: `value` must be a text, found a list
  6 |     value: [a]
    |            ^
f.yaml:7:5: error: the descriptor has no `key`
  7 |   - value: x
    |     ^
  help: write the key of the entry that it stands for
f.yaml:9:24: error: `fortnight` is no unit
  9 |     rate_limit: {unit: fortnight, requests_per_unit: -5}
    |                        ^^^^^^^^^
  help: write second, minute, hour, day, week, month or year
f.yaml:9:54: error: expected a whole number up to 4294967295, found `-5`
  9 |     rate_limit: {unit: fortnight, requests_per_unit: -5}
    |                                                      ^^
f.yaml:11:5: error: there is nothing to share: the value has no `*`
  11 |     share_threshold: true
     |     ^^^^^^^^^^^^^^^
  help: only values of a wildcard share a counter
f.yaml:12:41: error: an unlimited limit has no unit
  12 |     rate_limit: {unlimited: true, unit: day, name: a, replaces: [{name: a}, {}]}
     |                                         ^^^
  help: remove `unit` or `unlimited`
f.yaml:12:66: error: a limit cannot replace itself
  12 |     rate_limit: {unlimited: true, unit: day, name: a, replaces: [{name: a}, {}]}
     |                                                                  ^
  help: write the name of another limit
f.yaml:12:77: error: the entry has no `name`
  12 |     rate_limit: {unlimited: true, unit: day, name: a, replaces: [{name: a}, {}]}
     |                                                                             ^
  help: write the name of the limit that is replaced
f.yaml:13:5: error: a descriptor must be a mapping, found `text`
  13 |   - text
     |     ^^^^
"
    );
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let file = "\
domain: web
descriptors:
  - key: client
    unit: minute
    shadow_mode: true
  - key: path
    rate_limit: {unit: day, replaces: [{name: nobody}]}
";
    assert_eq!(
        said(file),
        "f.yaml:4:5: warning: `unit` has no effect here: a descriptor has no such field
  4 |     unit: minute
    |     ^^^^
f.yaml:5:5: warning: `shadow_mode` has no effect: the descriptor has no `rate_limit`
  5 |     shadow_mode: true
    |     ^^^^^^^^^^^
f.yaml:7:5: warning: `replaces` names `nobody`, but no limit of this file has this name
  7 |     rate_limit: {unit: day, replaces: [{name: nobody}]}
    |     ^^^^^^^^^^
f.yaml:7:17: warning: the limit has no `requests_per_unit`: it refuses all requests, like 0
  7 |     rate_limit: {unit: day, replaces: [{name: nobody}]}
    |                 ^
"
    );
}

#[test]
fn files_without_a_domain_say_so() {
    assert!(said("").starts_with("f.yaml:1:1: error: the file is empty\n"), "{}", said(""));
    assert!(said("descriptors: []\n").starts_with("f.yaml:1:1: error: the file has no `domain`\n"));
    assert!(said("domain: ''\n").contains("error: the file has no `domain`"));
    assert!(said("- a\n").contains("error: the file must be a mapping, found a list"));
    assert!(said("domain: a\ndomain: b\n").starts_with("f.yaml:2:1: error: `domain` is given twice\n"));
    assert!(said("domain: a\ndescriptors: 5\n").contains("error: expected a list, found `5`"));
    assert!(said("domain: [a\n").contains("error: "));
    assert!(said("domain: a\n---\ndomain: b\n").contains("error: "));
}

#[test]
fn nesting_has_an_end() {
    let mut file = "domain: d\ndescriptors:\n".to_owned();
    for depth in 0..101 {
        let indent = " ".repeat(depth * 2);
        file += &format!("{indent}- key: k\n{indent}  descriptors:\n");
    }
    file += &format!("{}- key: k\n", " ".repeat(202));
    let said = said(&file);
    assert!(said.contains("error: descriptors are nested in more than 100 levels"), "{said}");
}
