//! The scripts that run on the server.
//!
//! Each is the common part, the algorithms it needs, and one operation. They run on Redis 6.2 and later and on
//! Valkey; a script reads the clock and each key once, decides, and writes what has changed. What they keep under
//! a key is told at the top of each algorithm's file. All numbers of a reply are whole.

/// Decides requests: checks all keys, then charges all, for each of so many identical requests in turn.
///
/// `ARGV`: the deadline in microseconds of the server's clock (0: none), how many requests (0: only looks and
/// changes nothing), 8 bytes that stand for this gateway, the lease of its places in microseconds, and an
/// [`argument`](super::argument) for each of `KEYS`. The reply is a [`Reply`](super::Reply).
pub const DECIDE: &str = concat!(
    include_str!("common.lua"),
    include_str!("bucket.lua"),
    include_str!("window.lua"),
    include_str!("sliding.lua"),
    include_str!("log.lua"),
    include_str!("concurrency.lua"),
    include_str!("decide.lua"),
);

/// Takes charges back.
///
/// `ARGV`: the 8 bytes of this gateway, and a [`refund_argument`](super::refund_argument) for each of `KEYS`. The
/// reply is a [`Told`](super::Told).
pub const REFUND: &str = concat!(
    include_str!("common.lua"),
    include_str!("bucket.lua"),
    include_str!("window.lua"),
    include_str!("sliding.lua"),
    include_str!("log.lua"),
    include_str!("concurrency.lua"),
    include_str!("refund.lua"),
);

/// Charges what was spent while the store was out of reach, as far as it fits.
///
/// `ARGV`: a [`spend_argument`](super::spend_argument) for each of `KEYS`. The reply is a [`Told`](super::Told).
pub const SPEND: &str = concat!(
    include_str!("common.lua"),
    include_str!("bucket.lua"),
    include_str!("window.lua"),
    include_str!("sliding.lua"),
    include_str!("log.lua"),
    include_str!("concurrency.lua"),
    include_str!("spend.lua"),
);

/// Gives the places of a gateway more time.
///
/// `ARGV`: the 8 bytes of this gateway, the 8 bytes that it had before or nothing, the lease in microseconds, and
/// for each of `KEYS` the places that it holds there. These are counted where it was not known, or had another
/// name; otherwise only their time is extended. The reply is a [`Told`](super::Told).
pub const RENEW: &str =
    concat!(include_str!("common.lua"), include_str!("concurrency.lua"), include_str!("renew.lua"));
