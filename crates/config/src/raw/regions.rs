//! `regions` as it is written.

use crate::raw::scalars::RawText;
use crate::raw::store::RawHomeRedis;
use crate::read::at::At;
use crate::read::{Named, mapping};

mapping! {
    /// Several regions, each with a store and gateways of its own, that divide the shared limits among them.
    "regions"
    struct RawRegions {
        /// The region of this gateway, one of `floors`; such as ${REGION}, so that all gateways have the same file.
        #[schemars(required)]
        name: RawText,
        /// The part of each shared limit that a region always has: {frankfurt: 50%, sydney: 30%}, together 100% at most.
        #[schemars(required)]
        floors: Named<At<RawText>>,
        /// The store that lends the rest of the rates to the regions that need it. Not asked by requests.
        home: RawHome,
    }
}

mapping! {
    /// The store that lends parts of rates to regions. One for all of them; it may be that of a region.
    "regions.home"
    struct RawHome {
        /// A Redis: one server (url), a cluster, or a master that sentinels monitor.
        #[schemars(required)]
        redis: RawHomeRedis,
    }
}
