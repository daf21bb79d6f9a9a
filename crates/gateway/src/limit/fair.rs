//! Fair shares of a limit: whoever asks for less than the fair share is not refused because of others.

use std::rc::Rc;
use std::sync::Arc;

use sluicegate_counters::{Ask, Decision, SettledCost, Verdict, decide, preview};
use sluicegate_counters_redis::{Store, shared_hash};
use sluicegate_fair_shares::{Answer, Cost, Reserved};
use sluicegate_limiter::{Quota, Refusal, Span, Time};
use smallvec::SmallVec;

use super::{FairAsk, SelectedLimit, shared};
use sluicegate_upstream::fair_shares::FairShares;

/// What the shares say of a request. Dropping it gives back what was taken from them, unless the request is admitted: the client may
/// leave while a store is asked.
struct Answers<'m, 's> {
    answers: SmallVec<[ShareAnswer<'m, 's>; 1]>,
    admitted: bool,
}

/// What the shares of one limit say.
struct ShareAnswer<'m, 's> {
    /// The index of the limit among those of the request.
    at: usize,
    ask: &'m Ask<'s>,
    shares: &'s Arc<FairShares>,
    answer: Answer,
    reserved: Option<Reserved>,
    /// The time to wait, if the shares refuse the request.
    refused: Option<Span>,
}

/// What a request takes of the share of its consumer, until its cost is known.
struct LateShare {
    shares: Arc<FairShares>,
    reserved: Reserved,
}

impl SettledCost for LateShare {
    fn settled(&self, cost: u64) {
        self.shares.shares().settle(self.reserved, cost);
    }
}

/// What a request costs the share of its consumer.
fn cost(ask: &Ask<'_>) -> Cost {
    match ask.limit.late_cost() {
        None => Cost::Known(ask.cost),
        Some(_) => Cost::Late(ask.cost),
    }
}

/// The rate of a bucket in millionths of a token per second.
pub fn capacity(quota: &Quota) -> u64 {
    let Quota::TokenBucket(_, rate, _) = quota else { return u64::MAX };
    let micros = u128::from(rate.count()) * 1_000_000 * 1_000_000_000 / u128::from(rate.period().as_nanos());
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// Decides by the counters in this process, and by fair shares. With `queue` as in [`decide`].
pub fn decide_fairly(selected: &[SelectedLimit<'_>], now: Time, queue: bool) -> Decision {
    let answers = match Answers::of(selected, now, None) {
        Ok(answers) => answers,
        Err(refusal) => return *refusal,
    };
    let decision = decide(&answers.kept(selected), queue);
    answers.finish(selected, decision)
}

/// The same if a store counts some of the limits.
pub async fn decide_fairly_in_store(
    store: &Rc<Store>,
    selected: &[SelectedLimit<'_>],
    now: Time,
) -> Decision {
    let answers = match Answers::of(selected, now, Some(store)) {
        Ok(answers) => answers,
        Err(refusal) => return *refusal,
    };
    let mut kept: SmallVec<[Ask<'_>; 2]> = answers.kept(selected).into_iter().cloned().collect();
    let mut kept: SmallVec<[&mut Ask<'_>; 2]> = kept.iter_mut().collect();
    let decision = shared::decide(store, &mut kept, now).await;
    answers.finish(selected, decision)
}

/// Adds to a preview of a decision what fair shares would say.
pub fn preview_shares(selected: &[SelectedLimit<'_>], now: Time, decision: &mut Decision) {
    for (at, ask, fair) in divided(selected) {
        let answer = fair.shares.shares().preview(now, fair.consumer, cost(ask));
        let verdict = &mut decision.verdicts[at];
        let left = answer.left(ask.limit.quota.capacity());
        if verdict.answer.is_ok() && verdict.usage.remaining < left {
            refuse(verdict, wait(answer));
            decision.admitted &= !ask.limit.enforced;
        }
    }
}

/// The limits with fair shares, with their index.
fn divided<'m, 's>(
    selected: &'m [SelectedLimit<'s>],
) -> impl Iterator<Item = (usize, &'m Ask<'s>, &'m FairAsk<'s>)> {
    let all = selected.iter().enumerate();
    all.filter_map(|(at, selected)| Some((at, &selected.ask, selected.fair.as_deref()?)))
}

/// The time after which a consumer that was refused may try again.
fn wait(answer: Answer) -> Span {
    match answer {
        Answer::Above(wait) => wait,
        Answer::Within(_) => Span::SECOND, // until the others have what they need
    }
}

fn refuse(verdict: &mut Verdict, wait: Span) {
    verdict.answer = Err(Refusal::Until(wait));
    (verdict.usage.remaining, verdict.usage.reset) = (0, wait);
}

impl<'m, 's> Answers<'m, 's> {
    /// Asks the shares.
    ///
    /// # Errors
    /// The decision, if one of them refuses the request.
    fn of(
        selected: &'m [SelectedLimit<'s>],
        now: Time,
        store: Option<&Store>,
    ) -> Result<Self, Box<Decision>> {
        let mut all = Self { answers: SmallVec::new(), admitted: false };
        for (at, ask, fair) in divided(selected) {
            let name = || shared_hash(&fair.text);
            let rate = capacity(&ask.limit.quota);
            let (answer, reserved) = {
                let mut shares = fair.shares.shares();
                let answer = shares.ask(now, rate, fair.consumer, cost(ask), name);
                let late = ask.limit.late_cost().is_some();
                let reserved = late.then(|| shares.reserved(fair.consumer, ask.cost, &answer));
                (answer, reserved)
            };
            let left = answer.left(ask.limit.quota.capacity());
            let usage = || ask.limit.usage(ask.key, time_of(ask, store, now));
            let is_refused =
                left > 0 && usage().is_some_and(|usage| usage.remaining < left.saturating_add(ask.cost));
            let refused = is_refused.then(|| wait(answer));
            if is_refused {
                fair.shares.count_above();
            }
            all.answers.push(ShareAnswer { at, ask, shares: fair.shares, answer, reserved, refused });
        }
        if !all.answers.iter().any(|one| one.refused.is_some() && one.ask.limit.enforced) {
            return Ok(all);
        }
        let asks = selected.iter().map(|one| {
            let mut ask = one.ask.clone();
            ask.at = time_of(&one.ask, store, now);
            ask
        });
        let mut decision = preview(&asks.collect::<SmallVec<[Ask<'_>; 2]>>(), &[]);
        decision.admitted = false;
        decision.delay = Span::ZERO;
        all.mark(&mut decision);
        Err(Box::new(decision))
    }

    /// Whether the shares refuse the limit at an index.
    fn refuses(&self, at: usize) -> bool {
        self.answers.iter().any(|one| one.at == at && one.refused.is_some())
    }

    /// The asks without those that only report what their shares would refuse.
    fn kept(&self, selected: &'m [SelectedLimit<'s>]) -> SmallVec<[&'m Ask<'s>; 2]> {
        let kept = selected.iter().enumerate().filter(|(at, _)| !self.refuses(*at));
        kept.map(|(_, one)| &one.ask).collect()
    }

    /// The decision about the kept asks becomes one about all of them.
    fn finish(mut self, selected: &[SelectedLimit<'_>], mut decision: Decision) -> Decision {
        if decision.verdicts.len() < selected.len() && self.answers.iter().any(|one| one.refused.is_some()) {
            let mut verdicts = preview(selected, &[]).verdicts;
            let mut made = std::mem::take(&mut decision.verdicts).into_iter();
            for (at, verdict) in verdicts.iter_mut().enumerate() {
                if !self.refuses(at)
                    && let Some(made) = made.next()
                {
                    *verdict = made;
                }
            }
            decision.verdicts = verdicts;
            self.mark(&mut decision);
        }
        self.admitted = decision.admitted;
        if self.admitted {
            for ShareAnswer { ask, shares, reserved, .. } in &self.answers {
                if let Some(reserved) = *reserved {
                    let shares = Arc::clone(shares);
                    decision.holds.tell(ask.limit, Box::new(LateShare { shares, reserved }));
                }
            }
        }
        decision
    }

    fn mark(&self, decision: &mut Decision) {
        for one in &self.answers {
            if let Some(wait) = one.refused {
                refuse(&mut decision.verdicts[one.at], wait);
            }
        }
    }
}

impl Drop for Answers<'_, '_> {
    fn drop(&mut self) {
        if self.admitted {
            return;
        }
        for one in &self.answers {
            if let Answer::Within(taken) = one.answer {
                one.shares.shares().give_back(taken);
            }
        }
    }
}

/// The time on the clock that counts the limit.
fn time_of(ask: &Ask<'_>, store: Option<&Store>, now: Time) -> Time {
    let server = store.filter(|_| ask.limit.shared.is_some()).and_then(|store| store.server_of(ask, now));
    server.map_or(ask.at, |server| server.latest)
}
