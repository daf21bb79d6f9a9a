//! Tokens that one worker has taken out of the lease of its gateway, so that the workers of a busy key do not take from the same
//! word for each request.

use std::cell::Cell;

use sluicegate_limiter::Time;

use crate::lease::{Lease, Taken};

/// The most tokens that a worker takes out at once.
const MOST: u64 = 16;
/// Fewer are not worth it.
const FEWEST: u64 = 4;
/// All workers together take out this part of their gateway's share at most, as a divisor.
const PART: u64 = 4;

/// The tokens of one worker, of one key.
#[derive(Debug, Default)]
pub struct WorkerTokens {
    tokens: Cell<u64>,
    ends: Cell<Time>,
    /// What the key had left, and when it has everything again.
    left: Cell<(u64, Time)>,
}

/// How many tokens a worker may take out, of the share of a gateway with so many workers. They count as held as long as they may be
/// spent: see [`Lease::next`].
pub fn tokens_of_worker(share: u64, workers: u32) -> u64 {
    let tokens = MOST.min(share / (PART * u64::from(workers.max(1))));
    if tokens < FEWEST || workers < 2 { 0 } else { tokens }
}

impl WorkerTokens {
    /// Takes the tokens of a request: those of the worker, or else those of the lease, with `more()` for the next requests. `None`
    /// if neither has enough.
    #[inline]
    pub fn take(&self, lease: &Lease, now: Time, cost: u64, more: impl FnOnce() -> u64) -> Option<Taken> {
        let (remaining, full) = self.left.get();
        if let Some(left) = self.tokens.get().checked_sub(cost).filter(|_| now < self.ends.get()) {
            self.tokens.set(left);
            return Some(Taken::of_worker(cost, remaining + left, full.since(now)));
        }
        let (taken, tokens, ends) = lease.take_with(now, cost, more())?;
        if tokens > 0 {
            self.tokens.set(tokens);
            self.ends.set(ends);
            self.left.set((taken.remaining.saturating_sub(tokens), now.plus(taken.reset)));
        }
        Some(taken)
    }

    /// Gives back what a request has taken and does not use.
    pub fn give_back(&self, lease: &Lease, taken: &Taken) {
        match taken.is_of_worker() {
            true => self.tokens.set(self.tokens.get() + taken.cost()),
            false => lease.give_back(taken),
        }
    }

    /// Gives back all tokens that may still be spent.
    pub fn give_back_all(&self, lease: &Lease, now: Time) {
        lease.put_back(self.held(now));
        self.tokens.set(0);
    }

    /// The tokens that may be spent.
    pub fn held(&self, now: Time) -> u64 {
        if now < self.ends.get() { self.tokens.get() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;

    #[test]
    fn few_tokens_are_not_spread_over_workers() {
        assert_eq!(
            [(1_250, 3), (100, 3), (40, 3), (1_250, 1), (0, 8)].map(|(share, n)| tokens_of_worker(share, n)),
            [16, 8, 0, 0, 0]
        );
        assert_eq!(WorkerTokens::default().held(Time::EPOCH.plus(Span::SECOND)), 0);
    }
}
