//! Attempts that this gateway holds. Other gateways make those anew that it does not renew in time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::{Id, LEASE, QueueState};
use sluicegate_base::clock::Clock;

/// How often attempts are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// An attempt is given up so long before another gateway may make it: the clocks of two machines run alike, but not equally.
const MARGIN: Duration = Duration::from_secs(3);

/// The attempts that a gateway holds.
#[derive(Default)]
pub(super) struct Held(RefCell<HashMap<(Id, u64), Rc<Hold>>>);

/// One attempt.
pub(super) struct Hold {
    /// Until when nobody else makes it; `None` for ever.
    until: Cell<Option<Instant>>,
}

impl Held {
    /// Holds an attempt that was claimed by a call that began at `begun`.
    pub(super) fn hold(&self, claim: (Id, u64), state: &QueueState, begun: Instant) -> Rc<Hold> {
        let hold = Rc::new(Hold { until: Cell::new(state.is_shared().then(|| begun + LEASE - MARGIN)) });
        self.0.borrow_mut().insert(claim, Rc::clone(&hold));
        hold
    }

    /// The attempt has ended.
    pub(super) fn release(&self, claim: (Id, u64)) {
        self.0.borrow_mut().remove(&claim);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Renews all of them, again and again.
    pub(super) async fn keep(&self, state: &QueueState, clock: Clock) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let claims: Vec<(Id, u64)> = self.0.borrow().keys().copied().collect();
            if claims.is_empty() {
                continue;
            }
            let begun = instant(clock);
            let Ok(renewed) = state.renew(&claims).await else { continue }; // those in need are given up in time
            let holds = self.0.borrow();
            for (claim, is_held) in claims.iter().zip(renewed) {
                if let Some(hold) = holds.get(claim) {
                    hold.until.set(Some(if is_held { begun + LEASE - MARGIN } else { begun }));
                }
            }
        }
    }
}

impl Hold {
    /// Returns when the attempt is not held any more.
    pub(super) async fn lost(&self, clock: Clock) {
        loop {
            let now = instant(clock);
            match self.until.get() {
                Some(until) if until <= now => return,
                Some(until) => tokio::time::sleep_until(until.min(now + RENEW_EVERY)).await,
                None => return std::future::pending().await,
            }
        }
    }
}

/// Now, on the clock of the timers.
pub(super) fn instant(clock: Clock) -> Instant {
    clock.instant(clock.now())
}
