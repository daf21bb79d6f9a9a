//! Fair shares of a limit: whoever asks for less than the fair share is not refused because of others.

use std::rc::Rc;
use std::sync::Arc;

use sluicegate_counters::{Ask, Decision, KeyText, SettledCost, Verdict, decide, preview};
use sluicegate_counters_redis::{Store, shared_hash};
use sluicegate_fair_shares::{Answer, Consumer, Cost, Reserved};
use sluicegate_limiter::{Quota, Refusal, Span, Time};
use smallvec::SmallVec;

use super::shared;
use crate::fair_shares::FairShares;

/// The question of a request to the shares of one of its limits.
pub struct FairAsk<'s> {
    /// The index of the limit's ask.
    pub at: usize,
    /// The shares of that limit.
    pub shares: &'s Arc<FairShares>,
    /// Who asks.
    pub consumer: Consumer,
    /// The key of the consumer in full.
    pub text: KeyText,
}

/// What the shares say of a request. Dropping it gives back what was taken from them, unless the request is admitted: the client may
/// leave while a store is asked.
struct Answers<'a, 's> {
    fair: &'a [FairAsk<'s>],
    answers: SmallVec<[(Answer, Option<Reserved>); 1]>,
    /// The asks that their shares refuse, with the time to wait.
    refused: SmallVec<[(usize, Span); 1]>,
    admitted: bool,
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
pub fn decide_fairly(asks: &[Ask<'_>], fair: &[FairAsk<'_>], now: Time, queue: bool) -> Decision {
    let answers = match Answers::of(asks, fair, now, None) {
        Ok(answers) => answers,
        Err(refusal) => return *refusal,
    };
    let decision = match answers.refused.is_empty() {
        true => decide(asks, queue),
        false => decide(&answers.kept(asks), queue),
    };
    answers.finish(asks, decision)
}

/// The same if a store counts some of the limits.
pub async fn decide_fairly_in_store(
    store: &Rc<Store>,
    asks: &[Ask<'_>],
    fair: &[FairAsk<'_>],
    now: Time,
) -> Decision {
    let answers = match Answers::of(asks, fair, now, Some(store)) {
        Ok(answers) => answers,
        Err(refusal) => return *refusal,
    };
    let mut kept = answers.kept(asks);
    let decision = shared::decide(store, &mut kept, now).await;
    answers.finish(asks, decision)
}

/// Adds to a preview of a decision what fair shares would say.
pub fn preview_shares(asks: &[Ask<'_>], fair: &[FairAsk<'_>], now: Time, decision: &mut Decision) {
    for one in fair {
        let ask = &asks[one.at];
        let answer = one.shares.shares().preview(now, one.consumer, cost(ask));
        let verdict = &mut decision.verdicts[one.at];
        let left = answer.left(ask.limit.quota.capacity());
        if verdict.answer.is_ok() && verdict.usage.remaining < left {
            refuse(verdict, wait(answer));
            decision.admitted &= !ask.limit.enforced;
        }
    }
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

impl<'a, 's> Answers<'a, 's> {
    /// Asks the shares.
    ///
    /// # Errors
    /// The decision, if one of them refuses the request.
    fn of(
        asks: &[Ask<'_>],
        fair: &'a [FairAsk<'s>],
        now: Time,
        store: Option<&Store>,
    ) -> Result<Self, Box<Decision>> {
        let mut all = Self { fair, answers: SmallVec::new(), refused: SmallVec::new(), admitted: false };
        for one in fair {
            let ask = &asks[one.at];
            let name = || shared_hash(&one.text);
            let rate = capacity(&ask.limit.quota);
            let (answer, reserved) = {
                let mut shares = one.shares.shares();
                let answer = shares.ask(now, rate, one.consumer, cost(ask), name);
                let late = ask.limit.late_cost().is_some();
                let reserved = late.then(|| shares.reserved(one.consumer, ask.cost, &answer));
                (answer, reserved)
            };
            let left = answer.left(ask.limit.quota.capacity());
            let usage = || ask.limit.usage(ask.key, at(ask, store, now));
            let is_refused =
                left > 0 && usage().is_some_and(|usage| usage.remaining < left.saturating_add(ask.cost));
            all.answers.push((answer, reserved));
            if is_refused {
                one.shares.count_above();
                all.refused.push((one.at, wait(answer)));
            }
        }
        if !all.refused.iter().any(|(at, _)| asks[*at].limit.enforced) {
            return Ok(all);
        }
        let asks: SmallVec<[Ask<'_>; 2]> =
            asks.iter().map(|ask| Ask { at: at(ask, store, now), ..ask.clone() }).collect();
        let mut decision = preview(&asks, &[]);
        decision.admitted = false;
        decision.delay = Span::ZERO;
        all.mark(&mut decision);
        Err(Box::new(decision))
    }

    /// The asks without those that only report what they would refuse.
    fn kept<'b>(&self, asks: &[Ask<'b>]) -> SmallVec<[Ask<'b>; 2]> {
        let is_refused = |index: &usize| self.refused.iter().any(|(at, _)| at == index);
        asks.iter().enumerate().filter(|(index, _)| !is_refused(index)).map(|(_, ask)| ask.clone()).collect()
    }

    /// The decision about the kept asks becomes one about all of them.
    fn finish(mut self, asks: &[Ask<'_>], mut decision: Decision) -> Decision {
        if !self.refused.is_empty() && decision.verdicts.len() < asks.len() {
            let mut preview = preview(asks, &[]);
            let mut made = std::mem::take(&mut decision.verdicts).into_iter();
            for (index, verdict) in preview.verdicts.iter_mut().enumerate() {
                if !self.refused.iter().any(|(at, _)| *at == index)
                    && let Some(made) = made.next()
                {
                    *verdict = made;
                }
            }
            decision.verdicts = preview.verdicts;
            self.mark(&mut decision);
        }
        self.admitted = decision.admitted;
        if self.admitted {
            for (one, (_, reserved)) in self.fair.iter().zip(&self.answers) {
                if let Some(reserved) = *reserved {
                    let shares = Arc::clone(one.shares);
                    decision.holds.tell(asks[one.at].limit, Box::new(LateShare { shares, reserved }));
                }
            }
        }
        decision
    }

    fn mark(&self, decision: &mut Decision) {
        for (at, wait) in &self.refused {
            refuse(&mut decision.verdicts[*at], *wait);
        }
    }
}

impl Drop for Answers<'_, '_> {
    fn drop(&mut self) {
        if self.admitted {
            return;
        }
        for (one, (answer, _)) in self.fair.iter().zip(&self.answers) {
            if let Answer::Within(taken) = answer {
                one.shares.shares().give_back(*taken);
            }
        }
    }
}

/// The time on the clock that counts the limit.
fn at(ask: &Ask<'_>, store: Option<&Store>, now: Time) -> Time {
    let server = store.filter(|_| ask.limit.shared.is_some()).and_then(|store| store.server_of(ask, now));
    server.map_or(ask.at, |server| server.latest)
}
