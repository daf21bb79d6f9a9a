//! Computes the decision about each request from the states that a script returned.

use sluicegate_counters::{Ask, BanCheck, Decision, RemoteBan, RemoteState, evaluate};
use sluicegate_limiter::{Receipt, Refusal, Span, Time};
use smallvec::SmallVec;

use super::item::Item;

/// The result of one call: decisions about equal requests, one after the other, at one instant.
pub(super) struct Outcome {
    /// The items of the batch in this call.
    pub(super) items: SmallVec<[usize; 2]>,
    /// The decision about each request.
    pub(super) decisions: Vec<Decision>,
    /// The charges of the requests.
    pub(super) charges: Vec<Charge>,
    /// The states after all requests.
    pub(super) left: SmallVec<[RemoteState; 2]>,
    /// The bans after all requests, each with its item of the batch.
    pub(super) bans: Vec<(usize, RemoteBan)>,
    /// The holder of the leases.
    pub(super) holder: [u8; 8],
    /// The server's time.
    pub(super) now: Time,
    /// The numbers of requests that the script and the core admit, if they differ.
    pub(super) disagreement: Option<(usize, usize)>,
}

/// One charge of one request.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    /// The request, by its place in the call.
    pub(super) request: usize,
    /// The limit, by its place in the batch.
    pub(super) item: usize,
    /// The delay of the request.
    pub(super) delay: Span,
    pub(super) receipt: Receipt,
}

impl Outcome {
    /// Repeats the decisions of the script from the states before it. At most as many requests are admitted as the script
    /// has charged.
    pub(super) fn new(
        all: &[Item],
        items: SmallVec<[usize; 2]>,
        (states, bans): (SmallVec<[RemoteState; 2]>, Vec<RemoteBan>),
        (requests, charged): (usize, usize),
        holder: [u8; 8],
        now: Time,
    ) -> Self {
        let asks: SmallVec<[Ask<'_>; 2]> = items
            .iter()
            .map(|at| &all[*at])
            .map(|item| Ask::new(&item.key.limit, item.key.key, item.cost, now))
            .collect();
        let mut keys: SmallVec<[(usize, RemoteState); 2]> = states.into_iter().enumerate().collect();
        let mut bans = bans.into_iter();
        let remote_ban = |at: &usize| all[*at].key.limit.ban.and_then(|_| bans.next());
        let mut ban_checks: SmallVec<[BanCheck<'_>; 2]> =
            items.iter().map(remote_ban).map(BanCheck::there).collect();
        let mut charges = Vec::with_capacity(requests);
        let mut decisions: Vec<Decision> = (0..requests)
            .map(|request| {
                evaluate(&asks, &mut keys, &mut ban_checks, true, |index, _, delay, receipt| {
                    charges.push(Charge { request, item: items[index], delay, receipt });
                })
            })
            .collect();
        let core = decisions.iter().take_while(|decision| decision.admitted).count();
        if core > charged {
            charges.retain(|charge| charge.request < charged);
            decisions[charged..core].iter_mut().for_each(|decision| refuse(&asks, decision));
        }
        let disagreement = (core != charged).then_some((charged, core));
        let left = keys.into_iter().map(|(_, key)| key).collect();
        let remote_ban = items.iter().zip(ban_checks).filter_map(|(item, bar)| match bar {
            BanCheck::There(remote_ban) => Some((*item, remote_ban)),
            _ => None,
        });
        let bans = remote_ban.collect();
        Self { items, bans, decisions, charges, left, holder, now, disagreement }
    }

    /// The number of admitted requests: the first ones, because all are equal.
    pub(super) fn admitted(&self) -> usize {
        self.decisions.iter().take_while(|decision| decision.admitted).count()
    }

    /// For each limit the sum of the charges of the requests from `first` on, and the last receipt.
    pub(super) fn charged_from(&self, all: &[Item], first: usize) -> SmallVec<[(usize, u64, Receipt); 2]> {
        let of = |item: &usize| {
            let mut charges =
                self.charges.iter().filter(|charge| charge.item == *item && charge.request >= first);
            let last = charges.next_back()?.receipt;
            Some((*item, all[*item].cost.saturating_mul(charges.count() as u64 + 1), last))
        };
        self.items.iter().filter_map(of).collect()
    }
}

/// Refuses a request that every limit would admit, because the store has not charged it.
fn refuse(asks: &[Ask<'_>], decision: &mut Decision) {
    decision.admitted = false;
    let enforced = asks.iter().zip(&mut decision.verdicts).find(|(ask, _)| ask.limit.enforced);
    if let Some((_, verdict)) = enforced {
        verdict.answer = Err(Refusal::Until(Span::SECOND)); // the time is not known
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::{Concurrency, InFlight, Quota};
    use smallvec::smallvec;

    use super::*;
    use crate::fixture::limit;
    use crate::key_name::{StoreKey, Tag};
    use sluicegate_counters::{Fingerprint, KeyText};

    /// The outcome of three requests, of which the core admits two.
    fn outcome(charged: usize) -> Outcome {
        let quota = Quota::Concurrency(Concurrency::new(2).expect("a quota"), 2);
        let key = StoreKey {
            limit: std::sync::Arc::new(limit(quota, 10, 1)),
            key: Fingerprint::from_hash(7),
            tag: Tag::of(&KeyText::new()),
        };
        let item = Item { key, cost: 1, base: 1, for_now: false, many: false };
        let Quota::Concurrency(places, _) = quota else { unreachable!("it is one") };
        let state = RemoteState::Concurrency(places, InFlight::default(), 0);
        Outcome::new(&[item], smallvec![0], (smallvec![state], Vec::new()), (3, charged), [0; 8], Time::EPOCH)
    }

    #[test]
    fn no_more_are_admitted_than_were_charged() {
        assert_eq!((outcome(2).admitted(), outcome(2).disagreement), (2, None));
        let fewer = outcome(1);
        assert_eq!((fewer.admitted(), fewer.disagreement), (1, Some((1, 2))));
        assert_eq!(fewer.charges.len(), 1);
        assert!(
            fewer.decisions[1].verdicts[0].answer.is_err(),
            "the verdict of a refused request is a refusal"
        );
        let more = outcome(3);
        assert_eq!((more.admitted(), more.disagreement), (2, Some((3, 2))));
    }
}
