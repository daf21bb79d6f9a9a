//! `metrics` as it is written.

use crate::raw::scalars::RawCount;
use crate::read::mapping;

mapping! {
    /// What the metrics show beyond the usual.
    "metrics"
    struct RawMetrics {
        /// The number of consumers whose requests are shown by name: those with the most traffic. Default: 0, none.
        #[schemars(extend("maximum" = 1_000))]
        by_consumer: RawCount,
    }
}
