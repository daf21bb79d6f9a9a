//! What a limit does with requests above it, as it is written: `penalty` and `burst_credit`.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
use crate::read::mapping;

mapping! {
    /// A slower lane for requests above the limit.
    "penalty"
    struct RawPenalty {
        /// The rate at which requests of a key leave the lane: 1/s.
        #[schemars(required, with = "Option<hints::Rate>")]
        rate: RawText,
        /// The most requests of a key that wait in it; others are refused. Default: 100.
        #[schemars(extend("minimum" = 1, "maximum" = 10_000))]
        waiters: RawCount,
    }
}

mapping! {
    /// Unused quota that is saved for a burst.
    "burst_credit"
    struct RawBurstCredit {
        /// The most periods of the rate whose unused quota is saved.
        #[schemars(required, extend("minimum" = 1, "maximum" = 10_000))]
        periods: RawCount,
    }
}
