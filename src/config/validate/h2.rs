//! HTTP/2 clients: the budgets of their frames.

use sluicegate_wire::h2::{AbortReason, FloodLimits};

use super::super::raw::RawConfig;
use super::super::report::Report;
use super::in_range;

pub(super) fn h2(raw: &RawConfig, report: &mut Report) -> FloodLimits {
    let mut h2 = FloodLimits::default();
    let Some(raw) = raw.h2.as_ref().map(|raw| &raw.value) else { return h2 };
    let given = [
        &raw.resets,
        &raw.errors,
        &raw.settings,
        &raw.pings,
        &raw.empty_data,
        &raw.large_heads,
        &raw.priorities,
        &raw.window_updates,
        &raw.others,
    ];
    for ((budget, given), name) in h2.budgets.iter_mut().zip(given).zip(AbortReason::NAMES) {
        let floor = given.as_ref().and_then(|count| in_range(count, 1..=1_000_000, name, report));
        if let Some(floor) = floor {
            *budget = budget.with_floor(floor as u32);
        }
    }
    h2
}
