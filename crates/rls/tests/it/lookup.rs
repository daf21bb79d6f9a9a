//! Which limit applies to a descriptor.

use proptest::prelude::*;
use sluicegate_rls::descriptors::{Amount, Domain, counter_key};

use super::domain;
use super::model::{self, Node};

/// The path and the counter of the rule that is found.
fn found(domain: &Domain, entries: &[(&str, &str)]) -> Option<(String, String)> {
    let found = domain.find(entries)?;
    Some((domain.rules()[found.rule].path.clone(), found.key))
}

fn path(domain: &Domain, entries: &[(&str, &str)]) -> Option<String> {
    found(domain, entries).map(|(path, _)| path)
}

const MESSAGING: &str = "
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - {key: to_number, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: to_number, rate_limit: {unit: day, requests_per_unit: 100}}
";

#[test]
fn nested_descriptors_count_each_value_apart() {
    let domain = domain(MESSAGING);
    let found = |entries: &[(&str, &str)]| found(&domain, entries);
    let nested =
        ("messaging.message_type_marketing.to_number", "messaging|message_type=marketing|to_number=1");
    assert_eq!(
        found(&[("message_type", "marketing"), ("to_number", "1")]),
        Some((nested.0.to_owned(), nested.1.to_owned()))
    );
    assert_eq!(
        found(&[("to_number", "2")]),
        Some(("messaging.to_number".to_owned(), "messaging|to_number=2".to_owned()))
    );
}

#[test]
fn a_descriptor_has_as_many_entries_as_the_file_has_levels() {
    let domain = domain(MESSAGING);
    assert_eq!(path(&domain, &[("message_type", "marketing")]), None);
    assert_eq!(path(&domain, &[("to_number", "1"), ("message_type", "marketing")]), None);
    assert_eq!(path(&domain, &[("message_type", "other"), ("to_number", "1")]), None);
    assert_eq!(path(&domain, &[("message_type", "marketing"), ("to_number", "1"), ("a", "b")]), None);
    assert_eq!(path(&domain, &[]), None);
}

#[test]
fn a_value_comes_before_a_wildcard_and_that_before_the_key() {
    let domain = domain(
        "
domain: d
descriptors:
  - {key: k, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: k, value: a*, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: k, value: '*c', rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: k, value: a/*/b, rate_limit: {unit: second, requests_per_unit: 4}}
  - {key: k, value: abc, rate_limit: {unit: second, requests_per_unit: 5}}
",
    );
    let path = |value| path(&domain, &[("k", value)]).unwrap();
    assert_eq!(path("abc"), "d.k_abc");
    assert_eq!(path("axc"), "d.k_a*"); // the first in the order of the file
    assert_eq!(path("xc"), "d.k_*c");
    assert_eq!(path("x"), "d.k");
    assert_eq!(path(""), "d.k");
    assert_eq!(path("a*"), "d.k_a*");
}

#[test]
fn there_is_no_way_back_from_a_descriptor_that_was_found_first() {
    let domain = domain(
        "
domain: d
descriptors:
  - key: k
    value: v
    descriptors: [{key: other, rate_limit: {unit: second, requests_per_unit: 1}}]
  - key: k
    descriptors: [{key: sub, rate_limit: {unit: second, requests_per_unit: 2}}]
  - {key: free}
",
    );
    assert_eq!(path(&domain, &[("k", "x"), ("sub", "1")]).unwrap(), "d.k.sub");
    assert_eq!(path(&domain, &[("k", "v"), ("sub", "1")]), None);
    assert_eq!(path(&domain, &[("free", "1")]), None);
}

#[test]
fn the_values_of_a_wildcard_share_a_counter_only_if_the_file_says_so() {
    let domain = domain(
        "
domain: d
descriptors:
  - {key: f, value: apart/*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: f
    value: files/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]
",
    );
    let key = |entries: &[(&str, &str)]| found(&domain, entries).unwrap().1;
    assert_eq!(key(&[("f", "apart/a")]), "d|f=apart/a");
    assert_eq!(key(&[("f", "files/a")]), "d|f=files/*");
    assert_eq!(key(&[("f", "files/b"), ("user", "u")]), "d|f=files/*|user=u");
}

#[test]
fn names_of_metrics_have_values_where_the_file_says_so() {
    let domain = domain(
        "
domain: d
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        descriptors:
          - {key: user, rate_limit: {unit: minute, requests_per_unit: 60}}
          - {key: team, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}
  - {key: wild, value: foo*, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: seen, value: foo*, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: one, value: foo*, share_threshold: true, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 1}}
",
    );
    let name = |entries: &[(&str, &str)]| domain.metric_name(entries).unwrap();
    assert_eq!(name(&[("route", "r"), ("method", "GET"), ("user", "u")]), "d.route_r.method.user");
    assert_eq!(name(&[("route", "r"), ("method", "GET"), ("team", "t")]), "d.route_r.method_GET.team_t");
    assert_eq!(name(&[("wild", "foo1")]), "d.wild_foo*");
    assert_eq!(name(&[("seen", "foo1")]), "d.seen_foo1");
    assert_eq!(name(&[("one", "foo1")]), "d.one_foo*");
    assert_eq!(domain.metric_name(&[("none", "x")]), None);
}

fn node(depth: u32) -> BoxedStrategy<Node> {
    let below = if depth == 0 { Just(Vec::new()).boxed() } else { level(depth - 1) };
    // An underscore in a key makes texts meet that are made of different keys and values.
    let key = prop::sample::select(vec!["a", "b", "a_b", "a*"]);
    let value = prop::sample::select(vec!["", "", "a", "b", "b_a", "*", "a*", "*b", "a*b", "*a*"]);
    let limit = prop::option::weighted(0.7, 0..1_000_u32);
    (key, value, limit, any::<bool>(), below)
        .prop_map(|(key, value, limit, share, below)| {
            let share = share && (key.contains('*') || value.contains('*'));
            Node { key: key.to_owned(), value: value.to_owned(), limit, share, below }
        })
        .boxed()
}

/// Descriptors beside each other, of which no two are the same.
fn level(depth: u32) -> BoxedStrategy<Vec<Node>> {
    let nodes = prop::collection::vec(node(depth), 0..5);
    nodes
        .prop_map(|nodes| {
            let mut kept: Vec<Node> = Vec::new();
            for node in nodes {
                if kept.iter().all(|other| other.joined() != node.joined()) {
                    kept.push(node);
                }
            }
            kept
        })
        .boxed()
}

fn entries() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop::sample::select(vec!["a", "b", "a_b", "c"]);
    let value = prop::sample::select(vec!["", "a", "b", "ab", "b_a", "aab", "*", "xay"]);
    let entry = (key, value).prop_map(|(key, value)| (key.to_owned(), value.to_owned()));
    prop::collection::vec(entry, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_lookup_is_that_of_the_model(tree in level(3), asked in prop::collection::vec(entries(), 1..8)) {
        let domain = domain(&model::yaml(&tree));
        for entries in asked {
            let found = domain.find(&entries).map(|found| {
                let Amount::Limited { requests_per_unit, .. } = domain.rules()[found.rule].amount else { panic!() };
                (requests_per_unit, found.key)
            });
            let expected = model::find(&tree, &entries).map(|(limit, counted)| {
                (limit, counter_key("d", counted.iter().map(|(key, value)| (&**key, &**value))))
            });
            prop_assert_eq!(found, expected, "{}\n{:?}", model::yaml(&tree), entries);
        }
    }

    #[test]
    fn stars_are_those_of_the_model(pattern in "[ab*é]{0,8}", text in "[abé]{0,8}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(
            sluicegate_rls::descriptors::matches(&pattern, &text),
            model::star(&chars(&pattern), &chars(&text))
        );
    }
}
