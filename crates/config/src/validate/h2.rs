//! HTTP/2 clients: the budgets of their frames.

use super::in_range;
use crate::at::At;
use crate::h2::H2Config;
use crate::raw::RawConfig;
use crate::report::Report;
use crate::shorthand::RawCount;

pub(super) fn h2(raw: &RawConfig, report: &mut Report) -> H2Config {
    let Some(raw) = raw.h2.as_ref().map(|raw| &raw.value) else { return H2Config::default() };
    let mut budget = |given: &Option<At<RawCount>>, name: &str| {
        let floor = given.as_ref().and_then(|count| in_range(count, 1..=1_000_000, name, report));
        floor.map(|floor| floor as u32)
    };
    H2Config {
        resets: budget(&raw.resets, "resets"),
        errors: budget(&raw.errors, "errors"),
        settings: budget(&raw.settings, "settings"),
        pings: budget(&raw.pings, "pings"),
        empty_data: budget(&raw.empty_data, "empty_data"),
        large_heads: budget(&raw.large_heads, "large_heads"),
        priorities: budget(&raw.priorities, "priorities"),
        window_updates: budget(&raw.window_updates, "window_updates"),
        others: budget(&raw.others, "others"),
    }
}
