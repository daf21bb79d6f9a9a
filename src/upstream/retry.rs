//! How many requests may be tried again: an outage must not double the traffic.

use std::cell::Cell;

/// What one retry costs. All numbers are hundredths of a retry.
const COST: u32 = 100;
/// What is there at the start, and comes back with time, however few requests there are.
const FLOOR: u32 = 10 * COST;
/// What can be saved up.
const MOST: u32 = 100 * COST;

/// A worker's budget for one upstream.
pub(super) struct Budget {
    left: Cell<u32>,
    /// The worker's milliseconds at which it was last looked at.
    seen: Cell<u64>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(FLOOR), seen: Cell::new(0) }
    }

    /// A request came, which earns `percent` hundredths of a retry.
    pub(super) fn earn(&self, percent: u32) {
        self.left.set((self.left.get() + percent).min(MOST.max(self.left.get())));
    }

    /// Takes one retry out, if there is one. `now` is the worker's milliseconds.
    pub(super) fn spend(&self, now: u64) -> bool {
        // Ten a second, up to the floor.
        let passed = u32::try_from(now.saturating_sub(self.seen.replace(now))).unwrap_or(u32::MAX);
        let left = self.left.get();
        let left = left.max(left.saturating_add(passed).min(FLOOR));
        let spent = left.checked_sub(COST);
        self.left.set(spent.unwrap_or(left));
        spent.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If everything fails for a minute at a thousand a second, retries are a fifth of the requests and a few.
    #[test]
    fn retries_are_a_share_of_requests() {
        let budget = Budget::new();
        let mut retries = 0;
        for request in 0..60_000 {
            budget.earn(20);
            retries += u32::from(budget.spend(request));
        }
        assert!((12_000..=12_610).contains(&retries), "{retries}");
    }

    #[test]
    fn few_requests_may_be_retried_too() {
        let budget = Budget::new();
        let spend = |now| (0..50).take_while(|_| budget.spend(now)).count();
        assert_eq!(spend(0), 10);
        assert_eq!(spend(50), 0);
        assert_eq!(spend(600), 6, "ten a second");
        assert_eq!(spend(3_600_000), 10, "and no more than at first");
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let budget = Budget::new();
        (0..1_000_000).for_each(|_| budget.earn(100));
        assert_eq!((0..1_000).take_while(|_| budget.spend(0)).count(), 100);
    }
}
