//! The report of a replay.

use crate::replay::{Finding, Input, Unmatched};
use serde_json::Value;
use sluicegate_config::Config;

/// The number of unreadable lines that are listed.
const MAX_LISTED: usize = 5;
/// The number of unmatched targets, and of reasons, that are listed.
const MAX_UNMATCHED: usize = 3;
/// The bytes of a text from a log that are shown.
const MAX_TEXT: usize = 200;

/// The keys that are listed for each limit.
const MAX_KEYS: usize = 5;
/// The characters of a plot, and those that it is made of.
const PLOT_WIDTH: usize = 64;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The totals of all logs.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) unmatched: u64,
    pub(super) delayed: u64,
    pub(super) queued: u64,
    /// The lines that were read.
    pub(super) lines: u64,
    pub(super) unreadable: u64,
    listed: Vec<String>,
}

/// `format!` with a line feed.
macro_rules! line {
    ($($argument:tt)*) => { format!($($argument)*) + "\n" };
}

/// A text from a log on one line, without control characters for the terminal.
pub(super) fn escaped(text: &str) -> String {
    escaped_to(text, MAX_TEXT)
}

/// The same of a sentence, which is not shortened.
fn escaped_whole(text: &str) -> String {
    escaped_to(text, usize::MAX)
}

fn escaped_to(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            _ if out.len() >= most => {
                out.push('…');
                break;
            }
            '"' | '\'' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}

/// The warning that most requests match no route, with reasons and targets.
pub(super) fn of_unmatched(
    totals: &Totals,
    unmatched: &Unmatched,
    config: &Config,
    listener: usize,
) -> String {
    let mut out = line!(
        "{} of {} requests match no route, so no limit judged them",
        totals.unmatched,
        totals.decided()
    );
    if unmatched.malformed > 0 {
        out += &line!(
            "{:>12} are refused before a route is looked for: their path, host, method or headers are ambiguous or \
             not served",
            unmatched.malformed
        );
    }
    let explained = unmatched.explained();
    if explained > 0 && explained < totals.unmatched - unmatched.malformed {
        out += &line!("  why, of the first {explained}:");
    }
    for (parts, count) in unmatched.differences().into_iter().take(MAX_UNMATCHED) {
        let names: Vec<&str> = parts.names().collect();
        out += &line!("{count:>12} differ from the nearest route in: {}", names.join(", "));
    }
    let differs =
        |part| unmatched.differences().iter().any(|(parts, _)| parts.names().any(|name| name == part));
    if differs("host") && unmatched.without_host > 0 {
        out +=
            &line!("  the log names no host for {} of them: say it with --host HOST", unmatched.without_host);
    }
    if differs("listener") {
        let name = |index: usize| config.listeners[index].name.as_str();
        let others = (0..config.listeners.len()).filter(|other| *other != listener);
        let others: Vec<&str> = others.map(name).collect();
        out += &line!(
            "  they were taken to have come in on the listener {}: choose with --listener ({})",
            name(listener),
            others.join(", ")
        );
    }
    out += "  the most frequent:";
    let least = if unmatched.targets.lost > 0 { "at least " } else { "" };
    for (target, count) in unmatched.targets.top(MAX_UNMATCHED) {
        out += &format!("\n{:>21} {}", format!("{least}{count}"), escaped(target));
    }
    out
}

impl Totals {
    pub(super) fn decided(&self) -> u64 {
        self.admitted + self.queued + self.refused + self.unmatched
    }

    pub(super) fn unreadable(&mut self, line: String) {
        self.unreadable += 1;
        if self.listed.len() < MAX_LISTED {
            self.listed.push(line);
        }
    }

    pub(super) fn text(&self, input: &Input<'_>) -> String {
        let replay = input.replay;
        let mut out = String::new();
        out += "Can this be trusted?\n";
        for Finding { level, text } in &input.trust {
            out += &line!("{:>8}  {}", level.name(), escaped_whole(text));
        }
        out += "\n";
        let decided = self.decided();
        let share = |n: u64| if decided == 0 { 0.0 } else { n as f64 * 100.0 / decided as f64 };
        out += &line!("{decided} {}", if decided == 1 { "request" } else { "requests" });
        out += &line!("{:>12} admitted   {:5.1} %", self.admitted, share(self.admitted));
        out += &line!("{:>12} refused    {:5.1} %", self.refused, share(self.refused));
        out += &line!("{:>12} unmatched  {:5.1} %", self.unmatched, share(self.unmatched));
        if self.queued > 0 {
            out += &line!("{:>12} queued     {:5.1} %", self.queued, share(self.queued));
        }
        if self.delayed > 0 {
            out += &line!("{:>12} of those admitted would have been held for a while", self.delayed);
        }
        let limits = replay.limits();
        if !limits.is_empty() {
            out += &line!("\n{:<24} {:>12} {:>12} {:>14}", "limit", "admitted", "refused", "shadow refused");
            for (_, name, count) in limits {
                let candidate = match count.candidate_refused {
                    0 => String::new(),
                    refused => format!("   its candidate would refuse {refused}"),
                };
                out += &line!(
                    "{name:<24} {:>12} {:>12} {:>14}{candidate}",
                    count.admitted,
                    count.refused,
                    count.shadow_refused
                );
            }
        }
        out += &self.plots(input);
        if replay.without_duration > 0 {
            out += &line!(
                "\n{} requests hold a place of a concurrency limit but say no `duration`: \
                 they counted as if they had ended at once",
                replay.without_duration
            );
        }
        for assumption in &input.assumptions {
            out += &line!("\n{assumption}");
        }
        if self.unreadable > 0 {
            let lines = if self.unreadable == 1 { "line" } else { "lines" };
            out += &line!("\n{} {lines} could not be read and skipped:", self.unreadable);
            for line in &self.listed {
                out += &line!("  {line}");
            }
            if self.unreadable > self.listed.len() as u64 {
                out += &line!("  …");
            }
        }
        out
    }

    /// What was found out about each limit that refuses, in a few lines.
    fn plots(&self, input: &Input<'_>) -> String {
        let report = input.json();
        let mut out = String::new();
        for limit in report["limits"].as_array().into_iter().flatten().filter(|limit| limit["refused"] != 0) {
            let counts = |what: &str| -> Vec<u64> {
                let all = limit["series"][what].as_array().into_iter().flatten();
                all.map(|count| count.as_u64().unwrap_or(0)).collect()
            };
            let name = limit["name"].as_str().unwrap_or_default();
            out += &line!("\n{name}: {}", limit["quota"].as_str().unwrap_or_default());
            out += &line!("    admitted {}", plot(&counts("admitted")));
            out += &line!("     refused {}", plot(&counts("refused")));
            let of = limit["clients"].as_u64().map_or_else(String::new, |all| format!(", of {all}"));
            let refused = &limit["clients_refused"];
            let keys = if *refused == 1 { "key" } else { "keys" };
            out += &line!("{:>12} {keys} with refusals{of}", number(refused));
            for key in limit["top_refused"].as_array().into_iter().flatten().take(MAX_KEYS) {
                let text = key["key"].as_str().unwrap_or("(no key)");
                out += &line!("{:>12} refused of {}", number(&key["refused"]), escaped(text));
            }
            if let Some(why) = limit["suggestion_note"].as_str() {
                out += &line!("             {}", escaped_whole(why));
            }
            for suggestion in limit["suggested"].as_array().into_iter().flatten() {
                out += &line!(
                    "{:>12} would refuse requests of {} of {} keys (at most {} %){}",
                    text(&suggestion["rate"]),
                    number(&suggestion["clients_refused"]),
                    number(&suggestion["clients"]),
                    suggestion["refused_clients"].as_f64().unwrap_or(0.0) * 100.0,
                    if suggestion["current"] == true { ", as it is" } else { "" }
                );
            }
        }
        if let Some((old, against)) = &input.against {
            out += &line!(
                "\nagainst {old}: {} requests are newly refused, of {} clients, and {} are freed, of {}",
                against.all.newly_refused,
                against.clients[0].len(),
                against.all.freed,
                against.clients[1].len()
            );
            for key in report["against"]["keys"].as_array().into_iter().flatten().take(MAX_KEYS) {
                let text = key["key"].as_str().unwrap_or("(no key)");
                out += &line!(
                    "{:>12} newly refused, {} freed of {}",
                    number(&key["newly_refused"]),
                    key["freed"],
                    escaped(text)
                );
            }
        }
        for compared in report["algorithms"].as_array().into_iter().flatten() {
            out += &line!(
                "\n{:<34} {:>10} {:>16} {:>17} {:>14}",
                format!("{}, {}", text(&compared["limit"]), text(&compared["rate"])),
                "refused",
                "wrongly refused",
                "wrongly admitted",
                "most in window"
            );
            for row in compared["rows"].as_array().into_iter().flatten() {
                let percent = |field: &str| format!("{:.3} %", row[field].as_f64().unwrap_or(0.0) * 100.0);
                out += &line!(
                    "{:<34} {:>10} {:>16} {:>17} {:>14}",
                    text(&row["label"]),
                    number(&row["refused"]),
                    percent("wrongly_refused"),
                    percent("wrongly_admitted"),
                    format!("{:.2} x", row["worst"].as_f64().unwrap_or(0.0))
                );
            }
        }
        out
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Counts over time in one line of characters.
fn plot(counts: &[u64]) -> String {
    let most = counts.len().div_ceil(PLOT_WIDTH).max(1);
    let sums: Vec<u64> = counts.chunks(most).map(|chunk| chunk.iter().sum()).collect();
    let highest = sums.iter().copied().max().unwrap_or(0).max(1);
    let bar = |sum: &u64| match sum {
        0 => ' ',
        sum => BARS[((sum * BARS.len() as u64).div_ceil(highest) as usize).clamp(1, BARS.len()) - 1],
    };
    sums.iter().map(bar).collect()
}
