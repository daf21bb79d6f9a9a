//! Every algorithm against a slow and obvious model of it (see `common/model.rs`): the same random requests,
//! and the same answers at every step: admitted or refused, how long held, when to come back, what is left
//! and when all is back.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::model::{Kind, Model};
use common::walk::{Walk, plans, walks};
use common::{IN_2026, Limit, Plan, cases};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluicegate_limiter::{Rate, Receipt, Refusal, Span, Time};

/// Asks both and compares all that they say, before and after.
fn ask_both(key: &mut dyn Limit, model: &mut dyn Model, at: Time, cost: u64) -> TestCaseResult {
    prop_assert_eq!(key.usage(at), model.usage(at), "usage before {} at {:?}", cost, at);
    let (said, expected) = (key.acquire(at, cost), model.check(at, cost));
    prop_assert_eq!(said, expected, "answer to {} at {:?}", cost, at);
    match expected {
        Ok(_) => model.spend(at.as_nanos(), cost),
        Err(_) => model.reject(at.as_nanos(), cost),
    }
    prop_assert_eq!(key.usage(at), model.usage(at), "usage after {} at {:?}", cost, at);
    prop_assert_eq!(key.is_idle(at), model.idle(at.as_nanos()), "idle after {} at {:?}", cost, at);
    Ok(())
}

/// Leads a key and its model side by side through a walk.
fn follow(kind: Kind, plan: &Plan, walk: &Walk) -> TestCaseResult {
    let (mut key, mut model) = kind.pair(plan);
    let mut walker = walk.walker(plan);
    for ask in &walk.asks {
        let (at, cost) = (walker.step(ask.step), walk.cost(ask, model.capacity()));
        walker.note(model.check(at, cost));
        ask_both(&mut *key, &mut *model, at, cost)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// A token bucket holds what has been poured in and not taken out, to the last fraction of a token.
    #[test]
    fn token_bucket_is_a_bucket_of_fractions(plan in plans(), walk in walks()) {
        follow(Kind::TokenBucket, &plan, &walk)?;
    }

    /// A leaky bucket holds each request for exactly the time that those before it need, and turns away only
    /// those that find no place or would wait too long.
    #[test]
    fn leaky_bucket_is_a_queue_that_drains_steadily(plan in plans(), walk in walks()) {
        follow(Kind::LeakyBucket, &plan, &walk)?;
    }

    /// A fixed window counts by the calendar: all that matters is what was spent in the window of the
    /// request.
    #[test]
    fn fixed_window_is_a_count_for_each_window(plan in plans(), walk in walks()) {
        follow(Kind::FixedWindow, &plan, &walk)?;
    }

    /// A sliding log remembers every admitted request for exactly one period.
    #[test]
    fn sliding_log_is_a_list_of_instants(plan in plans(), walk in walks()) {
        follow(Kind::SlidingLog, &plan, &walk)?;
    }

    /// A sliding log that counts the rejected remembers every request for exactly one period.
    #[test]
    fn counting_log_is_a_list_of_all_attempts(plan in plans(), walk in walks()) {
        follow(Kind::CountingLog, &plan, &walk)?;
    }

    /// A sliding window estimates from the sub-windows in which requests were admitted, as the definition
    /// says.
    #[test]
    fn sliding_window_is_an_estimate_over_all_that_was(plan in plans(), walk in walks()) {
        follow(Kind::SlidingWindow, &plan, &walk)?;
    }

    /// A concurrency limit counts who is in: whoever leaves makes room for exactly as much, and time makes
    /// none.
    #[test]
    fn concurrency_is_a_counter(plan in plans(), moves in vec((any::<bool>(), 1..=5_u64), 1..60)) {
        let (mut key, mut model) = Kind::Concurrency.pair(&plan);
        let mut inside = Vec::new();
        for (second, (enters, cost)) in (0_u64..).zip(moves) {
            let at = Time::from_nanos(IN_2026).plus(Span::from_secs(second));
            if enters {
                if model.check(at, cost).is_ok() {
                    inside.push(cost);
                }
                ask_both(&mut *key, &mut *model, at, cost)?;
            } else if let Some(cost) = inside.pop() {
                key.refund(at, cost, Receipt::default());
                model.end(cost);
                prop_assert_eq!(key.usage(at), model.usage(at));
            }
            prop_assert_eq!(key.is_idle(at), inside.is_empty());
        }
    }
}

fn plan(count: u64, period: Span, burst: u64) -> Plan {
    Plan { rate: Rate::new(count, period).unwrap(), burst, slices: 1, max_delay: None }
}

/// Of 20 that arrive together at a queue of 10 drained at 2/s, ten are admitted, at 0, 0.5 … 4.5 s.
#[test]
fn twenty_at_a_queue_of_ten() {
    let (mut queue, mut model) = Kind::LeakyBucket.pair(&plan(2, Span::SECOND, 10));
    let now = Time::from_nanos(IN_2026);
    for place in 0..20 {
        let expected = if place < 10 {
            Ok(Span::from_millis(500 * place))
        } else {
            Err(Refusal::Until(Span::from_millis(500)))
        };
        assert_eq!(model.check(now, 1), expected);
        ask_both(&mut *queue, &mut *model, now, 1).unwrap();
    }
}

/// 7/min with 5 in the last minute and 3 in this one, 30 % into it: 6.5, so one more and not two.
#[test]
fn six_and_a_half_of_seven() {
    let (mut window, mut model) = Kind::SlidingWindow.pair(&plan(7, Span::from_secs(60), 7));
    let second = |s| Time::from_nanos(IN_2026).plus(Span::from_secs(s));
    for at in [0, 10, 20, 30, 59, 77, 77, 77].map(second) {
        assert_eq!(model.check(at, 1), Ok(Span::ZERO));
        ask_both(&mut *window, &mut *model, at, 1).unwrap();
    }
    assert_eq!(model.usage(second(78)).remaining, 1);
    assert_eq!(model.check(second(78), 1), Ok(Span::ZERO));
    ask_both(&mut *window, &mut *model, second(78), 1).unwrap();
    assert!(model.check(second(78), 1).is_err());
    ask_both(&mut *window, &mut *model, second(78), 1).unwrap();
}
