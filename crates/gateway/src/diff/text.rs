//! The differences as text.

use std::fmt::Write;

use super::{Changes, Diff, Fate};

impl Fate {
    /// The mark at the beginning of a line.
    const fn mark(self) -> char {
        match self {
            Self::Kept => '=',
            Self::Rescaled => '~',
            Self::Lost => '!',
            Self::New => '+',
            Self::Removed => '-',
        }
    }
}

impl Diff {
    /// One line: how many limits are kept, rescaled, lost, new and removed, and which lose their counters and why.
    pub fn summary(&self) -> String {
        let count = |fate: Fate| self.limits.iter().filter(|limit| limit.fate == fate).count();
        let counts: Vec<String> = Fate::ALL
            .iter()
            .map(|fate| (count(*fate), fate.name()))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        let mut out = match counts.is_empty() {
            true => "no limits".to_owned(),
            false => format!("limits: {}", counts.join(", ")),
        };
        for limit in self.limits.iter().filter(|limit| limit.fate == Fate::Lost) {
            let keys =
                limit.keys.map_or_else(String::new, |keys| format!("; keys that start at zero: {keys}"));
            let _ = write!(out, "; `{}` loses its counters ({}{keys})", limit.name, limit.why);
        }
        for (what, changes) in self.others() {
            if !changes.is_empty() {
                let _ = write!(out, "; {what}: {}", changes.counts());
            }
        }
        if !self.settings.is_empty() {
            let _ = write!(out, "; changed: {}", self.settings.join(", "));
        }
        out
    }

    /// A line for each difference, and for each limit.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for limit in &self.limits {
            let keys = limit.keys.map_or_else(String::new, |keys| {
                format!(" {keys} {}", if keys == 1 { "key" } else { "keys" })
            });
            let why = if limit.why.is_empty() { String::new() } else { format!("  ({})", limit.why) };
            let line =
                format!("{} limit {:<24} {:<8}{keys}{why}", limit.fate.mark(), limit.name, limit.fate.name());
            let _ = writeln!(out, "{}", line.trim_end());
        }
        for (what, changes) in self.others() {
            let one = what.trim_end_matches('s');
            changes.added.iter().for_each(|name| _ = writeln!(out, "+ {one} {name}"));
            changes.removed.iter().for_each(|name| _ = writeln!(out, "- {one} {name}"));
            for changed in &changes.changed {
                let _ = writeln!(out, "~ {one} {}: {}", changed.name, changed.fields.join(", "));
            }
            if changes.reordered {
                let _ = writeln!(out, "~ {what} come in another order");
            }
        }
        self.settings.iter().for_each(|name| _ = writeln!(out, "~ {name}"));
        out
    }

    fn others(&self) -> [(&'static str, &Changes); 3] {
        [("routes", &self.routes), ("listeners", &self.listeners), ("upstreams", &self.upstreams)]
    }
}

impl Changes {
    fn counts(&self) -> String {
        let counts =
            [(self.added.len(), "added"), (self.removed.len(), "removed"), (self.changed.len(), "changed")];
        let mut parts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if self.reordered {
            parts.push("reordered".to_owned());
        }
        parts.join(", ")
    }
}
