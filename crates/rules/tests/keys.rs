//! The texts that name a key.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use sluicegate_rules::{KeyPart, KeyValue, canonical, spellings};

fn text<'a>(name: &'a str, value: &'a str) -> KeyPart<'a> {
    KeyPart { name, value: KeyValue::Text(value.as_bytes()), named_only: false }
}

fn address<'a>(name: &'a str, value: &str) -> KeyPart<'a> {
    KeyPart { name, value: KeyValue::Address(value.parse().unwrap()), named_only: false }
}

#[test]
fn spellings_with_and_without_names() {
    assert_eq!(spellings(&[text("api_key", "k1")]), ["k1", "api_key:k1"]);
    assert_eq!(
        spellings(&[text("api_key", "k1"), address("ip", "::ffff:192.0.2.1")]),
        ["k1,192.0.2.1", "api_key:k1,192.0.2.1", "k1,ip:192.0.2.1", "api_key:k1,ip:192.0.2.1"]
    );
    assert_eq!(spellings(&[text("global", "")]), ["", "global:"]);
    assert_eq!(spellings(&[text("p", "x"); 8]).len(), 256);
}

#[test]
fn a_comma_belongs_to_the_value_of_a_single_part() {
    assert_eq!(spellings(&[text("q", "a,b")]), ["a,b", "q:a,b"]);
    assert_eq!(spellings(&[text("q", "a,b"), text("r", "c")]), [""; 0]);
}

#[test]
fn keys_that_cannot_be_named() {
    assert_eq!(spellings(&[]), [""; 0]);
    assert_eq!(spellings(&[text("p", "x"); 9]), [""; 0]);
    let bytes = KeyPart { name: "p", value: KeyValue::Text(b"\xff"), named_only: false };
    assert_eq!(spellings(&[bytes]), [""; 0]);
}

#[test]
fn addresses_are_written_in_one_way() {
    for (text, expected) in [
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("ip:2001:DB8:0:0::1", "ip:2001:db8::1"),
        ("tls:subject:0::1", "tls:subject:::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("k1,ip:0::1,x", "k1,ip:::1,x"),
        ("192.0.2.1", "192.0.2.1"),
        // No addresses.
        ("a, 0::1", "a, 0::1"),
        ("192.0.2.01", "192.0.2.01"),
        ("00:1A:2B:3C:4D:5E", "00:1A:2B:3C:4D:5E"),
        ("http://A,,b:", "http://A,,b:"),
        ("0::1/64", "0::1/64"),
        ("", ""),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_canonical_stays(text in "[0-9a-f:.,x]{0,24}") {
        let once = canonical(&text);
        prop_assert_eq!(canonical(&once), once);
    }

    #[test]
    fn spellings_are_canonical(value in "[0-9a-f:.,x]{0,24}", name in "[a-z_]{1,3}") {
        for text in spellings(&[text(&name, &value)]) {
            prop_assert_eq!(canonical(&text), text);
        }
    }
}
