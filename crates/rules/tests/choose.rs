//! The choice among rules against a slow model: all rules one after another, sorted by the documented order.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;
use sluicegate_limiter::Time;
use sluicegate_rules::{
    Compiled, KeyPart, KeyValue, MAX_SCANNED_PATTERNS, Patterns, Rule, Stored, TooManyPatterns, canonical,
    choose, spellings,
};

/// 2026-12-24 00:00:00 UTC in seconds.
const CHRISTMAS: u64 = 1_798_070_400;
const SECOND: u64 = 1_000_000_000;

fn cases(count: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = count;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct("tests/regressions.txt")));
    config
}

fn at(second: u64) -> Time {
    Time::from_nanos((CHRISTMAS + second) * SECOND)
}

fn compiled(id: &str, key: &str, change: impl FnOnce(&mut Rule)) -> Arc<Compiled> {
    let (id, limit, key) = (id.to_owned(), "per-key".to_owned(), key.to_owned());
    let mut rule = Rule { id, limit, key, burst: Some(1), ..Rule::default() };
    change(&mut rule);
    Arc::new(Compiled::new(Stored { rule, version: 1 }).unwrap())
}

/// The rules that a source would return for the key, and all patterns.
fn sorted_out(rules: &[Arc<Compiled>], key: &[KeyPart<'_>]) -> (Vec<Arc<Compiled>>, Patterns) {
    let mut stored: HashMap<String, Vec<Arc<Compiled>>> = HashMap::new();
    for rule in rules.iter().filter(|rule| rule.pattern.is_none()) {
        stored.entry(canonical(&rule.stored.rule.key)).or_default().push(Arc::clone(rule));
    }
    let exact = spellings(key).iter().filter_map(|text| stored.get(text)).flatten().cloned().collect();
    (exact, Patterns::build(rules.to_vec()).unwrap())
}

fn chosen(rules: &[Arc<Compiled>], key: &[KeyPart<'_>], now: Time) -> (Option<String>, Option<Time>) {
    let (exact, patterns) = sorted_out(rules, key);
    let choice = choose(&exact, &patterns, key, now);
    (choice.rule.map(|rule| rule.stored.rule.id.clone()), choice.until)
}

mod model {
    use super::*;

    /// Literal components, bits of prefix, fewer stars.
    type Exactness = (u32, usize, Reverse<usize>);

    pub(super) fn choose(rules: &[Arc<Compiled>], key: &[KeyPart<'_>], now: Time) -> Option<String> {
        let mut matching: Vec<_> = rules
            .iter()
            .filter(|rule| rule.from.is_none_or(|from| now >= from))
            .filter(|rule| rule.until.is_none_or(|until| now < until))
            .filter_map(|rule| Some((matches(&rule.stored.rule.key, key)?, &rule.stored)))
            .map(|(exactness, stored)| {
                (Reverse((stored.rule.priority, exactness, stored.version)), stored.rule.id.clone())
            })
            .collect();
        matching.sort();
        matching.into_iter().next().map(|(_, id)| id)
    }

    pub(super) fn matches(text: &str, key: &[KeyPart<'_>]) -> Option<Exactness> {
        let components: Vec<&str> = if key.len() == 1 { vec![text] } else { text.split(',').collect() };
        if components.len() != key.len() {
            return None;
        }
        let mut sum = (0, 0, Reverse(0));
        for (component, part) in components.into_iter().zip(key) {
            let own = component_matches(component, part)?;
            sum = (sum.0 + own.0, sum.1 + own.1, Reverse(sum.2.0 + own.2.0));
        }
        let is_pattern = text.split(',').any(|component| {
            component.contains('*') || without_names(component).any(|text| network(text).is_some())
        });
        Some(if is_pattern { sum } else { (u32::MAX, 0, Reverse(0)) })
    }

    fn component_matches(component: &str, part: &KeyPart<'_>) -> Option<Exactness> {
        let with_name = component.strip_prefix(part.name).and_then(|rest| rest.strip_prefix(':'));
        let ways = [Some(component), with_name].into_iter().flatten();
        ways.filter_map(|component| way_matches(component, part)).max()
    }

    fn way_matches(component: &str, part: &KeyPart<'_>) -> Option<Exactness> {
        let text = match part.value {
            KeyValue::Text(text) => text.to_vec(),
            KeyValue::Address(address) => address.to_string().into_bytes(),
        };
        if component.contains('*') {
            let prefix = component.find('*').unwrap();
            let stars = component.matches('*').count();
            return glob(component.as_bytes(), &text).then_some((0, 8 * prefix, Reverse(stars)));
        }
        if same(component, std::str::from_utf8(&text).ok()?) {
            return Some((1, 0, Reverse(0)));
        }
        let KeyValue::Address(address) = part.value else { return None };
        let (network, bits) = network(component)?;
        let inside = binary(network).get(..bits)? == binary(address).get(..bits)?;
        (network.is_ipv4() == address.is_ipv4() && inside).then_some((0, bits, Reverse(0)))
    }

    fn without_names(text: &str) -> impl Iterator<Item = &str> {
        let colons = text.match_indices(':').map(|(colon, _)| &text[colon + 1..]);
        std::iter::once(text).chain(colons)
    }

    /// Equal, except that an address may be written in several ways.
    fn same(a: &str, b: &str) -> bool {
        let (a, b): (Vec<&str>, Vec<&str>) = (a.split(',').collect(), b.split(',').collect());
        a.len() == b.len()
            && a.iter().zip(&b).all(|(a, b)| {
                a == b
                    || without_names(a).zip(without_names(b)).any(|(x, y)| {
                        a[..a.len() - x.len()] == b[..b.len() - y.len()]
                            && x.parse::<IpAddr>().is_ok_and(|x| y.parse() == Ok(x))
                    })
            })
    }

    fn network(text: &str) -> Option<(IpAddr, usize)> {
        let (address, bits) = text.split_once('/')?;
        Some((address.parse().ok()?, bits.parse().ok()?))
    }

    fn binary(address: IpAddr) -> String {
        match address {
            IpAddr::V4(v4) => v4.octets().map(|byte| format!("{byte:08b}")).concat(),
            IpAddr::V6(v6) => v6.octets().map(|byte| format!("{byte:08b}")).concat(),
        }
    }

    pub(super) fn glob(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
            Some((byte, rest)) => text.split_first().is_some_and(|(b, t)| b == byte && glob(rest, t)),
        }
    }
}

/// A value of a part: `None` is an address.
#[derive(Clone, Debug)]
enum Value {
    Text(Vec<u8>),
    Address(IpAddr),
}

const ADDRESSES: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.200",
    "10.1.0.1",
    "203.0.113.9",
    "2001:db8::",
    "2001:db8::1",
    "2001:db8:1::1",
    "::1",
];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => "[xy]{0,4}".prop_map(|text| Value::Text(text.into_bytes())),
        1 => "[xy,:*/]{0,5}".prop_map(|text| Value::Text(text.into_bytes())),
        1 => select(vec!["10.0.0.1", "10.0.0.0/8", "::1", "0::1", "x,10.0.0.1"])
            .prop_map(|text| Value::Text(text.into())),
        1 => Just(Value::Text(b"x\xffy".to_vec())),
        4 => select(&ADDRESSES[..]).prop_map(|text| Value::Address(text.parse().unwrap())),
    ]
}

fn key() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let part = || (select(vec!["k", "ip", "h:x"]), value());
    prop_oneof![
        4 => part().prop_map(|part| vec![part]),
        1 => prop::collection::vec(part(), 2..4),
    ]
}

fn component() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        4 => "[xy]{0,4}",
        3 => "[xy]{0,3}\\*",
        2 => "[xy*]{1,6}",
        1 => "[xy:/]{1,4}",
        3 => select(&ADDRESSES[..]).prop_map(String::from),
        1 => select(vec!["10.*", "2001:db8:*", "0::1", "2001:DB8:0::1", "0:0:0:0:0:0:0:1"])
            .prop_map(String::from),
        4 => (select(&ADDRESSES[..]), select(vec![0, 8, 16, 24, 25, 31, 32]))
            .prop_map(|(address, bits)| format!("{address}/{bits}")),
        1 => (select(&ADDRESSES[4..]), select(vec![0, 1, 33, 48, 127, 128]))
            .prop_map(|(address, bits)| format!("{address}/{bits}")),
    ];
    let name = prop_oneof![6 => Just(""), 1 => Just("k:"), 1 => Just("ip:"), 1 => Just("h:x:")];
    (name, text).prop_map(|(name, text)| format!("{name}{text}"))
}

/// Key, priority, version, from, until.
type Plain = (String, i32, u64, Option<u64>, Option<u64>);

fn rule() -> impl Strategy<Value = Plain> {
    let key = prop_oneof![
        4 => component(),
        1 => prop::collection::vec(component(), 2..4).prop_map(|parts| parts.join(",")),
    ];
    let time = || prop::option::of(0_u64..20);
    (key.prop_filter("not empty", |key| !key.is_empty()), -1..2, 1_u64..4, time(), time())
}

fn compile(rules: Vec<Plain>) -> Vec<Arc<Compiled>> {
    let text = |second: u64| format!("2026-12-24T00:00:{second:02}Z");
    let compiled = rules.into_iter().enumerate().map(|(index, (key, priority, version, from, until))| {
        let rule = Rule {
            id: format!("r{index}"),
            limit: "per-key".into(),
            key,
            burst: Some(1),
            priority,
            from: from.map(text),
            // Some end as soon as they begin; that is corrected.
            until: until.map(|until| text(from.map_or(until, |from| until.max(from + 1)))),
            ..Rule::default()
        };
        Arc::new(Compiled::new(Stored { rule, version }).unwrap())
    });
    compiled.collect()
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn chooses_as_the_model_does(
        rules in prop::collection::vec(rule(), 0..40),
        owned in key(),
        second in 0_u64..20,
        nanos in select(vec![0, 1, SECOND - 1]),
    ) {
        let rules = compile(rules);
        let key: Vec<KeyPart<'_>> = owned
            .iter()
            .map(|(name, value)| KeyPart {
                name,
                value: match value {
                    Value::Text(text) => KeyValue::Text(text),
                    Value::Address(address) => KeyValue::Address(*address),
                },
                named_only: false,
            })
            .collect();
        let now = Time::from_nanos((CHRISTMAS + second) * SECOND + nanos);
        let (rule, until) = chosen(&rules, &key, now);
        prop_assert_eq!(&rule, &model::choose(&rules, &key, now));

        // The answer stays the same until the end that was given, and that end is one of a rule for the key.
        let boundaries = rules
            .iter()
            .filter(|rule| model::matches(&rule.stored.rule.key, &key).is_some())
            .flat_map(|rule| [rule.from, rule.until])
            .flatten()
            .filter(|boundary| *boundary > now);
        prop_assert_eq!(until, boundaries.min());
        for later in (0..20 * SECOND).step_by(SECOND as usize / 2).map(|n| Time::from_nanos(now.as_nanos() + n)) {
            if until.is_none_or(|until| later < until) {
                prop_assert_eq!(&rule, &model::choose(&rules, &key, later));
            }
        }
        if let Some(until) = until {
            let before = Time::from_nanos(until.as_nanos() - 1);
            prop_assert_eq!(&rule, &model::choose(&rules, &key, before));
            prop_assert_eq!(chosen(&rules, &key, until).0, model::choose(&rules, &key, until));
        }
    }

    #[test]
    fn a_text_with_stars_matches_as_the_naive_matcher_says(pattern in "[ab*]{0,12}\\*[ab*]{0,4}", text in "[ab]{0,20}") {
        let part = [KeyPart { name: "k", value: KeyValue::Text(text.as_bytes()), named_only: false }];
        let matches = sluicegate_rules::Pattern::parse(&pattern).unwrap().matches(&part).is_some();
        prop_assert_eq!(matches, model::glob(pattern.as_bytes(), text.as_bytes()));
    }
}

fn text(value: &str) -> [KeyPart<'_>; 1] {
    [KeyPart { name: "api_key", value: KeyValue::Text(value.as_bytes()), named_only: false }]
}

#[test]
fn a_rule_ends_at_its_until() {
    let until = |rule: &mut Rule| rule.until = Some("2026-12-24T00:00:00Z".into());
    let rules = [compiled("advent", "k1", until)];
    let minute = 60 * SECOND;
    let end = at(0).as_nanos();
    for (now, rule, next) in [
        (end - minute, Some("advent"), Some(at(0))),
        (end - 1, Some("advent"), Some(at(0))),
        (end, None, None),
        (end + minute, None, None),
    ] {
        let (chosen, until) = chosen(&rules, &text("k1"), Time::from_nanos(now));
        assert_eq!((chosen.as_deref(), until), (rule, next), "{now}");
    }
}

#[test]
fn the_order_of_rules() {
    let none = |_: &mut Rule| ();
    let mut rules = vec![
        compiled("b", "*", none),
        compiled("a", "*", none),
        compiled("two-stars", "*m*", none),
        compiled("short", "m*", none),
        compiled("with-name", "api_key:m*", none),
        compiled("long", "merchant-*", none),
        compiled("exact", "merchant-7", none),
        compiled("urgent", "*", |rule| rule.priority = 1),
    ];
    // Each is taken away in turn; a name in front makes no difference, so the smaller id is chosen.
    for expected in ["urgent", "exact", "long", "short", "with-name", "a", "b", "two-stars"] {
        assert_eq!(chosen(&rules, &text("merchant-7"), at(0)).0.as_deref(), Some(expected));
        rules.retain(|rule| rule.stored.rule.id != expected);
    }
    assert_eq!(chosen(&rules, &text("merchant-7"), at(0)).0, None);
}

#[test]
fn the_longer_mask_is_more_exact() {
    let none = |_: &mut Rule| ();
    let mut rules = vec![
        compiled("all", "0.0.0.0/0", none),
        compiled("site", "ip:203.0.113.0/24", none),
        compiled("written-as-ipv6", "::ffff:203.0.0.0/112", none),
        compiled("host", "203.0.113.9/32", none),
        compiled("exact", "::ffff:203.0.113.9", none),
        compiled("other-family", "::/0", none),
        compiled("other-part", "client:203.0.113.9/32", none),
    ];
    let key =
        [KeyPart { name: "ip", value: KeyValue::Address("203.0.113.9".parse().unwrap()), named_only: false }];
    for expected in ["exact", "host", "site", "written-as-ipv6", "all"] {
        assert_eq!(chosen(&rules, &key, at(0)).0.as_deref(), Some(expected));
        rules.retain(|rule| rule.stored.rule.id != expected);
    }
    assert_eq!(chosen(&rules, &key, at(0)).0, None);
}

#[test]
fn a_network_of_ipv4_is_the_same_however_it_is_written() {
    let rules =
        [compiled("site", "::ffff:203.0.113.0/120", |_| ()), compiled("odd", "::ffff:0:0/95", |_| ())];
    for (address, rule) in [
        ("203.0.113.0", Some("site")),
        ("203.0.113.255", Some("site")),
        ("::ffff:203.0.113.255", Some("site")),
        ("203.0.112.255", None),
        ("203.0.114.0", None),
    ] {
        let key =
            [KeyPart { name: "ip", value: KeyValue::Address(address.parse().unwrap()), named_only: false }];
        assert_eq!(chosen(&rules, &key, at(0)).0.as_deref(), rule, "{address}");
    }
}

#[test]
fn a_text_can_be_that_of_a_network() {
    for key in ["10.0.0.0/8", "api_key:10.0.0.0/8"] {
        let rules = [compiled("network", key, |_| ()), compiled("star", "10.0.0.0/*", |_| ())];
        assert_eq!(chosen(&rules, &text("10.0.0.0/8"), at(0)).0.as_deref(), Some("network"), "{key}");
        assert_eq!(chosen(&rules, &text("10.0.0.0/9"), at(0)).0.as_deref(), Some("star"), "{key}");
        // It is not an address.
        assert_eq!(chosen(&rules, &text("10.0.0.1"), at(0)).0, None);
    }
}

#[test]
fn a_name_is_not_matched_by_chance() {
    let rules = [compiled("a", "a*", |_| ()), compiled("colon", "*:k1", |_| ())];
    assert_eq!(chosen(&rules, &text("k1"), at(0)).0, None);
    assert_eq!(chosen(&rules, &text("a1"), at(0)).0.as_deref(), Some("a"));
}

#[test]
fn the_number_of_patterns_is_bounded() {
    let rules = |count: usize, suffix: &str| {
        let rule = |index| compiled(&format!("r{index}"), &format!("p{index}*{suffix}"), |_| ());
        (0..count).map(rule).collect::<Vec<_>>()
    };
    assert_eq!(Patterns::build(rules(MAX_SCANNED_PATTERNS, "x")).unwrap().len(), MAX_SCANNED_PATTERNS);
    let error = Patterns::build(rules(MAX_SCANNED_PATTERNS + 1, "x")).unwrap_err();
    assert_eq!(error, TooManyPatterns::Scanned(1_001));
    assert_eq!(
        error.to_string(),
        "the limit has 1001 rules whose pattern has a `*` before its end or several components; at most 1000 are \
         allowed"
    );
    let many = Patterns::build(rules(100_000, "")).unwrap();
    let found = many.matching(&text("p77777-1"));
    let ids: Vec<&str> = found.iter().map(|(rule, _)| rule.stored.rule.id.as_str()).collect();
    assert_eq!(ids, ["r7", "r77", "r777", "r7777", "r77777"]);
    assert_eq!(Patterns::build(rules(100_001, "")).unwrap_err(), TooManyPatterns::InAll(100_001));
}

/// A matcher that tries all ways would not return.
#[test]
fn no_text_makes_matching_slow() {
    let pattern = format!("{}b", "*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab".repeat(32));
    let value = "a".repeat(60_000);
    let rules = [compiled("slow", &pattern[..1_000], |_| ())];
    assert_eq!(chosen(&rules, &text(&value), at(0)).0, None);
}

/// Of too many patterns those with the highest priority apply, of these the newest.
#[test]
fn of_too_many_patterns_the_most_important_apply() {
    let scanned = |number: usize, priority| {
        compiled(&format!("s{number}"), &format!("a*{number}b"), |rule| rule.priority = priority)
    };
    let mut rules: Vec<_> = (0..=MAX_SCANNED_PATTERNS).map(|number| scanned(number, 0)).collect();
    rules.push(scanned(MAX_SCANNED_PATTERNS + 1, 1));
    rules.push(compiled("prefix", "p*", |_| ()));
    let (patterns, why) = Patterns::of_most(rules);
    assert_eq!(why, Some(TooManyPatterns::Scanned(MAX_SCANNED_PATTERNS + 2)));
    assert_eq!(patterns.len(), MAX_SCANNED_PATTERNS + 1);
    let ids: Vec<&str> = patterns.rules().iter().map(|rule| rule.stored.rule.id.as_str()).collect();
    assert!(ids.contains(&"prefix") && ids.contains(&format!("s{}", MAX_SCANNED_PATTERNS + 1).as_str()));
}
