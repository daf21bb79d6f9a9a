//! HTTP/2 clients: how many frames that cost their sender nothing a connection may send.

/// What a connection may send of one kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// At once, on a connection that did nothing yet.
    pub floor: u32,
    /// Each second, until there is as much as `floor` again.
    pub per_second: u32,
    /// What is earned beyond it adds up to this.
    pub most: u32,
}

/// The budgets of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct H2Config {
    /// By [`crate::metrics::AbortReason`], the kinds of frames before `Slow`.
    pub budgets: [Budget; 9],
}

/// The names of the budgets, in their order.
pub const BUDGETS: [&str; 9] = [
    "resets",
    "errors",
    "settings",
    "pings",
    "empty_data",
    "large_heads",
    "priorities",
    "window_updates",
    "others",
];

const fn budget(floor: u32, per_second: u32, most: u32) -> Budget {
    Budget { floor, per_second, most }
}

impl Default for H2Config {
    /// docs/configuration.md tells users of these numbers.
    fn default() -> Self {
        Self {
            budgets: [
                // CVE-2023-44487 (Rapid Reset). One is earned by each answer, up to the 500 streams after which Envoy
                // looks at the share of premature resets: who has half of the requests answered is not cut off.
                budget(40, 10, 500),
                // CVE-2025-8671 (MadeYouReset), CVE-2019-9514 (reset flood), CVE-2019-9516 (empty heads), CVE-2024-24549
                // and CVE-2024-27316 (endless heads). Eight are earned by each body that was not read to its end.
                budget(30, 2, 1_000),
                // CVE-2019-9515 (SETTINGS flood).
                budget(20, 1, 20),
                // CVE-2019-9512 (PING flood). One is earned by each frame of an answer, for clients that measure the path.
                budget(40, 10, 1_000),
                // CVE-2019-9518 (empty frames).
                budget(40, 2, 40),
                // CVE-2016-6581 (HPACK bomb), in heads that are small enough to be answered.
                budget(20, 1, 20),
                // CVE-2019-9513 (resource loop). Two are earned by each request.
                budget(50, 5, 500),
                // CVE-2019-9511 (data dribble). Ten are earned by each frame of data, four by each request.
                budget(60, 10, 5_000),
                // CVE-2019-9512 and its like with frames of other kinds. One is earned by each request.
                budget(40, 5, 200),
            ],
        }
    }
}

impl Budget {
    /// The same with another number at once; the others keep their proportion to it.
    #[must_use]
    pub fn with_floor(self, floor: u32) -> Self {
        let in_proportion = |number: u32| {
            let scaled = (u64::from(number) * u64::from(floor)).div_ceil(u64::from(self.floor));
            u32::try_from(scaled).unwrap_or(u32::MAX)
        };
        Self { floor, per_second: in_proportion(self.per_second), most: in_proportion(self.most) }
    }
}
