//! Protection of an upstream from overload: its requests enter, wait or are refused here, of all workers together.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use sluicegate_limiter::{Span, Time};
use sluicegate_overload::{Bounds, Class, Entry, Gate, Pool, Priority, Report, Settings};
use tokio::sync::oneshot;
use tokio::time::Instant;

use sluicegate_base::clock::Clock;
use sluicegate_config::OverloadConfig;

/// Tells a request that it may go on.
type Turn = oneshot::Sender<()>;

/// The requests of one upstream.
pub struct Overload {
    gate: Mutex<Gate<Turn>>,
    /// What several gateways measure together; `None` while this one follows the upstream alone.
    pool: Mutex<Option<Pooled>>,
    /// Refused requests by priority.
    shed: [AtomicU64; 3],
}

/// What gateways before one upstream know together.
struct Pooled {
    pool: Pool,
    /// When the others were heard last.
    heard: Time,
}

/// The time after which a gateway that does not hear the others follows the upstream alone.
const LONELY: Span = Span::from_secs(2);

/// A request in flight. Dropping it lets the next one in.
pub struct InFlight {
    overload: Arc<Overload>,
    clock: Clock,
    begun: Time,
    /// Whether it does not count for now, because its client is slow.
    is_paused: bool,
    /// Whether it was answered well; `None` if it says nothing of the upstream.
    ended: Option<bool>,
}

/// What becomes of a request.
pub enum Entered {
    /// It goes to the upstream.
    Now(InFlight),
    /// It waits.
    Waits(Waiting),
    /// It is refused, and may come again after so many seconds.
    Refused(u64),
}

/// A request that waits for its turn.
pub struct Waiting {
    overload: Arc<Overload>,
    turn: oneshot::Receiver<()>,
    priority: Priority,
    until: Time,
    clock: Clock,
    /// Whether its turn has come.
    released: bool,
}

/// What operators are shown.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct OverloadStatus {
    /// The requests that may be in flight.
    pub limit: u32,
    /// Whether that is a part of a limit that several gateways have together.
    pub pooled: bool,
    /// Those in flight.
    pub in_flight: u32,
    /// Those that wait, by priority.
    pub waiting: [usize; 3],
    /// Those that were refused, by priority.
    pub shed: [u64; 3],
}

fn settings(config: &OverloadConfig) -> Settings {
    Settings {
        bounds: Bounds {
            min: config.min_in_flight,
            max: config.max_in_flight,
            target: config.latency_target.map(Into::into),
        },
        adaptive: config.adaptive,
        queue: config.queue_size,
        deadline: config.queue_deadline.into(),
        reserve: config.reserve,
    }
}

impl Overload {
    /// The state for a configuration: that of `before` if there was one.
    pub fn next(config: &OverloadConfig, before: Option<&Arc<Self>>, now: Time) -> Arc<Self> {
        let settings = settings(config);
        if let Some(before) = before {
            if !settings.adaptive {
                before.alone(now, true);
            }
            if let Some(pooled) = &mut *before.pool() {
                pooled.pool.set_bounds(settings.bounds);
            }
            let mut gate = before.gate();
            gate.reconfigure(settings);
            gate.release(now, |turn| turn.send(()).is_ok()); // there may be room for more
            drop(gate);
            return Arc::clone(before);
        }
        let gate = Mutex::new(Gate::new(settings, now));
        Arc::new(Self { gate, pool: Mutex::default(), shed: Default::default() })
    }

    /// The upstream is not protected any more: all that wait go in.
    pub(super) fn lift(&self, now: Time) {
        self.alone(now, true);
        let mut gate = self.gate();
        gate.lift();
        gate.release(now, |turn| turn.send(()).is_ok());
    }

    fn gate(&self) -> MutexGuard<'_, Gate<Turn>> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Option<Pooled>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this gateway, with this number, tells the others before the same upstream.
    pub fn report(&self, now: Time, gateway: u64) -> Report {
        let pool = self.pool();
        let mut gate = self.gate();
        let pool_limit =
            pool.as_ref().map_or_else(|| gate.own_limit(), |pooled| pooled.pool.limit_and_base());
        gate.report(now, gateway, pool_limit)
    }

    /// The others have told this; `own` was told to them.
    pub fn exchanged(&self, now: Time, own: &Report, others: &[Report]) {
        if others.is_empty() {
            return self.alone(now, true);
        }
        let mut pool = self.pool();
        let mut gate = self.gate();
        let pooled = pool.get_or_insert_with(|| {
            let (limit, base) = gate.own_limit();
            Pooled { pool: Pool::new(gate.bounds(), limit, base, now), heard: now }
        });
        pooled.heard = now;
        let share = pooled.pool.exchanged(now, own, others);
        gate.set_share(share);
        gate.release(now, |turn| turn.send(()).is_ok());
    }

    /// The others could not be heard.
    pub fn missed(&self, now: Time) {
        let is_lonely = self.pool().as_ref().is_some_and(|pooled| now.since(pooled.heard) >= LONELY);
        if is_lonely {
            self.alone(now, false);
        }
    }

    /// The gateway follows the upstream alone: because there is nobody else, or because the others cannot be heard.
    pub fn alone(&self, now: Time, nobody_else: bool) {
        if let Some(pooled) = self.pool().take() {
            self.gate().leave_pool(now, pooled.pool.limit_and_base(), nobody_else);
        }
    }

    /// A request comes.
    #[inline]
    pub fn enter(self: &Arc<Self>, class: Class, clock: Clock) -> Entered {
        let (now, priority) = (clock.now(), class.priority);
        let mut waits = None;
        let wait = || {
            let (turn, waiting) = oneshot::channel();
            waits = Some(waiting);
            turn
        };
        let mut gate = self.gate();
        match (gate.enter(now, class, wait, Turn::is_closed), waits) {
            (Entry::Enters, _) => Entered::Now(self.in_flight(now, clock)),
            (Entry::Waits, Some(waits)) => {
                let until = now.plus(gate.deadline(priority));
                let overload = Arc::clone(self);
                Entered::Waits(Waiting { overload, turn: waits, priority, until, clock, released: false })
            }
            _ => {
                self.shed[priority as usize].fetch_add(1, Ordering::Relaxed);
                Entered::Refused(gate.retry_within())
            }
        }
    }

    /// What the upstream does, in millionths of a request per second; `None` while that is not known.
    pub fn throughput(&self) -> Option<u64> {
        self.gate().throughput()
    }

    fn in_flight(self: &Arc<Self>, begun: Time, clock: Clock) -> InFlight {
        InFlight { overload: Arc::clone(self), clock, begun, is_paused: false, ended: None }
    }

    /// What operators are shown.
    pub fn status(&self) -> OverloadStatus {
        let gate = self.gate();
        OverloadStatus {
            limit: gate.limit(),
            pooled: gate.is_pooled(),
            in_flight: gate.in_flight(),
            waiting: gate.waiting(),
            shed: [0, 1, 2].map(|at| self.shed[at].load(Ordering::Relaxed)),
        }
    }
}

impl InFlight {
    /// The upstream has answered, well or not.
    pub fn answered(&mut self, well: bool) {
        self.ended = Some(well);
    }

    /// The upstream waits for the client, or no longer. Meanwhile the request takes no place, and its time does not count: slow
    /// clients would keep others out.
    pub(super) fn awaits_client(&mut self, awaits: bool) {
        if self.is_paused == awaits {
            return;
        }
        self.is_paused = awaits;
        let now = self.clock.now();
        let mut gate = self.overload.gate();
        if awaits {
            gate.pause(now, |turn| turn.send(()).is_ok());
        } else {
            gate.resume(now);
            self.begun = now;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.is_paused {
            return;
        }
        let now = self.clock.now();
        let ended = self.ended.map(|well| (now.since(self.begun), well));
        self.overload.gate().leave(now, ended, |turn| turn.send(()).is_ok());
    }
}

impl Waiting {
    /// When there is something to do at the latest: at the deadline, or when the reserve may be used by all.
    fn wakes_at(&self) -> Instant {
        let reserved = self.overload.gate().reserved_until(self.clock.now());
        self.clock.instant(reserved.map_or(self.until, |reserved| reserved.min(self.until)))
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// If the request has waited for too long, or a more important one has taken its place: after how many seconds it may
    /// come again.
    pub async fn turn(mut self) -> Result<InFlight, u64> {
        let mut sleep = pin!(tokio::time::sleep_until(self.wakes_at()));
        let waited = std::future::poll_fn(|context: &mut Context<'_>| {
            loop {
                if let Poll::Ready(turn) = Pin::new(&mut self.turn).poll(context) {
                    return Poll::Ready(turn.is_ok());
                }
                ready!(sleep.as_mut().poll(context));
                let now = self.clock.now();
                if now >= self.until {
                    return Poll::Ready(false);
                }
                // The reserve may be free.
                self.overload.gate().release(now, |turn| turn.send(()).is_ok());
                sleep.as_mut().reset(self.wakes_at());
            }
        })
        .await;
        let now = self.clock.now();
        self.turn.close();
        // Its turn may have come at the last moment.
        self.released = waited || self.turn.try_recv().is_ok();
        if self.released {
            return Ok(self.overload.in_flight(now, self.clock));
        }
        self.overload.shed[self.priority as usize].fetch_add(1, Ordering::Relaxed);
        let mut gate = self.overload.gate();
        gate.refuses(now);
        Err(gate.retry_within())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        self.turn.close();
        let now = self.clock.now();
        match self.turn.try_recv() {
            Ok(()) => drop(self.overload.in_flight(now, self.clock)), // its turn had come: the next one goes in
            Err(_) => self.overload.gate().left(now, Turn::is_closed),
        }
    }
}
