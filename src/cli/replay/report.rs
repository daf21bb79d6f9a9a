//! The report of a replay.

use crate::replay::{Replay, Unmatched};
use sluicegate_config::Config;

/// The number of unreadable lines that are listed.
const MAX_LISTED: usize = 5;
/// The number of unmatched targets, and of reasons, that are listed.
const MAX_UNMATCHED: usize = 3;
/// The bytes of a text from a log that are shown.
const MAX_TEXT: usize = 200;

/// The totals of all logs.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) unmatched: u64,
    pub(super) delayed: u64,
    unreadable: u64,
    listed: Vec<String>,
}

/// `format!` with a line feed.
macro_rules! line {
    ($($argument:tt)*) => { format!($($argument)*) + "\n" };
}

/// A text from a log on one line, without control characters for the terminal.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            _ if out.len() >= MAX_TEXT => {
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
        self.admitted + self.refused + self.unmatched
    }

    pub(super) fn unreadable(&mut self, line: String) {
        self.unreadable += 1;
        if self.listed.len() < MAX_LISTED {
            self.listed.push(line);
        }
    }

    pub(super) fn text(&self, replay: &Replay<'_>) -> String {
        let mut out = String::new();
        let decided = self.decided();
        let share = |n: u64| if decided == 0 { 0.0 } else { n as f64 * 100.0 / decided as f64 };
        out += &line!("{decided} {}", if decided == 1 { "request" } else { "requests" });
        out += &line!("{:>12} admitted   {:5.1} %", self.admitted, share(self.admitted));
        out += &line!("{:>12} refused    {:5.1} %", self.refused, share(self.refused));
        out += &line!("{:>12} unmatched  {:5.1} %", self.unmatched, share(self.unmatched));
        if self.delayed > 0 {
            out += &line!("{:>12} of those admitted would have been held for a while", self.delayed);
        }
        if !replay.limits.is_empty() {
            out += &line!("\n{:<24} {:>12} {:>12} {:>14}", "limit", "admitted", "refused", "shadow refused");
            for (name, count) in &replay.limits {
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
        if replay.without_duration > 0 {
            out += &line!(
                "\n{} requests hold a place of a concurrency limit but say no `duration`: \
                 they counted as if they had ended at once",
                replay.without_duration
            );
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
}
