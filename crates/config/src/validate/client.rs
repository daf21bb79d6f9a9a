//! Limits of client connections: timeouts, rates, sizes, HTTP/2 frames, and the drain.

use std::time::Duration;

use super::checks::{at_most, in_range, value};
use super::underscores;
use crate::language::values;
use crate::model::client::{ClientConfig, DrainConfig, H2Config};
use crate::raw::RawConfig;
use crate::raw::scalars::RawCount;
use crate::read::at::At;
use crate::read::report::{Mistake, Report};

/// The longest time that can be meant: a longer one is a mistake of the unit.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn client(raw: &RawConfig, report: &mut Report) -> ClientConfig {
    let usual = ClientConfig::default();
    let times = raw.timeouts.as_ref().map(|times| &times.value);
    let mut time = |text: Option<&At<String>>| text.and_then(|text| timeout(text, report));
    let head = time(times.and_then(|t| t.head.as_ref())).unwrap_or(usual.head);
    let body = time(times.and_then(|t| t.body.as_ref())).unwrap_or(usual.body);
    let idle = time(times.and_then(|t| t.idle.as_ref())).unwrap_or(usual.idle);
    let write = time(times.and_then(|t| t.write.as_ref())).unwrap_or(usual.write);
    let request = time(times.and_then(|t| t.request.as_ref()));
    let min_body_rate = raw.min_body_rate.as_ref().and_then(|text| value(text, report, values::bytes));
    let min_send_rate = raw.min_send_rate.as_ref().and_then(|text| value(text, report, values::bytes));
    let max_target = raw.max_target.as_ref().and_then(|text| max_target(text, report));
    let max_headers = raw.max_headers.as_ref().and_then(|n| in_range(n, 10..=256, "max_headers", report));
    ClientConfig {
        head,
        body,
        idle,
        write,
        request,
        min_body_rate: min_body_rate.unwrap_or(usual.min_body_rate),
        min_send_rate: min_send_rate.unwrap_or(usual.min_send_rate),
        max_headers: max_headers.map_or(usual.max_headers, |n| n as usize),
        max_target: max_target.map_or(usual.max_target, |n| n as usize),
        underscores: underscores::forwarded(raw, report),
    }
}

/// A time that somebody waits for somebody.
pub(super) fn timeout(text: &At<String>, report: &mut Report) -> Option<Duration> {
    value(text, report, |text| match values::duration(text)? {
        Duration::ZERO => Err(Mistake::new("a timeout is longer than nothing")),
        duration if duration > LONGEST => Err(Mistake::new(format!("a timeout is at most 24h, not {text}"))),
        duration => Ok(duration),
    })
}

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

/// The longest delay before a drain. A longer one is probably a mistake of the unit.
const LONGEST_DELAY: Duration = Duration::from_secs(3_600);

pub(super) fn drain(raw: &RawConfig, report: &mut Report) -> DrainConfig {
    let default = DrainConfig::default();
    let Some(raw) = &raw.drain else { return default };
    let fields = &raw.value.0;
    let delay = fields.delay.as_ref().and_then(|text| at_most(text, "delay", (LONGEST_DELAY, "1h"), report));
    let deadline = fields.deadline.as_ref().and_then(|text| value(text, report, values::duration));
    DrainConfig { delay: delay.unwrap_or(default.delay), deadline: deadline.unwrap_or(default.deadline) }
}

fn max_target(text: &At<String>, report: &mut Report) -> Option<u64> {
    value(text, report, |text| match values::bytes(text)? {
        bytes @ 0x400..=0x10_0000 => Ok(bytes),
        _ => Err(Mistake::new(format!("`max_target` is between 1KiB and 1MiB, not {text}"))
            .help("heads have at most `max_head` bytes, of which it is a part")),
    })
}
