//! Windows that begin when a calendar says so: days, weeks and months of a time zone.

use crate::{Span, Time};

const SECOND: u64 = Span::SECOND.as_nanos();

/// When each period begins. The calendar itself, its zone and its changes of the clock are known to whoever made the
/// table.
#[derive(Debug)]
pub struct Calendar {
    /// Seconds since the Unix epoch, ascending; the first is 0, so that every instant is in a period.
    starts: Vec<u32>,
    longest: u32,
}

impl Calendar {
    /// Periods that begin at these seconds since the Unix epoch, in any order. What is before the first is a period too, and the
    /// last one has no end.
    pub fn new(starts: impl IntoIterator<Item = u32>) -> Self {
        let mut starts: Vec<u32> = std::iter::once(0).chain(starts).collect();
        starts.sort_unstable();
        starts.dedup();
        let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u32::MAX);
        Self { starts, longest }
    }

    /// The period that `now` is in, named by the second in which it began.
    pub fn start(&self, now: Time) -> u64 {
        let seconds = now.as_nanos() / SECOND;
        let after = self.starts.partition_point(|start| u64::from(*start) <= seconds);
        self.starts[after - 1].into() // the first is 0
    }

    /// The second in which the period ends that began at `start`; none for the last one.
    pub fn end(&self, start: u64) -> Option<u64> {
        let after = self.starts.partition_point(|other| u64::from(*other) <= start);
        self.starts.get(after).map(|end| u64::from(*end))
    }

    /// The second in which the period began that is before the one of `start`.
    pub fn before(&self, start: u64) -> Option<u64> {
        let own = self.starts.partition_point(|other| u64::from(*other) < start);
        own.checked_sub(1).map(|before| self.starts[before].into())
    }

    /// The length of the longest period.
    pub fn longest(&self) -> Span {
        Span::from_secs(self.longest.into())
    }
}
