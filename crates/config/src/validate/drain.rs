//! How the gateway goes down.

use std::time::Duration;

use super::value;
use crate::drain::DrainConfig;
use crate::raw::RawConfig;
use crate::report::{Mistake, Report};
use crate::values;

/// Whoever waits longer for balancers has mistaken the unit.
const LONGEST_DELAY: Duration = Duration::from_secs(3_600);

pub(super) fn drain(raw: &RawConfig, report: &mut Report) -> DrainConfig {
    let default = DrainConfig::default();
    let Some(raw) = &raw.drain else { return default };
    let fields = &raw.value.0;
    let delay = fields.delay.as_ref().and_then(|text| {
        value(text, report, |text| match values::duration(text)? {
            delay if delay <= LONGEST_DELAY => Ok(delay),
            _ => Err(Mistake::new(format!("`delay` is at most 1h, not {text}"))),
        })
    });
    let deadline = fields.deadline.as_ref().and_then(|text| value(text, report, values::duration));
    DrainConfig { delay: delay.unwrap_or(default.delay), deadline: deadline.unwrap_or(default.deadline) }
}
