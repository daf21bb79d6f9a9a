//! The attempts that this gateway holds. If it does not renew one in time, another gateway sends the request again.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::{Id, LEASE, QueueState};
use sluicegate_base::clock::Clock;

/// How often attempts are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How long before its claim ends an attempt is given up: the clocks of two machines do not run equally fast.
const MARGIN: Duration = Duration::from_secs(3);

/// The attempts that a gateway holds.
#[derive(Default)]
pub(super) struct Held(RefCell<HashMap<(Id, u64), Rc<Hold>>>);

/// One attempt.
pub(super) struct Hold {
    /// Until when no other gateway may send the request; `None` if no other gateway has the queue.
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

    /// Renews all of them every few seconds.
    pub(super) async fn keep(&self, state: &QueueState, clock: Clock) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let claims: Vec<(Id, u64)> = self.0.borrow().keys().copied().collect();
            if claims.is_empty() {
                continue;
            }
            let begun = instant(clock);
            let Ok(renewed) = state.renew(&claims).await else { continue }; // `lost` gives up each attempt before its claim ends
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
