//! `fair` as it is written.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::read::{Named, OneOrMany, mapping};
use super::scalars::RawCount;
use super::scalars::RawText;

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
