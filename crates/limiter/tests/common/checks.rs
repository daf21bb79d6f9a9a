//! Checks that several promises share.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluicegate_limiter::{Refusal, Span, Time};

use super::walk::{Answer, Walk};
use super::{Limit, Plan};

pub fn admitted(answers: &[Answer]) -> Vec<Answer> {
    answers.iter().filter(|answer| answer.verdict.is_ok()).copied().collect()
}

/// Asks for `cost` at one instant until the answer is no, or was yes for too long, and tells how much was
/// admitted.
pub fn drain(key: &mut dyn Limit, now: Time, cost: u64) -> u64 {
    let mut taken = 0;
    while taken <= key.capacity() && key.acquire(now, cost).is_ok() {
        taken += cost;
    }
    taken
}

pub fn before(now: Time, span: Span) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(span.as_nanos()))
}

/// Leads both through the same walk, which begins at `now`: they may not differ in any answer.
pub fn stay_alike(
    left: &mut dyn Limit,
    right: &mut dyn Limit,
    plan: &Plan,
    later: &Walk,
    now: Time,
) -> TestCaseResult {
    let later = Walk { start: now, ..later.clone() };
    let mut walker = later.walker(plan);
    for ask in &later.asks {
        let (at, cost) = (walker.step(ask.step), later.cost(ask, left.capacity()));
        prop_assert_eq!(left.usage(at), right.usage(at), "{} at {:?}", left.name(), at);
        prop_assert_eq!(left.is_idle(at), right.is_idle(at), "{} at {:?}", left.name(), at);
        let verdict = left.acquire(at, cost);
        prop_assert_eq!(verdict, right.acquire(at, cost), "{} at {:?}", left.name(), at);
        walker.note(verdict);
    }
    Ok(())
}

/// Whoever is told to come back is admitted then, and a moment earlier still refused.
pub fn keeps_its_word(key: &dyn Limit, now: Time, cost: u64) -> TestCaseResult {
    let Err(refusal) = key.check(now, cost) else { return Ok(()) };
    let mut waiting = key.copy();
    waiting.refused(now, cost);
    match refusal {
        Refusal::Until(wait) => {
            prop_assert!(!wait.is_zero(), "{}", key.name());
            let then = now.plus(wait);
            if then == Time::from_nanos(u64::MAX) {
                return Ok(()); // beyond the last time that can be told
            }
            prop_assert!(
                waiting.check(before(then, Span::MICROSECOND), cost).is_err(),
                "{}: admitted before its time",
                key.name()
            );
            prop_assert!(
                waiting.check(before(then, Span::from_nanos(1)), cost).is_err(),
                "{}: admitted before its time",
                key.name()
            );
            prop_assert!(waiting.check(then, cost).is_ok(), "{}: not admitted after {wait}", key.name());
        }
        Refusal::Busy => prop_assert_eq!(key.name(), "concurrency"),
        Refusal::Never => prop_assert!(cost > key.capacity(), "{}", key.name()),
        Refusal::Banned(_) => prop_assert!(false, "{}: no limit bans by itself", key.name()),
    }
    Ok(())
}
