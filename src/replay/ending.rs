//! The ends of requests in a replay, the earliest first.

use std::cmp::Ordering;

use sluicegate_limiter::Time;

use sluicegate_gateway::limit::Holds;

/// The end of a request, which releases its holds.
pub(super) struct Ending {
    pub(super) at: Time,
    _holds: Holds,
}

impl Ending {
    /// A request that ends then.
    pub(super) fn new(at: Time, holds: Holds) -> Self {
        Self { at, _holds: holds }
    }
}

impl PartialEq for Ending {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Ending {}

impl PartialOrd for Ending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ending {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}
