//! Sends spans and metrics to the collector, on the control thread.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::encode;
use crate::metrics::{OtlpMetrics, Signal};
use sluicegate_base::boxed_future::spawn_local;
use sluicegate_base::clock::Clock;
use sluicegate_base::http_client::{Bounds, Call, Client, NoReply};
use sluicegate_config::OtlpConfig;

/// The most spans of one message, and how long the first of them waits for others.
const BATCH: usize = 512;
const GATHER: Duration = Duration::from_secs(1);
/// The pauses before a message is sent again. With the last attempt it is given up.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// The longest pause that a collector may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest answer in bytes.
const LARGEST: usize = 64 << 10;
/// How long the end of the gateway waits for the last messages.
const FINISH: Duration = Duration::from_secs(2);

/// Where spans and metrics are sent to, until it is finished or dropped.
pub struct Exporter {
    /// What it was made for.
    config: OtlpConfig,
    ending: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// What both tasks need.
struct Sender {
    client: Client,
    headers: HeaderMap,
    path: String,
    resource: Value,
    clock: Clock,
    metrics: Arc<OtlpMetrics>,
    /// Whether the exporter ends: then nothing is sent twice.
    ending: watch::Receiver<bool>,
    /// Whether the collector did not take the last message, which is logged once.
    failing: Cell<bool>,
}

/// Why a message was not taken.
struct Failure {
    why: String,
    /// How long to wait before it is sent again; `None` if that is pointless.
    again: Option<Option<Duration>>,
}

impl Exporter {
    /// Starts to send the spans of `spans`, and the metrics that `gather` returns. `instance` names this gateway. Must be called inside a
    /// `LocalSet`.
    pub fn start(
        config: &OtlpConfig,
        spans: Receiver<String>,
        gather: impl Fn() -> Vec<Value> + 'static,
        metrics: Arc<OtlpMetrics>,
        (instance, clock): (String, Clock),
    ) -> Self {
        let (ending, ends) = watch::channel(false);
        let sender = || Sender::new(config, &metrics, &instance, clock, ends.clone());
        let mut tasks = Vec::new();
        if config.traces {
            tasks.push(spawn_local(sender().send_spans(spans)));
        }
        if config.metrics {
            tasks.push(spawn_local(sender().send_metrics(config.interval, gather)));
        }
        Self { config: config.clone(), ending, tasks }
    }

    /// Whether it does what this configuration says.
    pub fn is_for(&self, config: &OtlpConfig) -> bool {
        self.config == *config
    }

    /// Sends what is left, within a bounded time.
    pub async fn finish(mut self) {
        self.ending.send_replace(true);
        let all = async {
            for task in &mut self.tasks {
                let _ = task.await; // it has logged what went wrong
            }
        };
        if tokio::time::timeout(FINISH, all).await.is_err() {
            tracing::warn!("the last spans and metrics could not be sent in time");
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits for a span, and for a moment for others. Returns false if no more will come.
async fn gather(spans: &mut Receiver<String>, batch: &mut Vec<String>) -> bool {
    if spans.recv_many(batch, BATCH).await == 0 {
        return false;
    }
    let others = async { while batch.len() < BATCH && spans.recv_many(batch, BATCH).await > 0 {} };
    let _ = tokio::time::timeout(GATHER, others).await; // fewer are sent as well
    true
}

impl Sender {
    fn new(
        config: &OtlpConfig,
        metrics: &Arc<OtlpMetrics>,
        instance: &str,
        clock: Clock,
        ending: watch::Receiver<bool>,
    ) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            if let Ok(mut value) = HeaderValue::try_from(value.reveal()) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let bounds = Bounds { timeout: config.timeout, largest: LARGEST };
        Self {
            client: Client::new(&config.url, config.ca.as_ref(), bounds),
            headers,
            path: config.url.path.trim_end_matches('/').to_owned(),
            resource: encode::resource(&config.service_name, instance),
            clock,
            metrics: Arc::clone(metrics),
            ending,
            failing: Cell::new(false),
        }
    }

    async fn send_spans(self, mut spans: Receiver<String>) {
        let mut batch = Vec::new();
        loop {
            let gathered = self.unless_ended(gather(&mut spans, &mut batch)).await;
            while gathered.is_none()
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            for part in batch.chunks(BATCH) {
                let message = encode::traces(&self.resource, part);
                if !self.deliver(Signal::Traces, message).await {
                    self.metrics.dropped(part.len() as u64);
                }
            }
            if gathered != Some(true) {
                return;
            }
            batch.clear();
        }
    }

    async fn send_metrics(self, interval: Duration, gather: impl Fn() -> Vec<Value>) {
        let mut goes_on = true;
        while goes_on {
            goes_on = self.unless_ended(tokio::time::sleep(interval)).await.is_some();
            let message = encode::metrics(&self.resource, &gather());
            self.deliver(Signal::Metrics, message).await;
        }
    }

    /// The result of a future; `None` if the exporter ends before.
    async fn unless_ended<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut ending = self.ending.clone();
        tokio::select! {
            result = future => Some(result),
            _ = ending.wait_for(|ends| *ends) => None,
        }
    }

    /// Sends a message until it is taken or given up. Returns whether it was taken.
    async fn deliver(&self, signal: Signal, message: String) -> bool {
        let target = format!("{}/v1/{}", self.path, signal.name());
        let call = Call {
            method: Method::POST,
            target: target.parse::<Uri>().ok(), // it was a part of a URL
            headers: self.headers.clone(),
            body: Bytes::from(message),
        };
        let mut pauses = PAUSES.iter();
        let failure = loop {
            match self.attempt(signal, &call).await {
                Ok(()) => {
                    self.metrics.exported(signal, true);
                    if self.failing.replace(false) {
                        tracing::info!("the collector takes {} again", signal.name());
                    }
                    return true;
                }
                Err(failure) => {
                    let Some(asked) = failure.again.filter(|_| !*self.ending.borrow()) else { break failure };
                    let Some(pause) = pauses.next() else { break failure };
                    let pause = asked.unwrap_or(*pause).min(LONGEST_PAUSE);
                    let _ = self.unless_ended(tokio::time::sleep(pause)).await; // then once more
                }
            }
        };
        self.metrics.exported(signal, false);
        if !self.failing.replace(true) {
            tracing::warn!("{} are not taken by the collector: {}", signal.name(), failure.why);
        }
        false
    }

    async fn attempt(&self, signal: Signal, call: &Call) -> Result<(), Failure> {
        let reply = self.client.ask(call, self.clock).await.map_err(NoReply::why);
        let reply = reply.map_err(|why| Failure { why, again: Some(None) })?;
        if reply.status.is_success() {
            self.rejected(signal, reply.body.as_deref());
            return Ok(());
        }
        let passing = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        let asked =
            reply.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let again = passing.contains(&reply.status).then(|| asked.map(Duration::from_secs));
        Err(Failure { why: format!("it answered with status {}", reply.status), again })
    }

    /// Counts the spans that the collector took the message without.
    fn rejected(&self, signal: Signal, body: Option<&[u8]>) {
        let Some(answer) = body.and_then(|body| serde_json::from_slice::<Value>(body).ok()) else { return };
        let rejected = &answer["partialSuccess"]["rejectedSpans"];
        let count = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
        if count > 0 && signal == Signal::Traces {
            self.metrics.dropped(count);
            tracing::warn!(
                rejected = count,
                "the collector rejects spans: {}",
                answer["partialSuccess"]["errorMessage"]
            );
        }
    }
}
