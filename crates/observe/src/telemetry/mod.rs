//! Traces and metrics for a collector of OpenTelemetry (OTLP 1.x as JSON over HTTP).
//!
//! A worker writes the span of a request when it has ended, into a bounded queue. The control thread sends what waits there,
//! and the metrics every so often. No request waits for a collector: spans that do not fit are dropped and counted.

mod encode;
mod exporter;
mod span;

use std::sync::Arc;

use tokio::sync::mpsc::{self, Receiver, Sender};

pub use self::exporter::Exporter;
pub use self::span::span;
use crate::metrics::OtlpMetrics;

/// Where workers put the spans of requests that have ended.
#[derive(Debug)]
pub struct Spans {
    sender: Sender<String>,
    metrics: Arc<OtlpMetrics>,
}

impl Spans {
    /// A queue of at most so many spans, and where they come out.
    pub fn new(most: usize, metrics: Arc<OtlpMetrics>) -> (Self, Receiver<String>) {
        let (sender, receiver) = mpsc::channel(most);
        (Self { sender, metrics }, receiver)
    }

    /// Adds a span, or drops it if there is no room.
    pub fn push(&self, span: String) {
        if self.sender.try_send(span).is_err() {
            self.metrics.dropped(1);
        }
    }
}
