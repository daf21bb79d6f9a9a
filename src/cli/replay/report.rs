//! What a replay says at its end.

use crate::replay::{Replay, Unmatched};
use sluicegate_config::Config;

/// Lines that are named when they cannot be read.
const NAMED: usize = 5;
/// Unmatched targets that are named, and reasons.
const TARGETS: usize = 3;
/// The bytes of a text from a log that are shown.
const LONGEST: usize = 200;

/// What was counted.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) unmatched: u64,
    pub(super) delayed: u64,
    unreadable: u64,
    named: Vec<String>,
}

/// `format!` with a line feed.
macro_rules! line {
    ($($argument:tt)*) => { format!($($argument)*) + "\n" };
}

/// A text from a log on one line, so that it cannot tell a terminal anything.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            _ if out.len() >= LONGEST => {
                out.push('…');
                break;
            }
            '"' | '\'' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}

/// The warning that most requests match no route: why, and which they are.
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
    for (misses, count) in unmatched.missed().into_iter().take(TARGETS) {
        let names: Vec<&str> = misses.names().collect();
        out += &line!("{count:>12} differ from the nearest route in: {}", names.join(", "));
    }
    let missed = |part| unmatched.missed().iter().any(|(misses, _)| misses.names().any(|name| name == part));
    if missed("host") && unmatched.nameless > 0 {
        out += &line!("  the log names no host for {} of them: say it with --host HOST", unmatched.nameless);
    }
    if missed("listener") {
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
    for (target, count) in unmatched.targets.top(TARGETS) {
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
        if self.named.len() < NAMED {
            self.named.push(line);
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
                let tried = count.candidate_refused;
                let tried =
                    if tried > 0 { format!("   its candidate would refuse {tried}") } else { String::new() };
                out += &line!(
                    "{name:<24} {:>12} {:>12} {:>14}{tried}",
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
            for line in &self.named {
                out += &line!("  {line}");
            }
            if self.unreadable > self.named.len() as u64 {
                out += &line!("  …");
            }
        }
        out
    }
}
