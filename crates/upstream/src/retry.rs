//! The retry budget: limits retries to a share of the requests, so that an outage does not double the traffic.

use std::cell::Cell;

/// The cost of one retry. All amounts are hundredths of a retry.
const COST: u32 = 100;
/// The initial amount, to which the budget recovers over time even without requests.
const FLOOR: u32 = 10 * COST;
/// The largest amount.
const MAX: u32 = 100 * COST;

/// The retry budget of one worker for one upstream.
pub(super) struct RetryBudget {
    left: Cell<u32>,
    /// The time of the last attempt to spend, in the worker's milliseconds.
    updated: Cell<u64>,
}

impl RetryBudget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(FLOOR), updated: Cell::new(0) }
    }

    /// Adds `percent` hundredths of a retry, for a new request.
    pub(super) fn earn(&self, percent: u32) {
        self.left.set((self.left.get() + percent).min(MAX));
    }

    /// Takes one retry from the budget. Returns false if there is none. `now` is in the worker's milliseconds.
    pub(super) fn spend(&self, now: u64) -> bool {
        // A hundredth per millisecond is ten retries per second, up to the floor.
        let passed = u32::try_from(now.saturating_sub(self.updated.replace(now))).unwrap_or(u32::MAX);
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
        let budget = RetryBudget::new();
        let mut retries = 0;
        for request in 0..60_000 {
            budget.earn(20);
            retries += u32::from(budget.spend(request));
        }
        assert!((12_000..=12_610).contains(&retries), "{retries}");
    }

    #[test]
    fn few_requests_may_be_retried_too() {
        let budget = RetryBudget::new();
        let spend = |now| (0..50).take_while(|_| budget.spend(now)).count();
        assert_eq!(spend(0), 10);
        assert_eq!(spend(50), 0);
        assert_eq!(spend(600), 6, "ten a second");
        assert_eq!(spend(3_600_000), 10, "and no more than at first");
    }

    #[test]
    fn the_budget_is_bounded() {
        let budget = RetryBudget::new();
        (0..1_000_000).for_each(|_| budget.earn(100));
        assert_eq!((0..1_000).take_while(|_| budget.spend(0)).count(), 100);
    }
}
