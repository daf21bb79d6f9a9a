//! The store: the counter of one key, and the gateways that announce themselves.

use std::collections::HashMap;

use sluicegate_leases::Return;
use sluicegate_limiter::{Algorithm, Quota, Receipt, Slices, Span, Tat, Time, Usage, Window};

pub(crate) struct Store {
    quota: Quota,
    state: State,
    members: HashMap<(usize, u32), Time>,
}

enum State {
    Bucket(Tat),
    Fixed(Window),
    Sliding(Slices),
}

/// What the store has decided.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) at: Time,
    pub(crate) admitted: u64,
    pub(crate) receipt: Receipt,
    pub(crate) usage: Usage,
    /// What the key had left before.
    pub(crate) before: u64,
    pub(crate) window: Option<Span>,
    /// Until when a request of cost 1 is refused.
    pub(crate) refused_for: Option<Span>,
}

/// An expression for the algorithm of a quota and the state of the key.
macro_rules! with {
    ($store:expr, ($algorithm:ident, $state:ident) => $body:expr) => {
        match (&$store.quota, &mut $store.state) {
            (Quota::TokenBucket($algorithm, ..), State::Bucket($state)) => $body,
            (Quota::LeakyBucket($algorithm, ..), State::Bucket($state)) => $body,
            (Quota::FixedWindow($algorithm, _), State::Fixed($state)) => $body,
            (Quota::SlidingWindow($algorithm, _), State::Sliding($state)) => $body,
            _ => unreachable!("the state is that of the algorithm"),
        }
    };
}

impl Store {
    pub(crate) fn new(quota: Quota) -> Self {
        let state = match quota {
            Quota::FixedWindow(..) => State::Fixed(Window::default()),
            Quota::SlidingWindow(..) => State::Sliding(Slices::default()),
            _ => State::Bucket(Tat::default()),
        };
        Self { quota, state, members: HashMap::new() }
    }

    /// Decides about requests of cost 1.
    pub(crate) fn requests(&mut self, now: Time, requests: u64) -> Granted {
        self.decide(now, 1, requests)
    }

    /// Decides about one request of this cost.
    pub(crate) fn tokens(&mut self, now: Time, cost: u64) -> Granted {
        let mut granted = self.decide(now, cost, 1);
        granted.admitted *= cost;
        granted
    }

    fn decide(&mut self, now: Time, cost: u64, requests: u64) -> Granted {
        let window = self.quota.window_left(now);
        with!(self, (algorithm, state) => {
            let before = algorithm.usage(state, now).remaining;
            let (mut admitted, mut receipt) = (0, Receipt::default());
            while admitted < requests && algorithm.check(state, now, cost).is_ok() {
                receipt = algorithm.charge(state, now, cost);
                admitted += 1;
            }
            let usage = algorithm.usage(state, now);
            let refused_for = algorithm.check(state, now, 1).err().and_then(|refusal| refusal.retry_after());
            Granted { at: now, admitted, receipt, usage, before, window, refused_for }
        })
    }

    pub(crate) fn give_back(&mut self, now: Time, unspent: &Return) {
        with!(self, (algorithm, state) => algorithm.refund(state, now, unspent.tokens, unspent.receipt));
    }

    /// The number of gateways that are known, with this one.
    pub(crate) fn beat(&mut self, now: Time, name: (usize, u32)) -> u32 {
        self.members.insert(name, now.plus(Span::from_secs(5)));
        self.members.retain(|_, until| *until > now);
        self.members.len() as u32
    }
}
