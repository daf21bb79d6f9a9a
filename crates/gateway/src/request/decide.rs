//! How the limits of a request decide on it: here or in a store, in fair shares, in a slower lane.

use std::rc::Rc;

use sluicegate_limiter::Time;
use smallvec::SmallVec;

use crate::limit::{self, Ask, Decision, SlowerLane, Store};
use crate::request::limit_selection::LimitSelection;
#[cfg(doc)]
use crate::request::matching::Step;

impl<'s> LimitSelection<'s> {
    /// Decides by the counters in this process. With `queue`, a request that a leaky bucket delays takes a place in its queue.
    #[inline]
    pub fn decide(&self, now: Time, queue: bool) -> Decision {
        let mut decision = match self.is_divided() {
            false => limit::decide(&self.selected, queue),
            true => limit::decide_fairly(&self.selected, now, queue),
        };
        if !decision.admitted && self.has_slower_lane() {
            decision = self.decide_slower(decision, queue);
        }
        decision
    }

    /// Whether a limit that applies is divided in fair shares.
    #[inline]
    pub fn is_divided(&self) -> bool {
        self.selected.iter().any(|selected| selected.fair.is_some())
    }

    /// Whether a limit that applies has a slower lane.
    #[inline]
    fn has_slower_lane(&self) -> bool {
        self.selected.iter().any(|selected| selected.limit.penalty.is_some())
    }

    /// Whether a store counts some of the limits that apply.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.selected.iter().any(|selected| selected.ask.limit.shared.is_some())
    }

    /// The asks of the limits, for a decision that changes their times.
    pub fn asks_mut(&mut self) -> SmallVec<[&mut Ask<'s>; 2]> {
        self.selected.iter_mut().map(|selected| &mut selected.ask).collect()
    }

    #[cold]
    fn decide_slower(&self, refused: Decision, queue: bool) -> Decision {
        match SlowerLane::after(refused, &self.selected) {
            Err(decision) => *decision,
            Ok(lane) => {
                let decision = limit::decide(&lane.asks, queue);
                lane.decided(decision)
            }
        }
    }

    /// What the limits decide on the request; some of them in `store`, if there is one.
    pub async fn decide_on(&mut self, store: Option<&Rc<Store>>, now: Time) -> Decision {
        match store {
            Some(store) => self.decide_in_store(store, now).await,
            None => self.decide(now, true),
        }
    }

    async fn decide_in_store(&mut self, store: &Rc<Store>, now: Time) -> Decision {
        let decision = match self.is_divided() {
            false => limit::shared::decide(store, &mut self.asks_mut(), now).await,
            true => limit::decide_fairly_in_store(store, &self.selected, now).await,
        };
        match decision.admitted || !self.has_slower_lane() {
            true => decision,
            false => match SlowerLane::after(decision, &self.selected) {
                Err(decision) => *decision,
                Ok(mut lane) => {
                    // While the store answered, places of the lane have become free.
                    let (since, now) = (now, store.now());
                    let decision = {
                        let asks = lane.asks.iter_mut().map(|one| &mut one.ask);
                        let mut asks: SmallVec<[&mut Ask<'_>; 2]> = asks.collect();
                        asks.iter_mut().for_each(|ask| ask.renew(now));
                        limit::shared::decide_since(store, &mut asks, since, now).await
                    };
                    lane.decided(decision)
                }
            },
        }
    }

    /// The refusal by the counters of this process of a request that is [likely refused](Step::Refuse);
    /// `None` if its limits admit it after all. Then nothing is charged.
    pub fn refused_locally(&self, now: Time) -> Option<Decision> {
        let mut decision = limit::decide_for_now(&self.selected);
        if decision.admitted {
            decision.holds.undo(now);
            return None;
        }
        Some(decision)
    }

    /// The same if `store` decides on some of the limits.
    pub async fn refused(&mut self, store: Option<&Rc<Store>>, now: Time) -> Option<Decision> {
        Some(self.try_out(store, now).await).filter(|decision| !decision.admitted)
    }

    /// What the limits decide on the request now. Nothing is charged.
    pub async fn try_out(&mut self, store: Option<&Rc<Store>>, now: Time) -> Decision {
        let Some(store) = store else {
            let mut decision = limit::decide_for_now(&self.selected);
            if decision.admitted {
                decision.holds.undo(now);
            }
            return decision;
        };
        let mut asks = self.asks_mut();
        asks.iter_mut().for_each(|ask| ask.for_now = true);
        let mut decision = limit::shared::decide(store, &mut asks, now).await;
        asks.iter_mut().for_each(|ask| ask.for_now = false);
        if decision.admitted {
            decision.holds.undo(store.now());
        }
        decision
    }
}
