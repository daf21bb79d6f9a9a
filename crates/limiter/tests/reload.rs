//! What a reload with other numbers does to a key: the debt that stands is carried over, and nothing else.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::checks::{admitted, drain, keeps_its_word, stay_alike};
use common::walk::{plans, walks};
use common::{IN_2026, cases};
use proptest::prelude::*;
use sluicegate_limiter::{Span, Time};

proptest! {
    #![proptest_config(cases(2_000))]

    /// A reload that changes nothing changes no later answer.
    #[test]
    fn the_same_quota_again_changes_nothing(plan in plans(), walk in walks(), later in walks()) {
        for mut key in plan.keys() {
            let end = walk.finish(&plan, &mut *key).last().unwrap().at;
            let mut reloaded = key.copy();
            reloaded.rescale(&plan, end);
            stay_alike(&mut *key, &mut *reloaded, &plan, &later, end)?;
        }
    }

    /// A token bucket that is half full stays half full when its rate and burst change; so does any other
    /// share.
    #[test]
    fn token_bucket_keeps_its_share(old in plans(), new in plans(), spent in any::<u64>()) {
        let mut bucket = old.timed_keys().swap_remove(0);
        let now = Time::from_nanos(IN_2026);
        let spent = spent % (old.burst + 1);
        bucket.charge(now, spent);
        bucket.rescale(&new, now);
        let share = u128::from(new.burst) * u128::from(old.burst - spent) / u128::from(old.burst);
        prop_assert_eq!(u128::from(bucket.usage(now).remaining), share);
    }

    /// As many requests stay in the queue of a leaky bucket when its rate changes, and leave at the new rate.
    #[test]
    fn leaky_bucket_keeps_its_queue(old in plans(), new in plans(), waiting in any::<u64>()) {
        let mut bucket = old.timed_keys().swap_remove(1);
        let now = Time::from_nanos(IN_2026);
        let waiting = waiting % (old.burst + 1);
        bucket.charge(now, waiting);
        bucket.rescale(&new, now);
        let drained = (u128::from(waiting) * u128::from(new.period())).div_ceil(u128::from(new.count()));
        let empty_in = Span::from_nanos(u64::try_from(drained).unwrap_or(u64::MAX));
        prop_assert_eq!(bucket.usage(now).reset, empty_in);
    }

    /// Windows keep what was spent in them, and places that are taken stay taken, when the quota changes.
    #[test]
    fn what_was_spent_stays_spent(old in plans(), new in plans(), walk in walks()) {
        for mut key in old.keys().drain(2..) {
            let answers = walk.finish(&old, &mut *key);
            let now = answers.last().unwrap().at;
            let held = key.usage(now);
            let mut spent = held.capacity - held.remaining;
            if key.name() == "sliding_log" {
                // Each place is held from the instant it was taken, for the new period.
                let shorter = old.rate.period().min(new.rate.period());
                spent = admitted(&answers).iter().filter(|a| a.at.plus(shorter) > now).map(|a| a.cost).sum();
            } else if key.name().starts_with("sliding_log") {
                continue; // what was refused is held too, and a full log forgets what decides nothing
            } else if key.name() == "sliding_window" && old.strict != new.strict {
                continue; // the same counts, otherwise weighted
            }
            key.rescale(&new, now);
            let expected = key.capacity().saturating_sub(spent);
            prop_assert_eq!(key.usage(now).remaining, expected, "{}", key.name());
        }
    }

    /// After reloads the answers are as true as ever, also where more is owed than the new quota allows: who
    /// is told to come back is admitted then and not earlier, and what is said to remain is what is admitted.
    #[test]
    fn the_promises_hold_after_a_reload(quotas in proptest::collection::vec(plans(), 2..4), walk in walks()) {
        for mut key in quotas[0].keys() {
            let mut walk = walk.clone();
            for (old, new) in quotas.iter().zip(&quotas[1..]) {
                let now = walk.finish(old, &mut *key).last().unwrap().at;
                key.rescale(new, now);
                let remaining = key.usage(now).remaining;
                prop_assert!(remaining <= key.capacity(), "{}", key.name());
                if remaining <= 100 {
                    prop_assert_eq!(drain(&mut *key.copy(), now, 1), remaining, "{}", key.name());
                }
                walk.start = now;
                walk.lead(new, &mut *key.copy(), keeps_its_word)?;
            }
        }
    }
}
