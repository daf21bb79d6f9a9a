//! Bans against a slow model that remembers every request there ever was.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{IN_2026, cases};
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_limiter::{Algorithm, Ban, MAX_BAN_AFTER, Refusal, Span, Strikes, Time};

/// All bans that began, and all refusals that counted, since the beginning.
#[derive(Default)]
struct Model {
    refusals: Vec<u64>,
    bans: Vec<u64>,
}

impl Model {
    fn left(&self, ban: &Ban, now: u64) -> Option<Span> {
        let ends = self.bans.iter().map(|begun| begun + ban.span().as_nanos());
        ends.filter(|end| *end > now).max().map(|end| Span::from_nanos(end - now))
    }

    /// The refusals since the last ban that are younger than `within`.
    fn counting(&self, ban: &Ban, now: u64) -> u64 {
        let young = self.refusals.iter().filter(|at| now - **at < ban.within().as_nanos());
        young.count() as u64
    }

    fn refused(&mut self, ban: &Ban, now: u64) {
        if self.left(ban, now).is_some() {
            return;
        }
        self.refusals.push(now);
        if self.counting(ban, now) >= ban.after() {
            self.bans.push(now);
            self.refusals.clear();
        }
    }
}

fn bans() -> impl Strategy<Value = Ban> {
    (prop_oneof![Just(1), 2..8_u64, 8..40_u64], 1..100_u64, 1..300_u64).prop_map(|(after, within, span)| {
        Ban::new(after, Span::from_nanos(within), Span::from_nanos(span)).unwrap()
    })
}

/// How long until the next request, in nanoseconds, and whether the limit refuses it.
fn walks() -> impl Strategy<Value = Vec<(u64, bool)>> {
    vec((prop_oneof![6 => 0..12_u64, 1 => 0..400_u64], prop::bool::weighted(0.8)), 1..300)
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// The refusal that is the N-th within W begins a ban, and no other does; it ends when it was said to.
    #[test]
    fn a_ban_begins_and_ends_as_the_model_says(ban in bans(), walk in walks()) {
        let (mut strikes, mut model) = (Strikes::default(), Model::default());
        let mut now = IN_2026;
        for (wait, refused) in walk {
            now += wait;
            let at = Time::from_nanos(now);
            let left = model.left(&ban, now);
            prop_assert_eq!(ban.left(&strikes, at), left);
            prop_assert_eq!(ban.check(&strikes, at, 1).err(), left.map(Refusal::Banned));
            if let Some(left) = left {
                prop_assert_eq!(ban.left(&strikes, at.plus(left)), None, "over exactly then");
            }
            if refused {
                ban.refused(&mut strikes, at, 1);
                model.refused(&ban, now);
            }
            let usage = ban.usage(&strikes, at);
            prop_assert_eq!(usage.remaining == 0, model.left(&ban, now).is_some());
            if usage.remaining > 0 {
                prop_assert_eq!(usage.remaining, ban.after() - model.counting(&ban, now));
            }
            let idle = model.left(&ban, now).is_none() && model.counting(&ban, now) == 0;
            prop_assert_eq!(ban.is_idle(&strikes, at), idle);
            prop_assert_eq!(ban.is_idle(&strikes, at.plus(usage.reset)), true);
        }
    }

    /// To forget a key that is idle changes nothing later.
    #[test]
    fn an_idle_key_can_be_forgotten(ban in bans(), walk in walks(), later in walks()) {
        let mut strikes = Strikes::default();
        let mut now = Time::from_nanos(IN_2026);
        for (wait, _) in walk {
            now = now.plus(Span::from_nanos(wait));
            ban.refused(&mut strikes, now, 1);
        }
        now = now.plus(ban.usage(&strikes, now).reset);
        let mut fresh = Strikes::default();
        for (wait, refused) in later {
            now = now.plus(Span::from_nanos(wait));
            prop_assert_eq!(ban.left(&strikes, now), ban.left(&fresh, now));
            if refused {
                ban.refused(&mut strikes, now, 1);
                ban.refused(&mut fresh, now, 1);
            }
        }
    }
}

#[test]
fn a_ban_waits_for_a_number_of_refusals_that_can_be_remembered() {
    let ban = |after| Ban::new(after, Span::SECOND, Span::SECOND);
    assert!(ban(0).is_none() && ban(MAX_BAN_AFTER + 1).is_none() && ban(MAX_BAN_AFTER).is_some());
}

/// A thread that read the clock early and came late.
#[test]
fn a_late_refusal_counts_as_the_last_one() {
    let ban = Ban::new(3, Span::from_nanos(10), Span::SECOND).unwrap();
    let mut strikes = Strikes::default();
    for at in [100, 95, 109] {
        assert_eq!(ban.left(&strikes, Time::from_nanos(at)), None);
        ban.refused(&mut strikes, Time::from_nanos(at), 1);
    }
    assert_eq!(ban.left(&strikes, Time::from_nanos(109)), Some(Span::SECOND));
}

/// A reload ends no ban and prolongs none; only a shorter one shortens it.
#[test]
fn a_reload_keeps_a_ban() {
    let ban = |seconds| Ban::new(1, Span::ZERO, Span::from_secs(seconds)).unwrap();
    let now = Time::from_nanos(IN_2026);
    for (new, left) in [(60, 60), (600, 60), (20, 20)] {
        let mut strikes = Strikes::default();
        ban(60).refused(&mut strikes, now, 1);
        ban(new).rescale(&ban(60), &mut strikes, now);
        assert_eq!(ban(new).left(&strikes, now), Some(Span::from_secs(left)));
    }
}
