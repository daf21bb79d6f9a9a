//! The scripts that run on the server.
//!
//! Each consists of the common part, the algorithms that it needs, and one operation. They run on Redis 6.2 and later and
//! on Valkey. A script reads the clock and each key once, decides, and writes the keys that have changed. The top of the
//! file of an algorithm describes the value of its keys. All numbers of a reply are whole.

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
/// changes nothing), the 8 bytes of this holder, the lease of its places in microseconds, and an
/// [`argument`](super::protocol::argument) for each of `KEYS`. The reply is a [`Reply`](super::protocol::Reply).
///
/// A server creates all functions of a script for each call. Most requests need one algorithm, so there is a script for
/// each algorithm, and one for all.
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

/// Refunds charges.
///
/// `ARGV`: the 8 bytes of this holder, and a [`refund_argument`](super::protocol::refund_argument) for each of `KEYS`.
/// The reply is a [`StatesReply`](super::protocol::StatesReply).
pub(super) const REFUND: &str = of_all!("correct.lua", "refund.lua");

/// Charges late costs.
///
/// `ARGV`: a [`spend_argument`](super::protocol::spend_argument) for each of `KEYS`. The reply is a
/// [`StatesReply`](super::protocol::StatesReply).
pub(super) const SPEND: &str = of_all!("correct.lua", "spend.lua");

/// Charges requests that were admitted while the store did not answer.
///
/// `KEYS`: those of the limits, then one for each report. `ARGV`: a
/// [`spend_argument`](super::protocol::spend_argument) for each limit. The reply is a [`StatesReply`](super::protocol::StatesReply).
pub(super) const REPORT: &str = of_all!("correct.lua", "report.lua");

/// Finds out whether a server can run the others: uses all their commands on the one of `KEYS`. The reply is one that
/// [`check_probe`](super::protocol::check_probe) accepts.
pub(super) const PROBE: &str = script!("probe.lua");

/// Renews the leases of a holder.
///
/// `ARGV`: the 8 bytes of the holder, the 8 bytes of its former name or nothing, the lease in microseconds, and for each of
/// `KEYS` the number of places that it holds. If the holder is not known there, or had another name, its places are set to
/// this number; otherwise only their expiry is changed. The reply is a [`StatesReply`](super::protocol::StatesReply).
pub(super) const RENEW: &str = script!("concurrency.lua", "renew.lua");

/// Lends the rates of limits to regions: see the file.
pub(super) const SHARES: &str = include_str!("lua/shares.lua");
