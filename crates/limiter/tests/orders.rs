//! Charges, reloads, refunds and late costs in any order, against models that replay the whole history.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod common;
mod history;

use common::model::Kind;
use common::walk::{plans, rates};
use common::{IN_2026, Plan, cases};
use history::{Event, History};
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_limiter::{Algorithm, Charge, Rate, SlidingLog, Span, Tat, Time, TokenBucket};

/// One step: how the clock moves before it, in thousandths of a period, and what is done.
#[derive(Clone, Copy, Debug)]
struct Step {
    later: u64,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// A request of so many eighths of the capacity.
    Ask(u64),
    /// So many eighths of the capacity are charged late.
    Settle(u64),
    /// The numbers of this plan from now on.
    Reload(usize),
    /// One of the charges is given back.
    Refund(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        6 => (0..=8_u64).prop_map(Action::Ask),
        2 => (0..=12_u64).prop_map(Action::Settle),
        2 => (0..3_usize).prop_map(Action::Reload),
        4 => (0..16_usize).prop_map(Action::Refund),
    ];
    let later = prop_oneof![3 => Just(0_u64), 4 => 0..=300_u64, 1 => 300..=2_500_u64];
    vec((later, action).prop_map(|(later, action)| Step { later, action }), 1..30)
}

/// Plans of numbers that a model in floating point can tell apart.
fn modest_plans() -> impl Strategy<Value = Plan> {
    plans().prop_map(|plan| {
        let period = plan.rate.period().clamp(Span::from_millis(10), Span::DAY);
        let rate = Rate::new(plan.rate.count().min(1_000), period).unwrap();
        Plan { rate, burst: plan.burst.min(1_000), max_delay: None, ..plan }
    })
}

/// Leads a key of `kind` through the steps. Whenever it admits a cost, a history in which nothing was charged that has
/// been given back admits it too; and where a history in which nothing was given back admits a cost, the key does.
fn in_any_order(kind: Kind, plans: &[Plan], steps: &[Step]) -> Result<(), TestCaseError> {
    let mut plan = plans[0];
    let (mut key, _) = kind.pair(&plan);
    let mut history = History::new(kind, plan);
    let (mut charges, mut events): (Vec<Charge>, Vec<usize>) = Default::default();
    let mut now = Time::from_nanos(IN_2026);
    for step in steps {
        now = now.plus(Span::from_nanos(plan.period() / 1_000 * step.later));
        let capacity = key.capacity();
        match step.action {
            Action::Ask(eighths) => {
                let cost = (capacity * eighths / 8).max(1);
                if key.check(now, cost).is_ok() {
                    let receipt = key.charge(now, cost);
                    charges.push(key.charged(cost, receipt));
                    events.push(history.push(now, Event::Charge(cost)));
                } else {
                    key.refused(now, cost);
                    history.push(now, Event::Refuse(cost));
                }
            }
            Action::Settle(_) if kind == Kind::LeakyBucket => {} // what has left a queue is not settled
            Action::Settle(eighths) => {
                let cost = (capacity * eighths / 8).max(1);
                key.settle(now, cost);
                history.push(now, Event::Settle(cost));
            }
            Action::Reload(next) => {
                plan = plans[next];
                key.carry(&plan, now, &mut charges);
                key.rescale(&plan, now);
                history.push(now, Event::Reload(plan));
            }
            Action::Refund(which) if !charges.is_empty() => {
                let which = which % charges.len();
                let charge = charges.remove(which);
                key.take_back(now, charge, &mut charges);
                history.refunded.push(events.remove(which));
            }
            Action::Refund(_) => {}
        }
        for cost in [1, key.capacity() / 2, key.capacity()].map(|cost| cost.max(1)) {
            let admits = key.check(now, cost).is_ok();
            let [without, with] = history.admits(now, cost);
            prop_assert!(!admits || without, "{} admits {cost} too early", key.name());
            // Places that a log has let go come back as if all were as new as the newest of them.
            let exact = kind != Kind::CountingLog;
            prop_assert!(admits || !with || !exact, "{} refuses {cost} without a reason", key.name());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn any_order_stays_between_the_models(plans in vec(modest_plans(), 3), steps in steps()) {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Concurrency) {
            in_any_order(kind, &plans, &steps)?;
        }
    }

    /// A charge that is given back after reloads, with nobody else in between, leaves no trace in a bucket.
    #[test]
    fn a_charge_given_back_after_reloads_was_never_there(
        plans in vec(plans(), 3), before in 0..=8_u64, cost in 1..=8_u64, waits in [0..900_u64, 0..900_u64, 0..900_u64],
    ) {
        for kind in [Kind::TokenBucket, Kind::LeakyBucket] {
            let (mut key, _) = kind.pair(&plans[0]);
            let mut now = Time::from_nanos(IN_2026);
            let eighths = |key: &dyn common::Limit, n: u64| (key.capacity() / 8 * n).max(1);
            let spent = eighths(&*key, before).min(key.capacity() / 2);
            key.charge(now, spent);
            let mut other = key.copy();
            let cost = eighths(&*key, cost).min(key.capacity() - spent);
            let receipt = key.charge(now, cost);
            let mut charge = [key.charged(cost, receipt)];
            for (plan, wait) in plans.iter().zip(waits) {
                now = now.plus(Span::from_nanos(plan.period() / 1_000 * wait));
                key.carry(plan, now, &mut charge);
                key.rescale(plan, now);
                other.rescale(plan, now);
            }
            key.take_back(now, charge[0], &mut []);
            prop_assert_eq!(key.usage(now), other.usage(now), "{}", key.name());
        }
    }

    /// Over any stretch of time a bucket admits no more than it refills, what it holds, and what was in flight at the end.
    #[test]
    fn late_costs_stay_within_the_rate(
        rate in rates(), burst in 1..=50_u64,
        requests in vec((0..400_u64, 1..400_u64, 0..2_000_u64), 1..60),
    ) {
        let bucket = TokenBucket::new(rate, burst).unwrap();
        let mut state = Tat::default();
        let token = (rate.period().as_nanos() / rate.count()).clamp(1, 1_000_000_000_000);
        let mut now = 0;
        let mut admitted: Vec<(u64, u64, u64)> = Vec::new();
        let mut settled = 0_usize;
        for (later, cost, takes) in requests {
            now += token * later / 100;
            while let Some((_, cost, end)) = admitted.get(settled).filter(|(.., end)| *end <= now) {
                bucket.settle(&mut state, Time::from_nanos(IN_2026 + *end), cost - 1);
                settled += 1;
            }
            let at = Time::from_nanos(IN_2026 + now);
            if bucket.check(&state, at, 1).is_ok() {
                bucket.charge(&mut state, at, 1);
                let end = admitted.last().map_or(0, |last| last.2).max(now + token * takes / 100);
                admitted.push((now, cost, end));
            }
        }
        for (first, (from, ..)) in admitted.iter().enumerate() {
            let mut units = 0_u128;
            for (until, cost, _) in &admitted[first..] {
                units += u128::from(*cost);
                let in_flight = admitted[first..].iter().filter(|(at, _, end)| at <= until && end >= until);
                let in_flight: u128 = in_flight.map(|(_, cost, _)| u128::from(*cost)).sum();
                let refilled = u128::from(until - from) * u128::from(rate.count());
                let most = refilled.div_ceil(u128::from(rate.period().as_nanos())) + u128::from(burst) + in_flight;
                prop_assert!(units <= most, "{units} units where {most} are allowed");
            }
        }
    }
}

/// A debt below empty is never larger than the overdraft, and what is said to remain and to wait for is true.
#[test]
fn an_overdraft_caps_the_debt() {
    let rate = Rate::new(10, Span::from_secs(1)).unwrap();
    let now = Time::from_nanos(IN_2026);
    let wait = |bucket: TokenBucket| {
        let mut state = Tat::default();
        bucket.charge(&mut state, now, 1);
        bucket.settle(&mut state, now, 299);
        assert_eq!(bucket.usage(&state, now).remaining, 0);
        bucket.check(&state, now, 1).unwrap_err().retry_after().unwrap()
    };
    let bucket = TokenBucket::new(rate, 20).unwrap();
    assert_eq!(wait(bucket), Span::from_millis(28_100), "280 below empty, and one more");
    assert_eq!(wait(bucket.with_overdraft(30)), Span::from_millis(3_100));
    assert_eq!(wait(bucket.with_overdraft(0)), Span::from_millis(100));
}

/// A debt below empty stays as many tokens when the bucket gets another size; the bucket itself keeps its share.
#[test]
fn below_empty_tokens_stay_tokens() {
    let bucket = |burst| TokenBucket::new(Rate::new(10, Span::from_secs(1)).unwrap(), burst).unwrap();
    let (now, mut state) = (Time::from_nanos(IN_2026), Tat::default());
    bucket(10).settle(&mut state, now, 15);
    bucket(40).rescale(&bucket(10), &mut state, now);
    assert_eq!(bucket(40).usage(&state, now).reset, Span::from_millis(4_500));
}

/// No cost is so large that a debt wraps around.
#[test]
fn a_debt_has_a_longest_time() {
    let bucket = TokenBucket::new(Rate::new(1, Span::from_secs(86_400)).unwrap(), 1).unwrap();
    let (now, mut state) = (Time::from_nanos(IN_2026), Tat::default());
    for _ in 0..3 {
        bucket.settle(&mut state, now, u64::MAX);
    }
    assert_eq!(bucket.usage(&state, now).reset, Span::from_secs(6_300_000_000));
}

/// Places that a log has let go come back as often as there were, and not at all once they are free.
#[test]
fn what_was_let_go_comes_back_once() {
    let log = |count, secs| SlidingLog::new(Rate::new(count, Span::from_secs(secs)).unwrap(), true).unwrap();
    let at = |secs| Time::from_nanos(IN_2026).plus(Span::from_secs(secs));
    let mut state = Default::default();
    for second in 0..6 {
        match log(3, 60).check(&state, at(second), 1) {
            Ok(_) => _ = log(3, 60).charge(&mut state, at(second), 1),
            Err(_) => log(3, 60).refused(&mut state, at(second), 1),
        }
    }
    let later = at(100);
    log(3, 3_600).rescale(&log(3, 60), &mut state, later);
    for attempt in 0..100 {
        assert!(log(3, 3_600).check(&state, later, 1).is_ok(), "attempt {attempt}");
        let receipt = log(3, 3_600).charge(&mut state, later, 1);
        log(3, 3_600).refund(&mut state, later, 1, receipt);
    }
    assert_eq!(log(3, 3_600).usage(&state, later).remaining, 3);
}
