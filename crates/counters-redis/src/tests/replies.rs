//! What comes back may be anything.

use proptest::collection::vec;
use proptest::prelude::*;
use redis::Value;
use sluicegate_counters::KeyState;
use sluicegate_limiter::{Rate, Receipt, Span};

use super::quotas::{can_be_shared, fixed, leaky, log, places, quotas, rate, sliding, token};
use crate::protocol::{Decided, Reply, StatesReply, argument, refund_argument, spend_argument};

fn values() -> impl Strategy<Value = Value> {
    let small = prop_oneof![0..100_i64, Just(1_795_219_200_000_000), Just((1 << 53) - 1), any::<i64>()];
    let leaf = prop_oneof![
        6 => small.prop_map(Value::Int),
        2 => vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
    ];
    leaf.prop_recursive(2, 12, 6, |inner| vec(inner, 0..6).prop_map(Value::Array))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    /// A reply that no script gives is an error or a state, and never a panic, not even when it is asked.
    #[test]
    fn any_reply_can_be_read(
        quota in quotas(u64::MAX), value in values(), state in vec(values(), 0..5), cost in 1..=10_u64
    ) {
        let shaped = Value::Array(vec![Value::Int(1_795_219_200_000_000), Value::Int(3), Value::Array(state.clone())]);
        let answered = Value::Array(vec![Value::Int(1_795_219_200_000_000), Value::Array(state)]);
        for value in [value, shaped] {
            if let Ok(Reply { now, decided: Some(Decided { keys, .. }) }) = Reply::read(&value, &[&quota], &[]) {
                for mut key in keys {
                    key.usage(now);
                    if key.check(now, cost).is_ok() {
                        let receipt = key.charge(now, cost);
                        key.refund(now, cost, receipt);
                    } else {
                        key.refused(now, cost);
                    }
                    key.is_idle(now);
                }
            }
        }
        let _ = StatesReply::read(&answered, &[&quota]);
        prop_assert!(StatesReply::read(&answered, &[]).is_err());
    }
}

/// The bytes that a script is told. What is kept under a key, which versions share, is in the tests of the scripts.
#[test]
fn arguments_are_as_the_scripts_read_them() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let minute = rate(100, 60_000_000);
    let bucket = "418c9c380000000000000001000000000927c000000000000000038a5f40000000000000000393870000000000";
    let debt = "1661d10e15c0000000000041224f8000000000";
    assert_eq!(hex(argument(&token(minute, 100), true, 1)), format!("0101{bucket}{debt}"));
    let queue = "416885e6db6db6db0000000700000001885e6d00000005000000000f424000000000";
    let full = "000000055d4a8000000000000000055d4a8000000000";
    let odd = leaky(rate(7, 90_000_000), 7, Some(Span::SECOND));
    assert_eq!(hex(argument(&odd, false, 2)), format!("0100{queue}{full}416885e6db6db6db"));
    assert_eq!(hex(argument(&fixed(minute), true, 101)), "02030000039387000000006400000065");
    assert_eq!(hex(argument(&sliding(minute, 60), true, 5)), "0301000003938700003c00000064000000000005");
    assert_eq!(hex(argument(&log(minute, true), true, 5)), "0401000003938700000000640000000501");
    assert_eq!(hex(argument(&places(8), true, 1)), "05010000000800000001");
    let receipt = Receipt::from_number(0x0102_0304_0506);
    let refund = hex(refund_argument(&fixed(minute), fixed(minute).charged(1, receipt)));
    assert_eq!(refund, "02000000039387000000006400000001010203040506");
    let most = argument(&fixed(minute), false, u64::from(u32::MAX));
    assert_eq!(spend_argument(&fixed(minute), u64::MAX), most);
}

/// What a store cannot count exactly is not shared; if it is asked all the same, it admits nobody.
#[test]
fn what_cannot_be_exact_is_not_shared() {
    let year = 31_622_400_000_000;
    assert!(can_be_shared(&token(rate(1, year), 190)) && !can_be_shared(&token(rate(1, year), 1_000)));
    assert!(!can_be_shared(&leaky(rate(1, year), 1_000, None)));
    assert_eq!(argument(&token(rate(1, year), 1_000), true, 1)[1], 3, "never");
    let nanos = Rate::new(5, Span::from_nanos(1_000_001)).unwrap();
    assert!(
        !can_be_shared(&fixed(nanos)) && can_be_shared(&fixed(rate(5, year))) && can_be_shared(&places(5))
    );
}
