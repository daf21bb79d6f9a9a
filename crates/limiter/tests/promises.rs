//! What users rely on, whatever the algorithm: each promise is checked for every one of them by the same
//! code.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::checks::{admitted, before, drain, keeps_its_word, stay_alike};
use common::walk::{Answer, extreme_asks, extreme_plans, plans, stumbling_walks, walks};
use common::{IN_2026, cases};
use proptest::prelude::*;
use sluicegate_limiter::{Algorithm, Concurrency, FixedWindow, Log, Rate, Refusal, Span, Time, TokenBucket};

proptest! {
    #![proptest_config(cases(2_000))]

    /// However requests come, no instant sees more of them admitted than the limit holds.
    #[test]
    fn one_instant_never_sees_more_than_the_capacity(plan in plans(), walk in walks()) {
        for mut key in plan.keys() {
            let answers = admitted(&walk.finish(&plan, &mut *key));
            for instant in answers.chunk_by(|one, next| one.at == next.at) {
                let taken = instant.iter().map(|answer| answer.cost).sum::<u64>();
                prop_assert!(taken <= key.capacity(), "{}: {taken} at {:?}", key.name(), instant[0].at);
            }
        }
    }

    /// Over any span of time a token bucket lets through no more than its burst and what the rate brings in
    /// it.
    #[test]
    fn token_bucket_never_exceeds_burst_plus_rate(plan in plans(), walk in walks()) {
        let mut bucket = plan.timed_keys().swap_remove(0);
        let answers = admitted(&walk.finish(&plan, &mut *bucket));
        let (count, period) = (u128::from(plan.count()), u128::from(plan.period()));
        for (i, first) in answers.iter().enumerate() {
            let mut taken = 0;
            for last in &answers[i..] {
                taken += u128::from(last.cost);
                let span = u128::from(last.at.since(first.at).as_nanos());
                prop_assert!(taken * period <= u128::from(plan.burst) * period + count * span);
            }
        }
    }

    /// Behind a leaky bucket requests leave in the order they came, and never faster than the rate, over any
    /// span.
    #[test]
    fn leaky_bucket_never_lets_go_faster_than_the_rate(plan in plans(), walk in walks()) {
        let mut bucket = plan.timed_keys().swap_remove(1);
        let answers = admitted(&walk.finish(&plan, &mut *bucket));
        let (count, period) = (u128::from(plan.count()), u128::from(plan.period()));
        let leaves = |answer: &Answer| answer.at.plus(answer.verdict.unwrap());
        for (i, first) in answers.iter().enumerate() {
            let mut ahead = u128::from(first.cost);
            for last in &answers[i + 1..] {
                prop_assert!(leaves(last) >= leaves(first));
                let span = u128::from(leaves(last).since(leaves(first)).as_nanos());
                prop_assert!((span + 1) * count > ahead * period, "{ahead} within {span} ns");
                ahead += u128::from(last.cost);
            }
        }
    }

    /// A request is never held for longer than the longest delay that was allowed.
    #[test]
    fn leaky_bucket_never_holds_longer_than_allowed(plan in plans(), walk in walks()) {
        let mut bucket = plan.timed_keys().swap_remove(1);
        for answer in admitted(&walk.finish(&plan, &mut *bucket)) {
            prop_assert!(plan.max_delay.is_none_or(|longest| answer.verdict.unwrap() <= longest));
        }
    }

    /// No window of one period, wherever it begins, holds more than a sliding log's count.
    #[test]
    fn sliding_log_never_exceeds_its_count_in_any_window(plan in plans(), walk in walks()) {
        for mut log in plan.timed_keys().drain(3..=4) {
            let answers = admitted(&walk.finish(&plan, &mut *log));
            for (i, first) in answers.iter().enumerate() {
                let inside = answers[i..].iter().take_while(|a| a.at < first.at.plus(plan.rate.period()));
                prop_assert!(inside.map(|a| a.cost).sum::<u64>() <= log.capacity(), "{}", log.name());
            }
        }
    }

    /// A sliding log is no larger than its count, however long it is used and however many it refuses.
    #[test]
    fn sliding_log_remembers_no_more_than_it_must(plan in plans(), walk in walks()) {
        for log in [plan.sliding_log(), plan.counting_log()] {
            let (mut state, mut walker) = (Log::default(), walk.walker(&plan));
            for ask in &walk.asks {
                let now = walker.step(ask.step);
                let verdict = log.check(&state, now, 1);
                walker.note(verdict);
                match verdict {
                    Ok(_) => _ = log.charge(&mut state, now, 1),
                    Err(_) => log.refused(&mut state, now, 1),
                }
                let reply = format!("{state:?}");
                let held = reply.split("dropped").next().unwrap_or_default();
                let entries = held.matches("Entry").count() as u64;
                prop_assert!(entries <= plan.count(), "{entries} entries");
            }
        }
    }

    /// Coming back at the very time that a refusal names is admitted, and a moment earlier refused, when
    /// nobody else spends the key; also where the refusal itself was counted.
    #[test]
    fn retry_after_is_exact(plan in plans(), walk in walks(), too_much in 1..1_000_u64) {
        for mut key in plan.keys() {
            walk.lead(&plan, &mut *key, |key, now, cost| {
                keeps_its_word(key, now, cost)?;
                keeps_its_word(key, now, key.capacity())?;
                keeps_its_word(key, now, key.capacity() + too_much)
            })?;
        }
    }

    /// The same after the clock was set back: nobody is sent away for too short or too long.
    #[test]
    fn retry_after_is_exact_when_the_clock_steps_back(plan in plans(), walk in stumbling_walks()) {
        for mut key in plan.keys() {
            walk.lead(&plan, &mut *key, keeps_its_word)?;
        }
    }

    /// What is said to remain is what is admitted, and one more is not.
    #[test]
    fn remaining_is_what_is_admitted(plan in plans(), walk in walks()) {
        for mut key in plan.keys() {
            walk.lead(&plan, &mut *key, |key, now, _| {
                let remaining = key.usage(now).remaining;
                prop_assert!(remaining <= key.capacity());
                if remaining <= 100 {
                    prop_assert_eq!(drain(&mut *key.copy(), now, 1), remaining, "{}", key.name());
                }
                Ok(())
            })?;
        }
    }

    /// After any pause, however long, one instant sees at most the capacity: idle time is never saved up.
    #[test]
    fn idle_time_never_overfills(plan in plans(), walk in walks(), pause in 0..Span::DAY.as_nanos() * 10_000) {
        for mut key in plan.keys() {
            let end = walk.finish(&plan, &mut *key).last().unwrap().at;
            let pauses = [Span::ZERO, plan.rate.period(), key.usage(end).reset, Span::from_nanos(pause)];
            for now in pauses.map(|pause| end.plus(pause)) {
                // In a few large requests, whatever the capacity.
                let taken = drain(&mut *key.copy(), now, key.capacity().div_ceil(20));
                prop_assert!(taken <= key.capacity(), "{}: {taken} at {now:?}", key.name());
            }
        }
    }

    /// A new key is full, and has nothing to wait for.
    #[test]
    fn a_new_key_is_full(plan in plans()) {
        for key in plan.keys() {
            let usage = key.usage(Time::from_nanos(IN_2026));
            prop_assert_eq!(usage.remaining, usage.capacity, "{}", key.name());
            prop_assert!(usage.reset.is_zero() && key.is_idle(Time::from_nanos(IN_2026)));
        }
    }

    /// A clock that is set back takes nothing from the limit: nothing panics, nobody gets more than the
    /// capacity before the clock is where it was, and an earlier time never shows more left than a later one.
    #[test]
    fn time_running_backwards_gives_nothing_away(plan in plans(), walk in stumbling_walks()) {
        for mut key in plan.keys() {
            let answers = walk.lead(&plan, &mut *key, |key, now, _| {
                let remaining = key.usage(now).remaining;
                for earlier in [1, 1_000, plan.period() / 3, plan.period(), 3 * plan.period()] {
                    let then = key.usage(before(now, Span::from_nanos(earlier)));
                    prop_assert!(then.remaining <= remaining, "{}: {earlier} ns before {now:?}", key.name());
                }
                Ok(())
            })?;
            let (mut latest, mut taken) = (Time::EPOCH, 0);
            for answer in admitted(&answers) {
                taken = if answer.at > latest { answer.cost } else { taken + answer.cost };
                latest = latest.max(answer.at);
                prop_assert!(taken <= key.capacity(), "{}: {taken} until {latest:?}", key.name());
            }
        }
    }

    /// At the reset that was told, everything is back, and a microsecond earlier it is not.
    #[test]
    fn reset_is_when_all_is_back(plan in plans(), walk in walks()) {
        for mut key in plan.timed_keys() {
            let mut new = key.copy();
            new.forget();
            walk.lead(&plan, &mut *key, |key, now, _| {
                let reset = key.usage(now).reset;
                let full = |at| key.usage(at) == new.usage(at);
                prop_assert!(full(now.plus(reset)), "{}: not full after {reset}", key.name());
                if !reset.is_zero() {
                    let then = now.plus(reset);
                    prop_assert!(!full(before(then, Span::from_nanos(1))), "{}: full before {reset}", key.name());
                    prop_assert!(!full(before(then, Span::MICROSECOND)), "{}: full before {reset}", key.name());
                }
                Ok(())
            })?;
        }
    }

    /// A key that is idle may be forgotten: no later answer is another one.
    #[test]
    fn an_idle_key_may_be_forgotten(plan in plans(), walk in walks(), later in walks()) {
        for mut key in plan.keys() {
            let end = walk.finish(&plan, &mut *key).last().unwrap().at;
            for now in [end, end.plus(key.usage(end).reset)].into_iter().filter(|now| key.is_idle(*now)) {
                let (mut kept, mut forgotten) = (key.copy(), key.copy());
                forgotten.forget();
                stay_alike(&mut *kept, &mut *forgotten, &plan, &later, now)?;
            }
        }
    }

    /// What is given back at the instant it was taken leaves no trace, and giving back a part leaves the
    /// rest.
    #[test]
    fn refund_undoes_a_charge(plan in plans(), walk in walks(), later in walks(), kept in 1..=5_u64) {
        for mut key in plan.keys() {
            let last = *walk.finish(&plan, &mut *key).last().unwrap();
            if key.check(last.at, last.cost).is_err() {
                continue;
            }
            let kept = kept.min(last.cost);
            let (mut untouched, mut partly) = (key.copy(), key.copy());
            let receipt = key.charge(last.at, last.cost);
            key.refund(last.at, last.cost - kept, receipt);
            partly.charge(last.at, kept);
            stay_alike(&mut *key.copy(), &mut *partly, &plan, &later, last.at)?;
            key.refund(last.at, kept, receipt);
            stay_alike(&mut *key, &mut *untouched, &plan, &later, last.at)?;
        }
    }

    /// The largest and smallest numbers that a configuration may hold, now and in the year 2500, in any order
    /// of times: no sum overflows, and the limit still holds.
    #[test]
    fn extremes_neither_overflow_nor_leak(old in extreme_plans(), new in extreme_plans(), asks in extreme_asks()) {
        for mut key in old.keys() {
            let (mut latest, mut taken) = (Time::EPOCH, 0);
            for (at, share) in &asks {
                let (now, cost) = (Time::from_nanos(*at), (key.capacity() * share / 4).max(1));
                let usage = key.usage(now);
                if key.check(now, cost).is_ok() {
                    let receipt = key.charge(now, cost);
                    taken = if now > latest { cost } else { taken + cost };
                    latest = latest.max(now);
                    prop_assert!(taken <= key.capacity(), "{}", key.name());
                    key.refund(now, cost, receipt);
                    prop_assert_eq!(key.usage(now).remaining, usage.remaining, "{}", key.name());
                    key.charge(now, cost);
                } else {
                    key.refused(now, cost);
                }
                key.is_idle(now.plus(usage.reset));
                if now < latest {
                    continue;
                }
                let mut rescaled = key.copy();
                rescaled.rescale(&new, now);
                let _ = rescaled.acquire(now, rescaled.capacity());
                rescaled.rescale(&old, now);
                prop_assert!(rescaled.usage(now).remaining <= rescaled.capacity(), "{}", key.name());
            }
        }
    }
}

/// At the edges of what a limit can hold, and with a clock that is far behind, nothing overflows into a yes.
#[test]
fn the_edges_hold() {
    let t = |seconds| Time::from_nanos(IN_2026).plus(Span::from_secs(seconds));
    let rate = |count, period| Rate::new(count, period).unwrap();
    // A reload while the clock is set back does not open a window again.
    let window = FixedWindow::new(rate(2, Span::from_secs(60)));
    let mut state = Default::default();
    window.charge(&mut state, t(60), 2);
    window.rescale(&window, &mut state, before(t(60), Span::from_millis(1)));
    assert!(window.check(&state, t(60), 1).is_err());
    // A debt that is too large to tell stays one.
    let fast = TokenBucket::new(rate(1_000_000_000, Span::MILLISECOND), 1).unwrap();
    let slow = TokenBucket::new(rate(1, Span::from_secs(366 * 86_400)), 1_000_000_000).unwrap();
    let mut state = Default::default();
    fast.charge(&mut state, t(11), 1);
    slow.rescale(&fast, &mut state, t(0));
    assert!(slow.check(&state, t(0), 1_000).is_err());
    slow.usage(&state, Time::EPOCH);
    // Any cost that a client can write is compared, not added.
    let places = Concurrency::new(5).unwrap();
    let mut state = Default::default();
    places.charge(&mut state, t(0), 1);
    assert_eq!(places.check(&state, t(0), u64::MAX), Err(Refusal::Never));
}
