//! What a limit should answer, from all that ever happened to its key: each answer replays the whole history.

use sluicegate_limiter::Time;

use crate::common::Plan;
use crate::common::model::Kind;

/// Requests: far above the error of a debt in floating point, far below one request.
const CLOSE: f64 = 1e-4;

/// What happened to a key.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Charge(u64),
    Settle(u64),
    Refuse(u64),
    Reload(Plan),
}

/// All events of a key, in the order in which they happened.
pub struct History {
    kind: Kind,
    plan: Plan,
    events: Vec<(u64, Event)>,
    /// The charges that were given back.
    pub refunded: Vec<usize>,
}

/// What of the past counts at some instant, in the numbers of the plan then in force. Times are nanoseconds.
struct Past {
    kind: Kind,
    plan: Plan,
    at: u64,
    /// A bucket: requests that are owed.
    owed: f64,
    /// Any other limit: when something was counted, and how much.
    counted: Vec<(u64, u64)>,
}

impl History {
    pub fn new(kind: Kind, plan: Plan) -> Self {
        Self { kind, plan, events: Vec::new(), refunded: Vec::new() }
    }

    /// Notes an event; its number.
    pub fn push(&mut self, at: Time, event: Event) -> usize {
        self.events.push((at.as_nanos(), event));
        self.events.len() - 1
    }

    /// Whether a cost is admitted if what was given back had never been charged, and if it had never been given back.
    pub fn admits(&self, at: Time, cost: u64) -> [bool; 2] {
        [true, false].map(|without| {
            let mut past =
                Past { kind: self.kind, plan: self.plan, at: at.as_nanos(), owed: 0.0, counted: Vec::new() };
            for (number, (at, event)) in self.events.iter().enumerate() {
                past.advance(*at);
                match event {
                    Event::Charge(_) if without && self.refunded.contains(&number) => {}
                    Event::Charge(cost) | Event::Settle(cost) => past.count(*cost),
                    Event::Refuse(cost) if past.kind == Kind::CountingLog => past.count(*cost),
                    Event::Refuse(_) => {}
                    Event::Reload(plan) => past.reload(*plan),
                }
            }
            past.advance(at.as_nanos());
            past.fits(cost, if without { CLOSE } else { -CLOSE })
        })
    }
}

impl Past {
    fn advance(&mut self, at: u64) {
        let refilled =
            at.saturating_sub(self.at) as f64 * self.plan.count() as f64 / self.plan.period() as f64;
        self.owed = (self.owed - refilled).max(0.0);
        self.at = at;
    }

    fn count(&mut self, cost: u64) {
        self.owed += cost as f64;
        self.counted.push((self.at, cost));
    }

    fn slices(&self) -> u128 {
        if self.kind == Kind::SlidingWindow { self.plan.slices.into() } else { 1 }
    }

    /// The number of the sub-window that an instant lies in, since the epoch.
    fn window(&self, at: u64) -> u128 {
        u128::from(at) * self.slices() / u128::from(self.plan.period())
    }

    /// What counts of windows, logs and estimates.
    fn used(&self) -> u64 {
        let (now, period) = (u128::from(self.at), u128::from(self.plan.period()));
        let counts = |at: u64, cost: u64| -> u128 {
            let cost = u128::from(cost);
            match self.kind {
                Kind::FixedWindow if self.window(at) == self.window(self.at) => cost * period,
                Kind::SlidingLog | Kind::CountingLog if u128::from(at) + period > now => cost * period,
                // The share of its sub-window that the last period reaches, in parts of `period`.
                Kind::SlidingWindow => {
                    let end = (self.window(at) + 1) * period;
                    let reached = (now * self.slices()).saturating_sub(period * self.slices());
                    let share = end.saturating_sub(reached).min(period);
                    cost * if self.plan.strict && share > 0 { period } else { share }
                }
                _ => 0,
            }
        };
        let all: u128 = self.counted.iter().map(|(at, cost)| counts(*at, *cost)).sum();
        (all / period) as u64
    }

    /// A token bucket keeps its share, and below empty its tokens; a queue keeps its requests. Windows that are not over
    /// and an estimate go on as if all had been counted now; a log keeps its instants, but what is free stays free.
    fn reload(&mut self, plan: Plan) {
        let old = std::mem::replace(&mut self.plan, plan);
        match self.kind {
            Kind::TokenBucket => {
                let within = self.owed.min(old.burst as f64);
                self.owed = within * plan.burst as f64 / old.burst as f64 + (self.owed - within);
            }
            Kind::LeakyBucket | Kind::Concurrency => {}
            Kind::SlidingLog | Kind::CountingLog => {
                let held = |(at, _): &(u64, u64)| at + old.period() > self.at;
                self.counted.retain(held);
            }
            Kind::FixedWindow | Kind::SlidingWindow => {
                let same = old.rate.period() == plan.rate.period()
                    && (self.kind == Kind::FixedWindow || old.slices == plan.slices);
                if !same {
                    let new = std::mem::replace(&mut self.plan, old);
                    let used = self.used();
                    self.plan = new;
                    self.counted = vec![(self.at, used)];
                }
            }
        }
    }

    fn fits(&self, cost: u64, close: f64) -> bool {
        match self.kind {
            Kind::TokenBucket | Kind::LeakyBucket => {
                cost <= self.plan.burst && self.owed + cost as f64 <= self.plan.burst as f64 + close
            }
            Kind::SlidingLog | Kind::CountingLog => self.used() + cost <= self.plan.log_rate().count(),
            _ => self.used() + cost <= self.plan.count(),
        }
    }
}
