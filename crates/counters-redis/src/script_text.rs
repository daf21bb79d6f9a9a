//! The scripts that run on the server.
//!
//! Each is the common part, the algorithms it needs, and one operation. They run on Redis 6.2 and later and on
//! Valkey; a script reads the clock and each key once, decides, and writes what has changed. What they keep under
//! a key is told at the top of each algorithm's file. All numbers of a reply are whole.

use super::protocol::Algorithms;

macro_rules! script {
    ($($file:literal),+) => { concat!(include_str!("lua/common.lua"), $(include_str!(concat!("lua/", $file))),+) };
}

macro_rules! of_all {
    ($($operation:literal),+) => {
        script!("bucket.lua", "window.lua", "sliding.lua", "log.lua", "concurrency.lua", $($operation),+)
    };
}

/// Decides requests: checks all keys, then charges all, for each of so many identical requests in turn.
///
/// `ARGV`: the deadline in microseconds of the server's clock (0: none), how many requests (0: only looks and
/// changes nothing), 8 bytes that stand for this gateway, the lease of its places in microseconds, and an
/// [`argument`](super::protocol::argument) for each of `KEYS`. The reply is a [`Reply`](super::protocol::Reply).
///
/// A server makes all functions of a script anew for each call, so there is one for each algorithm alone, as most
/// requests need it, beside the one for all.
pub(super) const fn decide(algorithms: Algorithms) -> &'static str {
    match algorithms {
        Algorithms::Buckets => script!("bucket.lua", "decide.lua"),
        Algorithms::FixedWindow => script!("window.lua", "decide.lua"),
        Algorithms::SlidingWindow => script!("sliding.lua", "decide.lua"),
        Algorithms::SlidingLog => script!("log.lua", "decide.lua"),
        Algorithms::Concurrency => script!("concurrency.lua", "decide.lua"),
        Algorithms::Several => of_all!("decide.lua"),
    }
}

/// Takes charges back.
///
/// `ARGV`: the 8 bytes of this gateway, and a [`refund_argument`](super::protocol::refund_argument) for each of `KEYS`.
/// The reply is a [`StatesReply`](super::protocol::StatesReply).
pub(super) const REFUND: &str = of_all!("correct.lua", "refund.lua");

/// Charges late costs.
///
/// `ARGV`: a [`spend_argument`](super::protocol::spend_argument) for each of `KEYS`. The reply is a
/// [`StatesReply`](super::protocol::StatesReply).
pub(super) const SPEND: &str = of_all!("correct.lua", "spend.lua");

/// Charges what was admitted while the store did not answer.
///
/// `KEYS`: those of the limits, then as many that stand for the reports. `ARGV`: a
/// [`spend_argument`](super::protocol::spend_argument) for each limit. The reply is a [`StatesReply`](super::protocol::StatesReply).
pub(super) const REPORT: &str = of_all!("correct.lua", "report.lua");

/// Finds out whether a server can run the others: uses all their commands on the one of `KEYS`. The reply is one that
/// [`tried`](super::protocol::tried) accepts.
pub(super) const TRY: &str = script!("try.lua");

/// Gives the places of a gateway more time.
///
/// `ARGV`: the 8 bytes of this gateway, the 8 bytes that it had before or nothing, the lease in microseconds, and
/// for each of `KEYS` the places that it holds there. These are counted where it was not known, or had another
/// name; otherwise only their time is extended. The reply is a [`StatesReply`](super::protocol::StatesReply).
pub(super) const RENEW: &str = script!("concurrency.lua", "renew.lua");
