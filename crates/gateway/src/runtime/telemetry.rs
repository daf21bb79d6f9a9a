//! The exporter of spans and metrics that the configuration in force wants.

use std::sync::Arc;

use tokio::sync::mpsc::Receiver;

use super::supervisor::Supervisor;
use crate::admin::otlp_metrics;
use sluicegate_config::OtlpConfig;
use sluicegate_observe::metrics::Metrics;
use sluicegate_observe::telemetry::{Exporter, Spans};

/// Where workers put spans, if they are sent, and where they come out.
pub(super) fn open(
    config: Option<&OtlpConfig>,
    metrics: &Metrics,
) -> (Option<Arc<Spans>>, Option<Receiver<String>>) {
    let Some(config) = config else { return (None, None) };
    let (spans, waiting) = Spans::new(config.queue, Arc::clone(&metrics.otlp));
    (config.traces.then(|| Arc::new(spans)), Some(waiting))
}

/// The name of this process among others of the service.
pub(super) fn instance() -> String {
    format!("{}-{}", rustix::system::uname().nodename().to_string_lossy(), std::process::id())
}

impl Supervisor {
    /// Sends spans and metrics to this collector from now on, and to no other. Workers see that with the next configuration, so
    /// it is called before that comes into force.
    pub(super) fn update_telemetry(&mut self, config: Option<&OtlpConfig>) {
        let same = |exporter: &Exporter| config.is_some_and(|config| exporter.is_for(config));
        if self.exporter.as_ref().is_some_and(same) {
            return;
        }
        let (spans, waiting) = open(config, &self.shared.metrics);
        self.shared.spans.store(spans);
        self.export(config, waiting);
    }

    /// Sends what comes out of `waiting`, and metrics, to this collector.
    pub(super) fn export(&mut self, config: Option<&OtlpConfig>, waiting: Option<Receiver<String>>) {
        if let Some(before) = self.exporter.take() {
            sluicegate_base::boxed_future::spawn_local(before.finish());
        }
        let shared = Arc::clone(&self.shared);
        self.exporter = config.zip(waiting).map(|(config, waiting)| {
            let who = (instance(), self.shared.clock);
            let metrics = Arc::clone(&self.shared.metrics.otlp);
            Exporter::start(config, waiting, move || otlp_metrics(&shared), metrics, who)
        });
    }
}
