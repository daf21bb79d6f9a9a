//! Keys with quotas of their own, compared with a map of quotas and states.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::collections::HashMap;

use proptest::prelude::*;
use sluicegate_limiter::{FixedWindow, Rate, SlidingLog, SlidingWindow, Span, Time, TokenBucket};

use super::super::state_codec::StateCodec;
use super::Table;
use crate::Fingerprint;

const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

/// One request: the key, the quota it has now (the first is that of the table), the time since the last one, the cost, and
/// whether the table gets another quota before.
type Step = (u64, usize, u64, u64, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (1..6_u64, 0..4_usize, 0..3_000_u64, 1..4_u64, prop::bool::weighted(0.05));
    prop::collection::vec(step, 1..200)
}

/// Runs the steps on a table and on a map that converts a state whenever its quota changes.
fn compare<A: StateCodec + Copy + std::fmt::Debug>(
    quotas: &[A; 5],
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let table = Table::new(quotas[0], 1_000);
    let (mut of_table, mut now) = (0, NOW);
    let mut known: HashMap<u64, (A, A::State)> = HashMap::new();
    let mut own_keys: HashMap<u64, usize> = HashMap::new();
    for (key, quota, later, cost, reloads) in steps {
        now = now.plus(Span::from_millis(later));
        if reloads {
            of_table = if of_table == 0 { 4 } else { 0 };
            table.reconfigure(&quotas[of_table], 1_000, now);
            for (key, (algorithm, state)) in &mut known {
                if !own_keys.contains_key(key) {
                    quotas[of_table].rescale(algorithm, state, now);
                    *algorithm = quotas[of_table];
                }
            }
        }
        let own = (quota > 0).then(|| quotas[quota]);
        match own {
            Some(_) => _ = own_keys.insert(key, quota),
            None => _ = own_keys.remove(&key),
        }
        let wanted = own.unwrap_or(quotas[of_table]);
        let (algorithm, state) = known.entry(key).or_insert_with(|| (wanted, A::State::default()));
        if *algorithm != wanted {
            wanted.rescale(algorithm, state, now);
            *algorithm = wanted;
        }
        let fingerprint = Fingerprint::from_hash(key << 29);
        let refusal = table.refusal(fingerprint, now, cost, own.as_ref());
        let (answer, usage) = wanted.acquire(state, now, cost);
        prop_assert_eq!(refusal, answer.err(), "without a charge");
        let asked = table.acquire(fingerprint, now, cost, own.as_ref());
        prop_assert_eq!(asked.answer, answer.map(|(delay, _)| delay));
        prop_assert_eq!(asked.usage, usage);
        prop_assert_eq!(table.keys(now), known.values().filter(|(a, s)| !a.is_idle(s, now)).count());
        prop_assert!(table.entries() <= known.len());
    }
    let later = now.plus(Span::from_secs(1_000_000));
    (0..50).for_each(|_| table.make_room(later));
    prop_assert_eq!(table.entries(), 0, "who owes nothing takes no memory");
    Ok(())
}

fn rate(count: u64, seconds: u64) -> Rate {
    Rate::new(count, Span::from_secs(seconds)).unwrap()
}

/// Five quotas: few and many, slow and fast.
fn rates() -> [Rate; 5] {
    [rate(5, 10), rate(50, 10), rate(3, 7), rate(1_000, 3_600), rate(20, 30)]
}

proptest! {
    #[test]
    fn buckets(steps in steps()) {
        compare(&rates().map(|rate| TokenBucket::new(rate, rate.count() / 2 + 1).unwrap()), steps)?;
    }

    #[test]
    fn windows(steps in steps()) {
        compare(&rates().map(FixedWindow::new), steps)?;
    }

    #[test]
    fn sliding_windows(steps in steps()) {
        compare(&rates().map(|rate| SlidingWindow::new(rate, 5).unwrap()), steps)?;
    }

    #[test]
    fn logs(steps in steps()) {
        compare(&rates().map(|rate| SlidingLog::new(rate, false).unwrap()), steps)?;
    }
}
