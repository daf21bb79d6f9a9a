//! `h2` as it is written.

use super::at::At;
use super::read::{Read, entries, mapping, not_available, unknown_key};
use super::report::{Place, Report};
use super::shorthand::RawCount;
use super::yaml_tree::Node;

mapping! {
    /// What one HTTP/2 connection may send of frames that cost their sender nothing, at once; who sends more is cut off.
    "h2"
    struct RawH2 {
        /// Requests that are taken back within 20 ms (CVE-2023-44487). Default: 40.
        resets: RawCount,
        /// Requests that the gateway has to reset for their mistakes (CVE-2025-8671). Default: 30.
        errors: RawCount,
        /// SETTINGS (CVE-2019-9515). Default: 20.
        settings: RawCount,
        /// PING (CVE-2019-9512). Default: 40.
        pings: RawCount,
        /// DATA with nothing in it (CVE-2019-9518). Default: 40.
        empty_data: RawCount,
        /// Heads that unpack to more than `max_head` (CVE-2016-6581). Default: 20.
        large_heads: RawCount,
        /// PRIORITY and PRIORITY_UPDATE (CVE-2019-9513). Default: 50.
        priorities: RawCount,
        /// WINDOW_UPDATE (CVE-2019-9511). Default: 60.
        window_updates: RawCount,
        /// GOAWAY and frames of unknown kinds. Default: 40.
        others: RawCount,
    }
}
