//! A gateway: what it does with a request, as the real one does.

use sluicegate_leases::{Grant, Lease, Membership, Terms, WorkerTokens, tokens_of_worker};
use sluicegate_limiter::{Span, Time};

use super::store::Granted;

const WORKERS: u32 = 2;

pub(crate) struct Gateway {
    /// How often it was started.
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    pub(crate) lease: Lease,
    /// The tokens of its workers, of which the next one has the next request.
    of_workers: [WorkerTokens; WORKERS as usize],
    next: usize,
    pub(crate) membership: Membership,
    clock: (u64, i64),
    began: Time,
    /// Requests per step, and the part of one that is due.
    pub(crate) load: f64,
    pub(crate) due: f64,
    /// Requests for the next exact call.
    pub(crate) waiting: u64,
    pub(crate) exact_in_flight: Option<Time>,
    pub(crate) tokens_in_flight: Option<Time>,
    pub(crate) cut_until: Time,
    /// What the store had left when it answered last.
    remaining: u64,
    refused_until: Time,
}

/// What becomes of a request.
pub(crate) struct Wanted {
    pub(crate) admitted: bool,
    /// Whether a call decides about those that wait.
    pub(crate) exact: bool,
    /// How many tokens are asked for.
    pub(crate) tokens: Option<u64>,
}

impl Gateway {
    pub(crate) fn new(now: Time, clock: (u64, i64)) -> Self {
        Self {
            life: 0,
            is_up: true,
            lease: Lease::new(now.plus(Span::from_nanos(clock.0))),
            of_workers: Default::default(),
            next: 0,
            membership: Membership::new(1),
            clock,
            began: now,
            load: 0.0,
            due: 0.0,
            waiting: 0,
            exact_in_flight: None,
            tokens_in_flight: None,
            cut_until: Time::EPOCH,
            remaining: 0,
            refused_until: Time::EPOCH,
        }
    }

    /// What its clock shows.
    pub(crate) fn clock(&self, now: Time) -> Time {
        let (ahead, millionths) = self.clock;
        let passed = now.since(self.began).as_nanos() as i128;
        let own = passed + passed * i128::from(millionths) / 1_000_000;
        self.began.plus(Span::from_nanos(ahead)).plus(Span::from_nanos(own as u64))
    }

    /// The tokens that it could spend.
    pub(crate) fn held(&self, now: Time) -> u64 {
        let now = self.clock(now);
        let of_workers: u64 = self.of_workers.iter().map(|own| own.held(now)).sum();
        match self.lease.take(now, 0) {
            Some(_) => self.lease.held() + of_workers,
            None => of_workers,
        }
    }

    pub(crate) fn request(&mut self, world: Time, terms: &Terms) -> Wanted {
        let now = self.clock(world);
        self.next = (self.next + 1) % self.of_workers.len();
        let more = tokens_of_worker(terms.share(self.membership.gateways()), WORKERS);
        if let Some(taken) = self.of_workers[self.next].take(&self.lease, now, 1, || more) {
            let tokens = if taken.ask { self.ask(world, terms) } else { None };
            return Wanted { admitted: true, exact: false, tokens };
        }
        if world < self.refused_until || self.lease.paused(now).is_some() {
            return Wanted { admitted: false, exact: false, tokens: None };
        }
        self.lease.miss(1);
        let tokens = self.ask(world, terms);
        self.waiting += 1;
        Wanted { admitted: false, exact: self.exact_in_flight.is_none(), tokens }
    }

    fn ask(&mut self, world: Time, terms: &Terms) -> Option<u64> {
        let now = self.clock(world);
        if !self.membership.may_lease(now) {
            return None;
        }
        let gateways = self.membership.gateways();
        let of_workers = tokens_of_worker(terms.share(gateways), WORKERS) * u64::from(WORKERS);
        let tokens = self.lease.next(now, terms, gateways, (self.remaining, of_workers))?;
        self.tokens_in_flight = Some(world);
        Some(tokens)
    }

    /// The store has answered an exact call.
    pub(crate) fn learn(&mut self, world: Time, granted: &Granted) {
        self.remaining = granted.usage.remaining;
        if let Some(wait) = granted.refused_for {
            let now = self.clock(world);
            self.refused_until = granted.at.plus(wait);
            let at_most = if granted.window.is_some() { wait } else { Span::MAX };
            self.lease.pause(now, at_most);
        }
    }

    /// The store has answered a call for tokens.
    pub(crate) fn granted(&mut self, sent: Time, world: Time, granted: &Granted, tokens: u64, terms: &Terms) {
        let [sent, received] = [sent, world].map(|time| self.clock(time));
        self.remaining = granted.usage.remaining;
        if granted.admitted == 0 {
            self.lease.pause(received, Span::MAX);
            self.lease.abandon();
            return;
        }
        let grant = Grant {
            tokens,
            sent,
            received,
            window: granted.window,
            before: granted.before,
            remaining: granted.usage.remaining,
            reset: granted.usage.reset,
            receipt: granted.receipt,
        };
        self.lease.granted(&grant, terms);
    }

    /// A call that was sent then has no answer in time.
    pub(crate) fn late(&mut self, sent: Time) {
        if self.exact_in_flight == Some(sent) {
            self.exact_in_flight = None;
        }
        if self.tokens_in_flight == Some(sent) {
            self.tokens_in_flight = None;
            self.lease.abandon();
        }
    }
}
