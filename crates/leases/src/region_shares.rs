//! The parts of rates that a region has, as its gateways know them.
//!
//! A region always has its floor of each limit. More is lent by the home store, which each gateway asks by itself: it says
//! what part it enforces, and is told what part it may. The home store lends a part to another region only when every
//! gateway that was told of it has said that it enforces less, or has been silent for so long that it has gone back to
//! the floor. So the parts of all regions together are never more than the whole, whoever is cut off.

use std::collections::HashMap;

use sluicegate_limiter::{Span, Time};

/// How often a gateway asks the home store.
pub const ASK_EVERY: Span = Span::SECOND;
/// For how long a gateway enforces more than its floor after it asked.
pub const SHARE_LIFE: Span = Span::from_secs(10);
/// For how long the home store assumes that it does, after it was asked. The difference is for steps of its clock that it cannot
/// tell from silence, and for the time that a gateway needs to put other numbers in force: five seconds each.
pub const SHARE_BOOKED: Span = Span::from_secs(20);

/// What a gateway may enforce of the rates of its limits, in millionths.
#[derive(Debug, Default)]
pub struct RegionShares {
    floor: u32,
    shares: HashMap<String, u32>,
    ends: Time,
    /// The number of the last question.
    asked: u64,
}

impl RegionShares {
    /// The region has only its floor. `now` begins the numbers of the questions, so that they grow over restarts.
    pub fn new(floor: u32, now: Time) -> Self {
        Self { floor, shares: HashMap::new(), ends: Time::EPOCH, asked: now.as_nanos() / 1_000 }
    }

    /// The number of the next question.
    pub fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// The home store has answered the question that was sent at `sent`. An answer to another question than the last one
    /// does not count. Returns whether it does.
    pub fn answered(&mut self, question: u64, sent: Time, shares: HashMap<String, u32>) -> bool {
        if question != self.asked {
            return false;
        }
        self.shares = shares;
        self.ends = sent.plus(SHARE_LIFE);
        true
    }

    /// The part of a limit that may be enforced at `now`.
    pub fn share(&self, limit: &str, now: Time) -> u32 {
        let lent = self.shares.get(limit).copied().filter(|_| now < self.ends);
        lent.unwrap_or(self.floor).max(self.floor)
    }

    /// Whether the home store has answered lately.
    pub fn is_lent(&self, now: Time) -> bool {
        now < self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_ends_and_the_floor_stays() {
        let at = |seconds| Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_secs(seconds));
        let mut shares = RegionShares::new(300_000, at(0));
        assert_eq!(shares.share("l", at(0)), 300_000);
        let question = shares.ask();
        assert!(shares.answered(question, at(1), HashMap::from([("l".to_owned(), 500_000)])));
        assert_eq!((shares.share("l", at(10)), shares.share("other", at(10))), (500_000, 300_000));
        assert_eq!(shares.share("l", at(11)), 300_000);
        let late = shares.ask();
        shares.ask();
        assert!(!shares.answered(late, at(12), HashMap::from([("l".to_owned(), 900_000)])));
        assert_eq!(shares.share("l", at(12)), 300_000);
    }
}
