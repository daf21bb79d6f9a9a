//! Delivers queued requests at the pace of their limits.
//!
//! Each queue is served by one worker, in a task that claims requests and starts an attempt for each (`attempt`). A request
//! that its limits do not admit yet goes back into the queue.

mod attempt;
mod held;

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;

use self::attempt::{Attempt, Verdict};
use self::held::Held;
use crate::queue::{Claimed, Claims, Id, Queue, QueueError, QueueState, Serving, millis};
use crate::request::Services;
use crate::server::ConnectionBudget;
use sluicegate_base::boxed_future::spawn_local;
use sluicegate_base::critical_task::CriticalTasks;
use sluicegate_base::queue_event::QueueEvent;

/// The longest sleep while nothing happens, and the interval at which figures are read and expired requests are removed.
const CARE: Duration = Duration::from_secs(1);
/// The longest sleep while other gateways may accept requests for the same queue, or while it is paused.
const POLL: Duration = Duration::from_millis(100);
/// The pause after the queue could not be read or written.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// The most requests that are claimed at a time.
const MAX_BATCH: usize = 32;
/// The queue is paused after this many requests in a row that no server took.
const MAX_UNSENT: u32 = 8;
/// That pause, in milliseconds; it doubles up to `LONGEST_PAUSE`.
const PAUSE: u64 = 1_000;
const LONGEST_PAUSE: u64 = 30_000;
/// The most doublings, so that the shift below cannot overflow.
const MAX_DOUBLINGS: u32 = 5;

/// What delivers the requests of queues on one worker.
pub struct Deliveries {
    services: Rc<Services>,
    budget: Arc<ConnectionBudget>,
    critical: CriticalTasks,
}

/// The delivery of one queue.
struct Delivering {
    services: Rc<Services>,
    budget: Arc<ConnectionBudget>,
    state: Arc<QueueState>,
    /// Attempts in progress.
    held: Held,
    /// Notified when one has ended.
    ended: Notify,
    /// Requests in a row that no server took.
    unsent: Cell<u32>,
}

impl Deliveries {
    /// Those of a worker. `budget` counts the connections of the process.
    pub fn new(services: &Rc<Services>, budget: &Arc<ConnectionBudget>, critical: &CriticalTasks) -> Self {
        Self { services: Rc::clone(services), budget: Arc::clone(budget), critical: critical.clone() }
    }

    /// Begins to deliver the requests of queues that nobody serves and that are for this worker.
    pub fn follow(&self) {
        let view = self.services.view();
        let Some(queues) = &view.snapshot.queues else { return };
        for queue in queues.iter() {
            let state = &queue.state;
            if state.is_served() || state.is_lent() || self.is_draining() || !self.is_mine(state) {
                continue;
            }
            let Some(serving) = state.serve() else { continue };
            let delivering = Rc::new(Delivering {
                services: Rc::clone(&self.services),
                budget: Arc::clone(&self.budget),
                state: Arc::clone(state),
                held: Held::default(),
                ended: Notify::new(),
                unsent: Cell::new(0),
            });
            let guard = self.critical.guard("delivers queued requests");
            spawn_local(async move {
                let _guard = guard;
                match delivering.state.is_shared() {
                    false => Rc::clone(&delivering).run(serving).await,
                    true => tokio::select! {
                        () = Rc::clone(&delivering).run(serving) => {}
                        () = delivering.held.keep(&delivering.state, delivering.services.process.clock) => {}
                    },
                }
            });
        }
    }

    fn is_draining(&self) -> bool {
        self.services.process.draining.load(Ordering::Relaxed)
    }

    /// Whether this worker is the one for a queue.
    fn is_mine(&self, state: &QueueState) -> bool {
        let mut hasher = DefaultHasher::new();
        (state.limit(), state.place()).hash(&mut hasher);
        hasher.finish() % self.services.process.workers as u64 == self.services.index as u64
    }
}

impl Delivering {
    /// Delivers until the configuration no longer has the queue, the process ends, or another one takes over. Attempts in progress
    /// are then completed.
    async fn run(self: Rc<Self>, serving: Serving) {
        let mut cared = 0;
        let mut batch = 1;
        let mut known = None;
        while let Some(queue) = self.queue() {
            let now = self.now();
            if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &queue)) {
                // Another configuration may admit what the one before has not.
                self.state.pause_until(0);
                if let Err(error) = self.state.wake_consumers().await {
                    self.failed(&error);
                }
                known = Some(Arc::clone(&queue));
            }
            if now >= cared + CARE.as_millis() as u64 {
                self.care(&queue, now).await;
                cared = now;
            }
            let paused = self.state.standing().paused_until;
            if paused > now {
                self.sleep(Duration::from_millis(paused - now)).await;
                continue;
            }
            let free = queue.config.concurrency.saturating_sub(self.held.len());
            if free == 0 {
                _ = tokio::time::timeout(CARE, self.ended.notified()).await;
                continue;
            }
            let begun = held::instant(self.services.process.clock);
            let Claims { claimed, next_due, .. } = match self.claim(&queue, free.min(batch)).await {
                Ok(claims) => claims,
                Err(error) => {
                    self.failed(&error);
                    tokio::time::sleep(AFTER_ERROR).await;
                    continue;
                }
            };
            if claimed.is_empty() {
                batch = 1;
                self.rest(next_due).await;
                continue;
            }
            batch = match self.attempt_all(&queue, claimed, begun).await {
                true => (batch * 2).min(MAX_BATCH),
                false => 1,
            };
        }
        while self.held.len() > 0 {
            self.ended.notified().await;
        }
        drop(serving);
    }

    /// The queue as the configuration in force has it; `None` if nothing is to be delivered any more.
    fn queue(&self) -> Option<Arc<Queue>> {
        if self.services.process.draining.load(Ordering::Relaxed) || self.state.is_lent() {
            return None;
        }
        let view = self.services.view();
        let queue = view.snapshot.queues.as_ref()?.named(self.state.limit())?;
        Arc::ptr_eq(&queue.state, &self.state).then(|| Arc::clone(queue))
    }

    fn now(&self) -> u64 {
        millis(self.services.process.clock.now())
    }

    /// Sleeps, at most until something may be delivered.
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time.min(POLL)).await;
    }

    /// Nothing is due: waits for the next request, or until one is.
    async fn rest(&self, next_due: Option<u64>) {
        let longest = if self.state.is_shared() { POLL } else { CARE };
        let now = self.now();
        let wait = match next_due {
            Some(due) => Duration::from_millis(due.saturating_sub(now)).max(Duration::from_millis(1)),
            _ => CARE,
        };
        tokio::select! {
            () = self.state.wake.notified() => {}
            () = tokio::time::sleep(wait.min(longest)) => {}
        }
    }

    /// Reads the figures of the queue, ends what has expired, and removes what ended long ago.
    async fn care(&self, queue: &Queue, now: u64) {
        if let Err(error) = self.state.care(now, queue.keep()).await {
            self.failed(&error);
        }
    }

    async fn claim(&self, queue: &Queue, max: usize) -> Result<Claims, QueueError> {
        let now = self.now();
        self.state.claim(now, queue.keep(), max).await
    }

    /// Begins attempts, one after the other. Returns whether the limits have admitted all of them.
    async fn attempt_all(
        self: &Rc<Self>,
        queue: &Arc<Queue>,
        claimed: Vec<Claimed>,
        begun: tokio::time::Instant,
    ) -> bool {
        let mut all = true;
        let mut claimed = claimed.into_iter();
        while self.queue().is_some()
            && let Some(one) = claimed.next()
        {
            let name = (one.id, one.claim);
            let attempt = Attempt::new(Rc::clone(&self.services), Arc::clone(queue), one);
            let Some(place) = self.budget.acquire() else {
                let until = self.now() + PAUSE;
                self.state.pause_until(until);
                attempt.release(until).await;
                all = false;
                break;
            };
            let (sender, verdict) = tokio::sync::oneshot::channel();
            let hold = self.held.hold(name, &self.state, begun);
            let ended = Ended { delivering: Rc::clone(self), name, was_sent: None };
            spawn_local(async move {
                let mut ended = ended; // all of it, so that it is dropped at the end
                ended.was_sent = attempt.make(place, sender, &hold).await;
            });
            match verdict.await {
                Ok(Verdict::Admitted) | Err(_) => {}
                Ok(Verdict::Deferred(deferred)) => {
                    all = false;
                    if deferred.all {
                        break;
                    }
                }
            }
        }
        // The rest was claimed and not begun.
        for one in claimed {
            Attempt::new(Rc::clone(&self.services), Arc::clone(queue), one).release(0).await;
        }
        all
    }

    #[cold]
    fn failed(&self, error: &QueueError) {
        if !error.is_handed_over() {
            self.state.counts.count(QueueEvent::Error);
            self.state.warn(self.now(), &format!("cannot be delivered: {error}"));
        }
    }
}

/// An attempt in progress; it has ended when this is dropped.
struct Ended {
    delivering: Rc<Delivering>,
    name: (Id, u64),
    /// Whether a server took the request, if that was tried.
    was_sent: Option<bool>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let Self { delivering, name, was_sent } = self;
        delivering.held.release(*name);
        match was_sent {
            Some(true) => delivering.unsent.set(0),
            Some(false) => {
                let unsent = delivering.unsent.get() + 1;
                delivering.unsent.set(unsent);
                if let Some(above) = unsent.checked_sub(MAX_UNSENT) {
                    let pause = (PAUSE << above.min(MAX_DOUBLINGS)).min(LONGEST_PAUSE);
                    delivering.state.pause_until(delivering.now() + pause);
                }
            }
            None => {}
        }
        delivering.ended.notify_one();
    }
}
