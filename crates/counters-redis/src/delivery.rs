//! A decision on its way from the call to the request that waits for it.

use std::rc::Rc;

use sluicegate_counters::Decision;
use sluicegate_limiter::Receipt;
use smallvec::SmallVec;

use super::call::Items;
use super::store::Store;

/// A charge that the request does not hold, because it is final once the request has its decision: the place of the limit in the
/// batch, the receipt, and the holder.
pub(super) type FinalCharge = (usize, Receipt, [u8; 8]);

/// A decision that no request has taken yet. If its client has left, dropping it gives back what the store has charged.
pub(super) struct Delivery {
    decision: Option<Decision>,
    charges: SmallVec<[FinalCharge; 2]>,
    items: Rc<Items>,
    store: Rc<Store>,
}

impl Delivery {
    pub(super) fn new(
        store: &Rc<Store>,
        items: &Rc<Items>,
        decision: Decision,
        charges: SmallVec<[FinalCharge; 2]>,
    ) -> Self {
        Self { decision: Some(decision), charges, items: Rc::clone(items), store: Rc::clone(store) }
    }

    /// The request takes its decision.
    pub(super) fn take(mut self) -> Option<Decision> {
        self.decision.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(mut decision) = self.decision.take() else { return };
        decision.holds.undo(self.store.clock.now());
        for (item, receipt, holder) in self.charges.drain(..) {
            let item = &self.items[item];
            self.store.refund(&item.key, item.cost, (receipt, holder));
        }
    }
}
