//! Opening the writer of the access log, and flushing it at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::worker::Command;
use crate::process_state::ProcessState;
use sluicegate_config::{AccessLogConfig, LogTarget};
use sluicegate_observe::access_log::LogWriter;
use sluicegate_observe::metrics::Metrics;

/// How long the gateway waits at its end for the lines to be written.
const FINISH: Duration = Duration::from_secs(2);

/// The writer for a configuration: `before` if it writes to the same target.
pub(super) fn open(
    config: Option<&AccessLogConfig>,
    before: Option<Arc<LogWriter>>,
    metrics: &Metrics,
) -> Result<Option<Arc<LogWriter>>, String> {
    let Some(config) = config else { return Ok(None) };
    if let Some(same) = before.filter(|before| before.is_for(&config.target)) {
        same.set_capacity(config.buffer);
        return Ok(Some(same));
    }
    let writer = LogWriter::open(&config.target, config.buffer, Arc::clone(&metrics.access_log_dropped));
    let name = || match &config.target {
        LogTarget::Stdout => "standard output".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
    };
    writer.map(|writer| Some(Arc::new(writer))).map_err(|error| {
        let line = config.written.as_ref().map(|written| written.at.line);
        let place = line.map_or_else(String::new, |line| format!(" (line {line} of the configuration)"));
        format!("cannot write the access log to {}: {error}{place}", name())
    })
}

/// Writes the lines of all requests that have ended, within a bounded time.
pub(super) async fn finish(shared: &ProcessState, workers: &[mpsc::UnboundedSender<Command>]) {
    let Some(writer) = shared.access_log.load_full() else { return };
    let (done, mut all_done) = mpsc::channel(1);
    for worker in workers {
        let _ = worker.send(Command::FlushAccessLog(done.clone())); // a worker that ended has flushed its lines
    }
    drop(done);
    let _ = tokio::time::timeout(FINISH, all_done.recv()).await; // nothing is sent: it returns when all senders are dropped
    let finished = sluicegate_base::boxed_future::spawn_blocking(move || writer.finish(FINISH)).await; // the admin API still answers meanwhile
    if !finished.unwrap_or(false) {
        tracing::warn!("the last lines of the access log could not be written in time");
    }
}
