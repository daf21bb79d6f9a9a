//! `rules` as it is written.

#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{Later, mapping};
use super::shorthand::RawCount;

mapping! {
    /// Where rules are kept, file or redis: other numbers of a limit for single keys, managed over the admin API.
    "rules"
    struct RawRules {
        /// The file of the rules, which the gateway creates (SQLite). It belongs to one gateway.
        #[schemars(with = "Option<hints::File>")]
        file: RawText,
        /// Whether the rules are kept in the Redis of `store`, for all gateways that share it. Default: false.
        redis: bool,
        #[schemars(skip)]
        url: Later,
        #[schemars(skip)]
        token: Later,
        /// How long the rule of a key is kept in memory before it is read again. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        ttl: RawText,
        /// The longest that a request waits for the rule of its key. Then the rule that was last known applies, or the
        /// limit's own numbers. Default: 20ms.
        #[schemars(with = "Option<hints::Duration>")]
        wait: RawText,
        /// The number of keys whose rules, or that they have none, are kept in memory. Default: 1M.
        #[schemars(extend("minimum" = 1_000, "maximum" = 100_000_000))]
        max_cached: RawCount,
    }
}
