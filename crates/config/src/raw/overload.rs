//! `priorities`, and `overload` of an upstream, as they are written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::{Named, mapping};

mapping! {
    /// How important the requests of plans and consumers are, where an upstream has `overload`.
    "priorities"
    struct RawPriorities {
        /// The priority of the requests of each plan: critical, default or sheddable. Comes before that of the route.
        plans: Named<At<RawText>>,
        /// The priority of the requests of each consumer. Comes before that of its plan.
        consumers: Named<At<RawText>>,
        /// A header in which trusted proxies name the priority of a request. Comes before all others; removed from the requests
        /// of others.
        #[schemars(with = "Option<hints::Header>")]
        header: RawText,
        /// Whether upstreams are told the priority in that header. Default: false.
        forward: bool,
    }
}

mapping! {
    /// Protection of the gateway itself from overload.
    "overload"
    struct RawOwnOverload {
        /// The memory that the gateway may use: refusals begin at 85 % and end at 95 %. Default: what the system allows.
        #[schemars(with = "Option<hints::Size>")]
        max_memory: RawText,
        /// How late a worker may be: refusals begin at a fifth of it. Default: 100ms.
        #[schemars(with = "Option<hints::Duration>")]
        max_delay: RawText,
    }
}

mapping! {
    /// How many requests the upstream may have in flight, and who waits or is refused (503) above that.
    "overload"
    struct RawOverload {
        /// The most requests in flight, of all workers together. Default: 1000.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000_000))]
        max_in_flight: RawCount,
        /// The least that `adaptive` goes down to. Default: 10.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000_000))]
        min_in_flight: RawCount,
        /// Whether the limit follows the throughput and the times of the upstream. Otherwise it is `max_in_flight`.
        /// Default: true.
        adaptive: bool,
        /// The time that requests should take at most on average: the limit falls when they take longer.
        #[schemars(with = "Option<hints::Duration>")]
        latency_target: RawText,
        /// The requests that wait.
        queue: RawOverloadQueue,
        /// The part of the limit that other requests leave free for critical ones while there are any.
        reserve: RawReserve,
    }
}

mapping! {
    /// The requests that wait.
    "overload.queue"
    struct RawOverloadQueue {
        /// The most, of all priorities together; 0 for none. Default: 500.
        #[schemars(extend("maximum" = 100_000))]
        size: RawCount,
        /// The longest that a critical request waits; default ones wait half of it, sheddable ones a fifth; under overload a fifth and a 25th. Default: 1s.
        #[schemars(with = "Option<hints::Duration>")]
        deadline: RawText,
    }
}

mapping! {
    /// What is kept for some.
    "overload.reserve"
    struct RawReserve {
        /// For critical requests. Default: 20%.
        critical: RawText,
    }
}
