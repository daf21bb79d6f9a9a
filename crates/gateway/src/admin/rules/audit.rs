//! Who changed which rules: a line in the process log for each request, and a line in the access log for each rule if that
//! is JSON.

use serde_json::json;
use sluicegate_rules::{Effect, Outcome, Written};

use super::{Admin, Writer, json_of};

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
        let time = self.shared.clock.wall().to_string();
        let line = |outcome: &Outcome| {
            json!({
                "time": time,
                "kind": "rule",
                "actor": actor,
                "client": peer.to_string(),
                "id": id(outcome),
                "version": version,
                "before": outcome.before.as_ref().map(json_of),
                "after": outcome.after.as_ref().map(json_of),
            })
        };
        self.record(&by.snapshot, changed.into_iter().map(line));
    }
}
