//! What a decision would be, without making it: the limits are evaluated on copies of the states.

use smallvec::SmallVec;

use super::ban_check::{BanCheck, BanChecks};
use super::decision::{all, evaluate};
use super::{Ask, Decision, RemoteBan, RemoteState};

/// The decision that [`decide`](crate::decide) would make now. Nothing is charged, no refusal is counted and no ban begins.
/// `remote` are the states that a store returned, one for each ask; where there is none, the state in this process counts. The
/// ask of such a limit has the time of the store.
pub fn preview<'a>(
    asks: &[impl AsRef<Ask<'a>>],
    remote: &[Option<(RemoteState, Option<RemoteBan>)>],
) -> Decision {
    let asks = all(asks);
    let remote = |index: usize| remote.get(index).and_then(Option::as_ref);
    let state = |(index, ask): (usize, &&Ask<'_>)| match remote(index) {
        Some((state, _)) => (index, state.clone()),
        None => (index, ask.limit.counters.copy(ask.key, ask.at, ask.limit.own_quota())),
    };
    let mut keys: SmallVec<[(usize, RemoteState); 2]> = asks.iter().enumerate().map(state).collect();
    let ban = |(index, ask): (usize, &&Ask<'_>)| match remote(index) {
        Some((_, Some(ban))) => BanCheck::there(Some(ban.clone())),
        _ => BanCheck::there(ask.limit.bans.as_ref().map(|bans| bans.copy(ask.key, ask.now))),
    };
    let mut bans: BanChecks<'_> = asks.iter().enumerate().map(ban).collect();
    evaluate(&asks, &mut keys, &mut bans, true, |_, _, _, _| {})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_limiter::{
        Ban, Concurrency, FixedWindow, LeakyBucket, Quota, Rate, SlidingLog, SlidingWindow, Span, Time,
        TokenBucket,
    };

    use super::*;
    use crate::ban::Bans;
    use crate::fixture::limit;
    use crate::{CountedLimit, Fingerprint, decide};

    fn quotas() -> [Quota; 7] {
        let rate = Rate::new(5, Span::from_secs(1)).unwrap();
        let window = |slices| SlidingWindow::new(rate, slices).unwrap();
        [
            Quota::TokenBucket(TokenBucket::new(rate, 7).unwrap(), rate, 7),
            Quota::LeakyBucket(LeakyBucket::new(rate, 4, Some(Span::from_millis(700))).unwrap(), rate, 4),
            Quota::FixedWindow(FixedWindow::new(rate), rate),
            Quota::SlidingLog(SlidingLog::new(rate, true).unwrap(), rate),
            Quota::SlidingWindow(window(3), rate),
            Quota::SlidingWindow(window(10).strict(), rate),
            Quota::Concurrency(Concurrency::new(3).unwrap(), 3),
        ]
    }

    fn what(decision: &Decision) -> String {
        let verdicts: Vec<_> =
            decision.verdicts.iter().map(|verdict| (verdict.answer, verdict.usage)).collect();
        format!("{} {:?} {verdicts:?}", decision.admitted, decision.delay)
    }

    /// Whatever has happened before, a preview says what the next decision is, and changes nothing.
    #[test]
    fn a_preview_is_the_next_decision() {
        let mut state = 9_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for (order, quota) in quotas().into_iter().enumerate() {
            let mut one = Arc::into_inner(limit(quota, 100, order as u64 * 2)).unwrap();
            let ban = Ban::new(3, Span::from_secs(5), Span::from_secs(2)).unwrap();
            one.bans = Some(Arc::new(Bans::new(ban, 100)));
            one.ban = Some(ban);
            let one = Arc::new(one);
            let mut other: CountedLimit =
                Arc::into_inner(limit(quotas()[0], 100, order as u64 * 2 + 1)).unwrap();
            other.enforced = order % 2 == 0;
            let other = Arc::new(other);
            let mut now = Time::from_nanos(1_795_000_000_000_000_000);
            let mut held = Vec::new();
            for step in 0..5_000 {
                now = now.plus(Span::from_millis(random(120)));
                let key = Fingerprint::from_hash((random(3) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let asks = [Ask::new(&one, key, 1 + random(2), now), Ask::new(&other, key, 1, now)];
                let previewed = what(&preview(&asks, &[]));
                assert_eq!(
                    previewed,
                    what(&preview(&asks, &[])),
                    "{quota:?}: step {step}: asking changes nothing"
                );
                let decision = decide(&asks, false);
                assert_eq!(previewed, what(&decision), "{quota:?}: step {step}");
                held.push(decision.holds);
                if held.len() > 4 {
                    let mut holds = held.swap_remove(random(5) as usize);
                    holds.give_up(now);
                    holds.settle(now, 0, 0);
                }
            }
        }
    }
}
