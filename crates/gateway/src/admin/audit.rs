//! What operators change is recorded: a line in the process log for each request, and lines in the access log if that is JSON.

use serde_json::{Value, json};

use super::Admin;
use super::asking::Asking;
use crate::snapshot::Snapshot;
use sluicegate_config::LogFormat;
use sluicegate_upstream::AdminState;

/// The number of lines that are passed to the access log at once.
const LINES: usize = 256;

impl Admin {
    /// Writes lines to the access log, if that is JSON.
    pub(super) fn record(&self, snapshot: &Snapshot, lines: impl ExactSizeIterator<Item = Value>) {
        let format = snapshot.config.access_log.as_ref().map(|log| &log.format);
        let Some(log) = self.shared.access_log.load_full() else { return };
        if !matches!(format, Some(LogFormat::Json)) {
            return;
        }
        let (mut text, mut count) = (String::new(), 0);
        let last = lines.len();
        for (at, line) in (1..).zip(lines) {
            text.push_str(&line.to_string());
            text.push('\n');
            count += 1;
            if count == LINES || at == last {
                log.push(text.as_bytes(), count as u64);
                text.clear();
                count = 0;
            }
        }
    }

    /// Records that the administrative state of a server, of an upstream, was changed.
    pub(super) fn audit_server_state(
        &self,
        by: &Asking,
        (upstream, server): (&str, &str),
        before: AdminState,
        after: AdminState,
    ) {
        let Asking { actor, peer } = by;
        let (before, after) = (before.name(), after.name());
        tracing::info!(
            "{actor} ({peer}) set server {server} of upstream {upstream} from {before} to {after}"
        );
        let what = json!({ "upstream": upstream, "server": server, "before": before, "after": after });
        self.record_one(&self.shared.snapshot.load(), by, "server_state", what);
    }

    /// Records that a key was pardoned. `key` is shown as the access log shows keys: a secret by its digest.
    pub(super) fn audit_pardon(&self, snapshot: &Snapshot, by: &Asking, limit: &str, key: &str) {
        let Asking { actor, peer } = by;
        let key: String = key.escape_debug().collect();
        tracing::info!("{actor} ({peer}) pardoned the key {key} of limit {limit}");
        self.record_one(snapshot, by, "pardon", json!({ "limit": limit, "key": key }));
    }

    /// Records that queued requests were dropped or queued again: one, or all that have failed.
    pub(super) fn audit_queue(&self, by: &Asking, limit: &str, change: &str, id: Option<&str>, count: u64) {
        let Asking { actor, peer } = by;
        let done = if change == "retry" { "queued again" } else { "dropped" };
        let which = id.map_or_else(|| format!("{count} failed requests"), |id| format!("request {id}"));
        tracing::info!("{actor} ({peer}): {which} of the queue of limit {limit} {done}");
        let what = json!({ "limit": limit, "change": change, "id": id, "requests": count });
        self.record_one(&self.shared.snapshot.load(), by, "queue", what);
    }

    /// Writes the line of one change, whose own members are `what`.
    fn record_one(&self, snapshot: &Snapshot, by: &Asking, kind: &str, mut what: Value) {
        what["time"] = self.shared.clock.wall().to_string().into();
        what["kind"] = kind.into();
        what["actor"] = by.actor.to_string().into();
        what["client"] = by.peer.to_string().into();
        self.record(snapshot, std::iter::once(what));
    }
}
