//! How many frames that cost their sender nothing a connection may send.

use super::AbortReason;

/// How many frames of one kind a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameBudget {
    /// Frames at once, on a connection that has not done anything yet.
    pub floor: u32,
    /// Frames that are added each second until the budget is `floor` again.
    pub per_second: u32,
    /// The most frames that a connection can earn by useful work.
    pub most: u32,
}

/// The budgets of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// By [`AbortReason`], without [`Slow`](AbortReason::Slow) and [`Protocol`](AbortReason::Protocol).
    pub budgets: [FrameBudget; BUDGETS],
}

/// The number of kinds of frames that have a budget: the first ones of [`AbortReason`].
pub const BUDGETS: usize = AbortReason::Others as usize + 1;

const fn budget(floor: u32, per_second: u32, most: u32) -> FrameBudget {
    FrameBudget { floor, per_second, most }
}

impl Default for FloodLimits {
    /// docs/configuration.md documents these numbers.
    fn default() -> Self {
        Self {
            budgets: [
                // CVE-2023-44487 (Rapid Reset). Each response earns one, up to the 500 streams after which
                // Envoy checks the share of premature resets: a client that has half of its requests answered is served.
                budget(40, 10, 500),
                // CVE-2025-8671 (MadeYouReset), CVE-2019-9514 (reset flood), CVE-2019-9516 (empty heads), CVE-2024-24549
                // and CVE-2024-27316 (endless heads). Each body that was not read to its end earns eight.
                budget(30, 2, 1_000),
                // CVE-2019-9515 (SETTINGS flood).
                budget(20, 1, 20),
                // CVE-2019-9512 (PING flood). Each frame of a response earns one, for clients that measure
                // the bandwidth.
                budget(40, 10, 1_000),
                // CVE-2019-9518 (empty frames).
                budget(40, 2, 40),
                // CVE-2016-6581 (HPACK bomb), in heads that are small enough to be answered.
                budget(20, 1, 20),
                // CVE-2019-9513 (resource loop). Each request earns two.
                budget(50, 5, 500),
                // CVE-2019-9511 (data dribble). Each DATA frame earns ten, each request four.
                budget(60, 10, 5_000),
                // CVE-2019-9512 and the like with frames of other types. Each request earns one.
                budget(40, 5, 200),
            ],
        }
    }
}

impl FrameBudget {
    /// The budget with another `floor`; the other numbers keep their proportion to it.
    #[must_use]
    pub fn with_floor(self, floor: u32) -> Self {
        let in_proportion = |number: u32| {
            let scaled = (u64::from(number) * u64::from(floor)).div_ceil(u64::from(self.floor));
            u32::try_from(scaled).unwrap_or(u32::MAX)
        };
        Self { floor, per_second: in_proportion(self.per_second), most: in_proportion(self.most) }
    }
}
