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
use sluicegate_limiter::{Algorithm, Rate, Receipt, Refusal, SlidingWindow, Span, Time};

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
    Plan { rate: Rate::new(count, period).unwrap(), burst, slices: 1, strict: false, max_delay: None }
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

proptest! {
    #![proptest_config(cases(300))]

    /// A strict sliding window never admits more than the count of the rate in any window of one period.
    #[test]
    fn no_window_of_a_strict_limit_has_more_than_its_count(plan in plans(), walk in walks()) {
        let window = SlidingWindow::new(plan.rate, plan.slices).unwrap().strict();
        let (mut state, mut admitted) = (Default::default(), Vec::new());
        let mut at = walk.start;
        for (step, ask) in (1_u64..).zip(&walk.asks) {
            at = at.plus(Span::from_nanos(plan.period() / 16 * (step * 7 % 5)));
            while window.check(&state, at, ask.cost).is_ok() && admitted.len() < 3_000 {
                window.charge(&mut state, at, ask.cost);
                admitted.push((at, ask.cost));
            }
            let inside = |taken: &Time| at.since(*taken).as_nanos() < plan.period();
            let sum: u64 = admitted.iter().filter(|(taken, _)| inside(taken)).map(|(_, cost)| cost).sum();
            prop_assert!(sum <= plan.count(), "{sum} of {} in a window", plan.count());
        }
    }
}

/// A burst at the end of a sub-window, then greed: the estimate lets almost twice the count into one window, whatever the
/// number of sub-windows, the strict limit never more than the count.
#[test]
fn an_aligned_burst_gets_twice_the_count_unless_the_limit_is_strict() {
    for slices in [1, 2, 6, 10, 60] {
        let most = |window: SlidingWindow| {
            let (mut state, mut admitted) = (Default::default(), Vec::new());
            let slice = 60_000_000_000 / u64::from(slices);
            let mut at = IN_2026 + slice - 1;
            for _ in 0..4_000 {
                let now = Time::from_nanos(at);
                while window.check(&state, now, 1).is_ok() {
                    window.charge(&mut state, now, 1);
                    admitted.push(at);
                }
                at += 60_000_000_000 / 2_000;
            }
            let inside =
                |from: u64| admitted.iter().filter(|at| (from..from + 60_000_000_000).contains(at)).count();
            admitted.iter().map(|at| inside(*at)).max().unwrap()
        };
        let window = SlidingWindow::new(Rate::new(100, Span::from_secs(60)).unwrap(), slices).unwrap();
        assert!(most(window) >= 195, "{slices} slices: {}", most(window));
        assert_eq!(most(window.strict()), 100, "{slices} slices");
    }
}
