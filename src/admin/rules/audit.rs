//! Who changed which rules: a line in the process log for each request, and a line in the access log for each rule if that
//! is JSON.

use serde_json::json;
use sluicegate_rules::{Effect, Outcome, Written};

use super::{Admin, Writer, json_of};
use sluicegate_config::LogFormat;

/// The number of lines that are passed to the access log at once.
const LINES: usize = 256;

impl Admin {
    /// Logs changes that were written.
    pub(super) fn audit(&self, by: &Writer, written: &Written) {
        let changed: Vec<&Outcome> =
            written.results.iter().filter(|outcome| outcome.effect != Effect::Unchanged).collect();
        let Some(first) = changed.first() else { return };
        let id = |outcome: &Outcome| {
            let stored = outcome.after.as_ref().or(outcome.before.as_ref());
            stored.map_or_else(String::new, |stored| stored.rule.id.clone())
        };
        let (actor, peer, version) = (&by.actor, by.peer, written.version);
        match changed.len() {
            1 => tracing::info!("{actor} ({peer}) changed rule {}: version {version}", id(first)),
            count => tracing::info!("{actor} ({peer}) changed {count} rules: version {version}"),
        }
        let format = by.snapshot.config.access_log.as_ref().map(|log| &log.format);
        let Some(log) = self.shared.access_log.load_full() else { return };
        if !matches!(format, Some(LogFormat::Json)) {
            return;
        }
        let time = self.shared.clock.wall().to_string();
        for part in changed.chunks(LINES) {
            let mut lines = String::new();
            for outcome in part {
                let line = json!({
                    "time": time,
                    "kind": "rule",
                    "actor": actor,
                    "client": peer.to_string(),
                    "id": id(outcome),
                    "version": version,
                    "before": outcome.before.as_ref().map(json_of),
                    "after": outcome.after.as_ref().map(json_of),
                });
                lines.push_str(&line.to_string());
                lines.push('\n');
            }
            log.push(lines.as_bytes(), part.len() as u64);
        }
    }
}
