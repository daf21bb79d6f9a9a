//! `regions` as it is written.

use super::at::At;
use super::raw::RawText;
use super::raw_store::RawStore;
use super::read::{Named, mapping};

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
        home: RawStore,
    }
}
