//! Windows with the boundaries of a calendar: days, weeks and months of a time zone.

use crate::{Span, Time};

const SECOND: u64 = Span::SECOND.as_nanos();

/// The times at which periods begin. The creator of the table knows the calendar, its time zone and daylight saving
/// time.
#[derive(Debug)]
pub struct Calendar {
    /// Seconds since the Unix epoch, ascending; the first is 0, so that every instant is in a period.
    starts: Vec<u32>,
    /// The length of the longest period, in seconds.
    longest: u32,
}

impl Calendar {
    /// Periods that begin at these seconds since the Unix epoch, in any order. The time before the first is a period too,
    /// and the last period has no end.
    pub fn new(starts: impl IntoIterator<Item = u32>) -> Self {
        let mut starts: Vec<u32> = std::iter::once(0).chain(starts).collect();
        starts.sort_unstable();
        starts.dedup();
        let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u32::MAX);
        Self { starts, longest }
    }

    /// The second in which the period of `now` began; it identifies the period.
    pub fn start(&self, now: Time) -> u64 {
        let seconds = now.as_nanos() / SECOND;
        let after = self.starts.partition_point(|start| u64::from(*start) <= seconds);
        self.starts[after - 1].into() // the first is 0
    }

    /// The second in which the period that began at `start` ends; `None` for the last one.
    pub fn end(&self, start: u64) -> Option<u64> {
        let after = self.starts.partition_point(|other| u64::from(*other) <= start);
        self.starts.get(after).map(|end| u64::from(*end))
    }

    /// The second in which the period before the one of `start` began.
    pub fn before(&self, start: u64) -> Option<u64> {
        let own = self.starts.partition_point(|other| u64::from(*other) < start);
        own.checked_sub(1).map(|before| self.starts[before].into())
    }

    /// The length of the longest period.
    pub fn longest(&self) -> Span {
        Span::from_secs(self.longest.into())
    }
}
