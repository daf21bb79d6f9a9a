//! From the state that the store found to what each request is told.

use sluicegate_limiter::{Receipt, Span, Time};
use smallvec::SmallVec;

use super::call::Item;
use super::remote::RemoteKey;
use crate::limit::ban::{Bar, Bars, RemoteBan};
use crate::limit::{Ask, Decision, settle};

/// What one call decided: the same request so many times over, one after the other, at one instant.
pub(super) struct Outcome {
    /// The items of the flight that this call was about.
    pub(super) items: SmallVec<[usize; 2]>,
    /// The decision about each request.
    pub(super) decisions: Vec<Decision>,
    /// What each of them was charged.
    pub(super) charges: Vec<Charge>,
    /// The states that they left behind.
    pub(super) left: SmallVec<[RemoteKey; 2]>,
    /// The bans that they left behind, and whose they are: an item of the flight.
    pub(super) bans: Vec<(usize, RemoteBan)>,
    /// Whom the server took for the holder of places.
    pub(super) holder: [u8; 8],
    /// The server's time.
    pub(super) now: Time,
}

/// One charge of one request.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    /// The request, by its place in the call.
    pub(super) rider: usize,
    /// The limit, by its place in the flight.
    pub(super) item: usize,
    /// How long it is to be held.
    pub(super) delay: Span,
    pub(super) receipt: Receipt,
}

impl Outcome {
    /// Decides what the script has decided, from the states before it.
    pub(super) fn new(
        all: &[Item],
        items: SmallVec<[usize; 2]>,
        (states, bans): (SmallVec<[RemoteKey; 2]>, Vec<RemoteBan>),
        riders: usize,
        holder: [u8; 8],
        now: Time,
    ) -> Self {
        let asks: SmallVec<[Ask<'_>; 2]> = items
            .iter()
            .map(|at| &all[*at])
            .map(|item| Ask::new(&item.limit, item.key, item.cost, now))
            .collect();
        let mut keys: SmallVec<[(usize, RemoteKey); 2]> = states.into_iter().enumerate().collect();
        let mut bans = bans.into_iter();
        let told = |at: &usize| all[*at].limit.config.ban.and_then(|_| bans.next());
        let mut bars: Bars<'_> = items.iter().map(told).map(Bar::there).collect();
        let mut charges = Vec::with_capacity(riders);
        let decisions = (0..riders)
            .map(|rider| {
                settle(&asks, &mut keys, &mut bars, true, |index, _, delay, receipt| {
                    charges.push(Charge { rider, item: items[index], delay, receipt });
                })
            })
            .collect();
        let left = keys.into_iter().map(|(_, key)| key).collect();
        let told = items.iter().zip(bars).filter_map(|(item, bar)| match bar {
            Bar::There(told) => Some((*item, told)),
            _ => None,
        });
        let bans = told.collect();
        Self { items, bans, decisions, charges, left, holder, now }
    }

    /// The requests that were admitted: the first ones, because they are all alike.
    pub(super) fn admitted(&self) -> usize {
        self.decisions.iter().take_while(|decision| decision.admitted).count()
    }

    /// For each limit what the requests from `first` on were charged in all, and the last receipt.
    pub(super) fn charged_from(&self, all: &[Item], first: usize) -> SmallVec<[(usize, u64, Receipt); 2]> {
        let of = |item: &usize| {
            let mut charges =
                self.charges.iter().filter(|charge| charge.item == *item && charge.rider >= first);
            let last = charges.next_back()?.receipt;
            Some((*item, all[*item].cost.saturating_mul(charges.count() as u64 + 1), last))
        };
        self.items.iter().filter_map(of).collect()
    }
}
