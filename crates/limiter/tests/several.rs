//! Several limits on one request are one decision: every limit is asked first, and only when all say yes are
//! all charged. A refusal by one takes nothing from any other.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::model::{Kind, Model};
use common::walk::{Walk, plans, walks};
use common::{Limit, Plan, cases};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::TestCaseResult;
use sluicegate_limiter::{Algorithm, FixedWindow, Rate, Receipt, Refusal, Span, Time, TokenBucket, Usage};

/// What each of the limits says of one request.
type Verdicts = Vec<Result<Span, Refusal>>;

/// A request against all of the limits, as a gateway makes it: asks every limit first, then charges all of
/// them, or notes the refusal with those that said no.
fn ask_all(keys: &mut [Box<dyn Limit>], now: Time, cost: u64) -> Verdicts {
    let verdicts: Verdicts = keys.iter().map(|key| key.check(now, cost)).collect();
    let admitted = verdicts.iter().all(Result::is_ok);
    for (key, verdict) in keys.iter_mut().zip(&verdicts) {
        match verdict {
            Ok(_) if admitted => _ = key.charge(now, cost),
            Ok(_) => {}
            Err(_) => key.refused(now, cost),
        }
    }
    verdicts
}

/// The same against the models, each of which only hears of requests that all of them admit.
fn ask_models(models: &mut [Box<dyn Model>], now: Time, cost: u64) -> Verdicts {
    let verdicts: Verdicts = models.iter().map(|model| model.check(now, cost)).collect();
    if verdicts.iter().all(Result::is_ok) {
        models.iter_mut().for_each(|model| model.spend(now.as_nanos(), cost));
    } else {
        let refusing = models.iter_mut().zip(&verdicts).filter(|(_, verdict)| verdict.is_err());
        refusing.for_each(|(model, _)| model.reject(now.as_nanos(), cost));
    }
    verdicts
}

/// What a key says of itself at several times, from which a change of its state would show.
fn face(key: &dyn Limit, now: Time, plan: &Plan) -> Vec<(Usage, bool, Result<Span, Refusal>)> {
    [0, 1, plan.period() / 7, plan.period(), plan.period() * 2]
        .map(|later| now.plus(Span::from_nanos(later)))
        .map(|at| (key.usage(at), key.is_idle(at), key.check(at, key.capacity())))
        .to_vec()
}

/// Two or three different algorithms in any order, each with a plan of its own.
fn limits() -> impl Strategy<Value = Vec<(Kind, Plan)>> {
    let kinds = subsequence(Kind::ALL.to_vec(), 2..=3).prop_shuffle();
    (kinds, vec(plans(), 3)).prop_map(|(kinds, plans)| kinds.into_iter().zip(plans).collect())
}

fn keys(limits: &[(Kind, Plan)]) -> Vec<Box<dyn Limit>> {
    limits.iter().map(|(kind, plan)| kind.pair(plan).0).collect()
}

fn models(limits: &[(Kind, Plan)]) -> Vec<Box<dyn Model>> {
    limits.iter().map(|(kind, plan)| kind.pair(plan).1).collect()
}

/// Leads keys through a walk, whose steps go by the period of the first limit and the longest wait that any
/// limit names, and calls `each` for every request.
fn lead(
    limits: &[(Kind, Plan)],
    walk: &Walk,
    keys: &mut [Box<dyn Limit>],
    mut each: impl FnMut(&mut [Box<dyn Limit>], Time, u64) -> Result<Verdicts, TestCaseError>,
) -> TestCaseResult {
    let mut walker = walk.walker(&limits[0].1);
    let smallest = keys.iter().map(|key| key.capacity()).min().unwrap();
    for ask in &walk.asks {
        let at = walker.step(ask.step);
        let verdicts = each(keys, at, walk.cost(ask, smallest))?;
        let refusals = verdicts.iter().filter(|verdict| verdict.is_err());
        let longest = refusals.max_by_key(|verdict| verdict.unwrap_err().retry_after());
        walker.note(*longest.unwrap_or(&Ok(Span::ZERO)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3_000))]

    /// When one limit refuses, the others are as if the request had never been made, at once and later on;
    /// and the one that refused is too, unless it counts the rejected.
    #[test]
    fn a_refusal_takes_nothing_from_the_others(limits in limits(), walk in walks()) {
        let mut all = keys(&limits);
        lead(&limits, &walk, &mut all, |keys, now, cost| {
            let faces = |keys: &[Box<dyn Limit>]| -> Vec<_> {
                keys.iter().zip(&limits).map(|(key, (_, plan))| face(&**key, now, plan)).collect()
            };
            let before = faces(keys);
            let verdicts = ask_all(keys, now, cost);
            if verdicts.iter().any(Result::is_err) {
                for (i, after) in faces(keys).iter().enumerate() {
                    let counts = verdicts[i].is_err() && limits[i].0 == Kind::CountingLog;
                    prop_assert!(counts || *after == before[i], "{} changed", keys[i].name());
                }
            }
            Ok(verdicts)
        })?;
    }

    /// The answers of several limits together are those of models, each of which only sees the requests that
    /// all admit. Now and then a request that is in flight ends.
    #[test]
    fn together_they_answer_as_their_models(
        limits in limits(), walk in walks(), ends in vec(any::<bool>(), 40)
    ) {
        let (mut all, mut models, mut ends) = (keys(&limits), models(&limits), ends.into_iter());
        let mut in_flight = Vec::new();
        lead(&limits, &walk, &mut all, |keys, now, cost| {
            if ends.next() == Some(true)
                && let Some(ended) = in_flight.pop()
                && let Some(i) = limits.iter().position(|(kind, _)| *kind == Kind::Concurrency)
            {
                keys[i].refund(now, ended, Receipt::default());
                models[i].end(ended);
            }
            let verdicts = ask_all(keys, now, cost);
            prop_assert_eq!(&verdicts, &ask_models(&mut models, now, cost));
            if verdicts.iter().all(Result::is_ok) {
                in_flight.push(cost);
            }
            for (key, model) in keys.iter().zip(&models) {
                prop_assert_eq!(key.usage(now), model.usage(now), "{}", key.name());
            }
            Ok(verdicts)
        })?;
    }

    /// A limit in company answers every request as it would alone, if it were only ever asked to charge what
    /// all admitted: the presence of others changes nothing in it.
    #[test]
    fn each_only_pays_for_what_all_admit(limits in limits(), walk in walks()) {
        let (mut all, mut alone) = (keys(&limits), keys(&limits));
        lead(&limits, &walk, &mut all, |keys, now, cost| {
            let verdicts = ask_all(keys, now, cost);
            for (i, key) in alone.iter_mut().enumerate() {
                prop_assert_eq!(key.check(now, cost), verdicts[i]);
                if verdicts.iter().all(Result::is_ok) {
                    key.charge(now, cost);
                } else if verdicts[i].is_err() {
                    key.refused(now, cost);
                }
                prop_assert_eq!(key.usage(now), keys[i].usage(now), "{}", key.name());
            }
            Ok(verdicts)
        })?;
    }

    /// Coming back after the longest wait that any of the limits names is admitted by all of them, when
    /// nobody else spends; and a nanosecond earlier at least one still refuses.
    #[test]
    fn the_longest_retry_after_is_exact(limits in limits(), walk in walks()) {
        let mut all = keys(&limits);
        lead(&limits, &walk, &mut all, |keys, now, cost| {
            let verdicts = ask_all(keys, now, cost);
            let refusals: Vec<_> = verdicts.iter().filter_map(|verdict| verdict.err()).collect();
            let waits: Option<Vec<_>> = refusals.iter().map(|refusal| refusal.retry_after()).collect();
            if let Some(longest) = waits.and_then(|waits| waits.into_iter().max()) {
                let admitted = |at| keys.iter().all(|key| key.check(at, cost).is_ok());
                let then = now.plus(longest);
                prop_assert!(admitted(then));
                prop_assert!(!admitted(Time::from_nanos(then.as_nanos() - 1)));
            }
            Ok(verdicts)
        })?;
    }
}

/// A day's allowance is not spent by requests that a burst limit turns away: of 100 that arrive together, the
/// burst of 3 gets through, and 7 of 10 are left for later.
#[test]
fn a_burst_does_not_eat_the_daily_allowance() {
    let bucket = TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), 3).unwrap();
    let day = FixedWindow::new(Rate::new(10, Span::DAY).unwrap());
    let (mut tokens, mut used) = Default::default();
    let now = Time::from_nanos(common::IN_2026);
    for _ in 0..100 {
        if bucket.check(&tokens, now, 1).is_ok() && day.check(&used, now, 1).is_ok() {
            bucket.charge(&mut tokens, now, 1);
            day.charge(&mut used, now, 1);
        }
    }
    assert_eq!(bucket.usage(&tokens, now).remaining, 0);
    assert_eq!(day.usage(&used, now).remaining, 7);
}
