//! `fair` as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::{Named, OneOrMany, mapping};

mapping! {
    /// Fair shares among consumers, by what they ask for: max-min fair.
    "fair"
    struct RawFair {
        /// Who gets a share: a key as that of a limit. Default: consumer.
        #[schemars(with = "Option<OneOrMany<hints::Key>>")]
        by: OneOrMany<At<RawText>>,
        /// The weights of plans: {pro: 4, free: 1}. Others have 1.
        #[schemars(with = "Option<std::collections::BTreeMap<String, u32>>")]
        weights: Named<RawCount>,
    }
}
