//! Giving back long after the charge: what came back by itself meanwhile is not given twice.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::checks::before;
use common::model::{Kind, Model};
use common::walk::{Step, Walk, plans, walks};
use common::{IN_2026, Limit, Plan, cases};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluicegate_limiter::{Algorithm, LeakyBucket, Rate, Receipt, Refusal, SlidingLog, Span, Time};

/// One charge that is given back later.
struct Late {
    cost: u64,
    receipt: Receipt,
}

/// Leads a key through `first`, charges, leads it through `between`, gives the charge back, and leads it through
/// `after`. The model hears of everything but that charge. From then on whatever the key admits the model does;
/// where nobody else came between, they say the same. The model goes on with what the key admitted.
fn give_back(kind: Kind, plan: &Plan, walks: [&Walk; 3], share: u64) -> TestCaseResult {
    let (mut key, mut model) = kind.pair(plan);
    let mut walker = walks[0].walker(plan);
    let mut late: Option<Late> = None;
    let mut alone = true;
    for (part, walk) in walks.into_iter().enumerate() {
        for ask in &walk.asks {
            let (at, cost) = (walker.step(ask.step), walk.cost(ask, model.capacity()));
            if part == 2 {
                compare(&*key, &*model, at, cost, alone)?;
            }
            let verdict = key.check(at, cost);
            walker.note(verdict);
            tell(&mut *key, &mut *model, at, cost);
            alone &= part != 1 || verdict == Err(Refusal::Never);
        }
        let at = walker.step(Step::Stay);
        match (part, &late) {
            (0, _) => {
                let cost = (model.capacity() * share / 8).max(1);
                if key.check(at, cost).is_err() {
                    return Ok(());
                }
                late = Some(Late { cost, receipt: key.charge(at, cost) });
            }
            (1, Some(given)) => {
                key.refund(at, given.cost, given.receipt);
                compare(&*key, &*model, at, 1, alone)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A request that the key decides and the model hears of.
fn tell(key: &mut dyn Limit, model: &mut dyn Model, at: Time, cost: u64) {
    match key.acquire(at, cost) {
        Ok(_) => model.spend(at.as_nanos(), cost),
        Err(_) => model.reject(at.as_nanos(), cost),
    }
}

fn compare(key: &dyn Limit, model: &dyn Model, at: Time, cost: u64, alike: bool) -> TestCaseResult {
    let (said, left) = (key.check(at, cost), key.usage(at).remaining);
    if alike {
        prop_assert_eq!(said, model.check(at, cost), "{} at {:?}", key.name(), at);
        prop_assert_eq!(key.usage(at), model.usage(at), "{} at {:?}", key.name(), at);
        prop_assert_eq!(key.is_idle(at), model.idle(at.as_nanos()), "{} at {:?}", key.name(), at);
    } else {
        prop_assert!(said.is_err() || model.check(at, cost).is_ok(), "{} admits too much", key.name());
        prop_assert!(left <= model.remaining(at.as_nanos()), "{}: {left} remain", key.name());
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// Whenever a charge is given back, nobody is admitted who would not have been without it; and if nobody
    /// else came between, no trace of it is left.
    #[test]
    fn what_is_given_back_late_was_never_there(
        plan in plans(), walks in [walks(), walks(), walks()], share in 0..=8_u64, alone in any::<bool>()
    ) {
        let [first, mut between, after] = walks;
        if alone {
            // Time passes and nobody is admitted: all ask for too much.
            between.asks.iter_mut().for_each(|ask| ask.cost = 1_000_000_000_000);
            between.heavy = false;
        }
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Concurrency) {
            give_back(kind, &plan, [&first, &between, &after], share)?;
        }
    }
}

/// Of ten in a queue that is half drained, one that has left already gives nothing back, and one that still waits
/// gives its whole turn.
#[test]
fn a_turn_that_has_passed_is_spent() {
    let queue = LeakyBucket::new(Rate::new(1, Span::SECOND).unwrap(), 10, None).unwrap();
    let (start, mut state) = (Time::from_nanos(IN_2026), Default::default());
    let turns: Vec<Receipt> = (0..10).map(|_| queue.charge(&mut state, start, 1)).collect();
    let later = start.plus(Span::from_secs(5));
    let backlog = |state: &_| queue.usage(state, later).reset;
    queue.refund(&mut state, later, 1, turns[4]);
    assert_eq!(backlog(&state), Span::from_secs(5));
    queue.refund(&mut state, later, 1, turns[5]);
    assert_eq!(backlog(&state), Span::from_secs(4));
    queue.refund(&mut state, before(later, Span::from_millis(500)), 1, turns[4]);
    assert_eq!(backlog(&state), Span::from_millis(3_500), "half of it was still to come");
}

/// A log that counts the refused has let go of places that the newer ones hide. When one of those is given back,
/// the hidden ones are held again.
#[test]
fn hidden_places_come_back() {
    let log = SlidingLog::new(Rate::new(2, Span::SECOND).unwrap(), true).unwrap();
    let at = |millis| Time::from_nanos(IN_2026).plus(Span::from_millis(millis));
    let mut state = Default::default();
    log.charge(&mut state, at(0), 1);
    let second = log.charge(&mut state, at(100), 1);
    log.refused(&mut state, at(200), 1);
    log.refund(&mut state, at(300), 1, second);
    assert!(log.check(&state, at(999), 1).is_err(), "the first and the refused one are held");
    assert!(log.check(&state, at(1_000), 1).is_ok() && log.check(&state, at(1_000), 2).is_err());
}
