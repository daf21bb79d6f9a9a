//! `rules` as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::raw::scalars::{RawCount, RawSecret};
use crate::read::mapping;

mapping! {
    /// Where rules are kept, one of file, redis and url: other numbers of a limit for single keys, managed over the admin API.
    "rules"
    struct RawRules {
        /// The file of the rules, which the gateway creates (SQLite). It belongs to one gateway.
        #[schemars(with = "Option<hints::File>")]
        file: RawText,
        /// Whether the rules are kept in the Redis of `store`, for all gateways that share it. Default: false.
        redis: bool,
        /// A service of yours that knows the rules, which is only read: https://…, or http:// on this machine only.
        url: RawText,
        /// The authorities that sign its certificate: a PEM file. Default: those of the system.
        ca: RawText,
        /// A token that it gets, as `Authorization: Bearer`. Default: none.
        token: RawSecret,
        /// How long its answer for a key may take. Default: 250ms.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
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
