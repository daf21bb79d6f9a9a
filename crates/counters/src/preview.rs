//! What a decision would be, without making it: the limits are evaluated on copies of the states.

use smallvec::SmallVec;

use super::ban::{BanCheck, BanChecks};
use super::decision::evaluate;
use super::{Ask, Decision, RemoteBan, RemoteState};

/// The decision that [`decide`](crate::decide) would make now. Nothing is charged, no refusal is counted and no ban begins.
/// `told` are the states that a store returned, one for each ask; where there is none, the state in this process counts. The
/// ask of such a limit has the time of the store.
pub fn preview(asks: &[Ask<'_>], told: &[Option<(RemoteState, Option<RemoteBan>)>]) -> Decision {
    let told = |index: usize| told.get(index).and_then(Option::as_ref);
    let state = |(index, ask): (usize, &Ask<'_>)| match told(index) {
        Some((state, _)) => (index, state.clone()),
        None => (index, ask.limit.counters.copy(ask.key, ask.at, ask.limit.own_quota())),
    };
    let mut keys: SmallVec<[(usize, RemoteState); 2]> = asks.iter().enumerate().map(state).collect();
    let ban = |(index, ask): (usize, &Ask<'_>)| match told(index) {
        Some((_, Some(ban))) => BanCheck::there(Some(ban.clone())),
        _ => BanCheck::there(ask.limit.bans.as_ref().map(|bans| bans.copy(ask.key, ask.now))),
    };
    let mut bans: BanChecks<'_> = asks.iter().enumerate().map(ban).collect();
    evaluate(asks, &mut keys, &mut bans, true, |_, _, _, _| {})
}
