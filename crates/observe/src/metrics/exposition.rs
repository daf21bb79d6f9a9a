//! The exposition: counters of all workers added up, in Prometheus' text format.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use prometheus::proto::{
    Bucket, Counter as CounterValue, Gauge, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};

use super::families::{self, Family};
use super::listeners::{Handshake, Refusal};
use super::process;
use super::registry::{Metrics, PerWorker, Series};
use super::worker_counters::{BOUNDS, CODES, Counter, Histogram, StoreMetrics, UpstreamOutcome};
use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::OnStoreFailure;
use sluicegate_counters_redis::Operation;

/// Decides which counters are exposed at 0, before their first event: those that the configuration lets expect. A rate
/// over a series that only appears with its first event misses that event, and exposing every possible series would
/// fill a scrape with zeros.
pub trait ExpectedSeries {
    /// Whether requests of a route are usually answered with this status code.
    fn code(&self, route: &str, code: u16) -> bool;
    /// Whether the gateway may refuse requests of a route for this reason.
    fn reason(&self, route: &str, reason: RefusalReason) -> bool;
    /// Whether a limit may have this outcome.
    fn outcome(&self, limit: &str, outcome: LimitOutcome) -> bool;
    /// Whether a limit delays requests.
    fn delays(&self, limit: &str) -> bool;
    /// Whether a limit applies this policy when the store does not answer.
    fn policy(&self, limit: &str, policy: OnStoreFailure) -> bool;
    /// Whether a listener may refuse connections for this reason.
    fn refused_connection(&self, listener: &str, reason: Refusal) -> bool;
    /// Whether a listener terminates TLS.
    fn handshakes(&self, listener: &str) -> bool;
    /// Whether limits are shared through a store.
    fn store(&self) -> bool;
}

/// The families of one scrape.
#[derive(Default)]
pub struct Scrape(Vec<MetricFamily>);

/// The values of a family's labels, in the family's order, and the sample.
pub type Row<T> = (Vec<String>, T);

/// The only series of a family without labels.
pub fn one<T>(value: T) -> Vec<Row<T>> {
    vec![(Vec::new(), value)]
}

impl Scrape {
    /// The series of everything that is counted in `metrics`.
    pub fn of(metrics: &Metrics, expected: &impl ExpectedSeries) -> Self {
        let mut scrape = Self::default();
        {
            let series = metrics.series.lock().unwrap_or_else(PoisonError::into_inner);
            scrape.routes(&series, expected);
            scrape.limits(&series, expected);
            scrape.upstreams(&series);
            scrape.listeners(&series, expected);
            if expected.store() {
                scrape.store(&series, expected);
            }
        }
        let consumers = metrics.consumers.lock().unwrap_or_else(PoisonError::into_inner).rows();
        scrape.counters(&families::CONSUMER_REQUESTS, consumers);
        let aborts = metrics.aborts.all().map(|(reason, count)| (vec![reason.to_owned()], count));
        scrape.counters(&families::H2_CUT, aborts.collect());
        scrape.counters(&families::FORWARDED_IGNORED, one(metrics.ignored_forwarded.requests()));
        let lost = |counter: &AtomicU64| one(counter.load(Ordering::Relaxed));
        scrape.counters(&families::ACCESS_LOG_DROPPED, lost(&metrics.access_log_dropped));
        scrape.counters(&families::LOG_DROPPED, lost(&metrics.log_dropped));
        let gauge = |gauge: &AtomicU64| one(gauge.load(Ordering::Relaxed) as f64);
        scrape.gauges(&families::CONFIG_SUCCESSFUL, gauge(&metrics.reload_successful));
        scrape.gauges(&families::CONFIG_TIMESTAMP, gauge(&metrics.reload_at));
        scrape.gauges(&families::BUILD_INFO, vec![(vec![env!("CARGO_PKG_VERSION").to_owned()], 1.0)]);
        scrape
    }

    /// The text of the scrape. Families without series are left out.
    ///
    /// # Errors
    /// If a family is inconsistent, which is a bug in this module.
    pub fn text(mut self) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.0.retain(|family| !family.get_metric().is_empty());
        TextEncoder::new().encode(&self.0, &mut text)?;
        Ok(text)
    }

    /// The families, some of them without series.
    pub(super) fn into_families(self) -> Vec<MetricFamily> {
        self.0
    }

    fn add(&mut self, of: &Family, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(of.name.to_owned());
        family.set_help(of.help.to_owned());
        family.set_field_type(of.kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    /// Adds a family of counters.
    pub fn counters(&mut self, of: &Family, rows: Vec<Row<u64>>) {
        debug_assert_eq!(of.kind, MetricType::COUNTER, "{}", of.name);
        let metrics = rows.into_iter().map(|(labels, value)| {
            let mut counter = CounterValue::default();
            counter.set_value(value as f64);
            let mut metric = metric(of, labels);
            metric.set_counter(counter);
            metric
        });
        self.add(of, metrics.collect());
    }

    /// Adds a family of gauges.
    pub fn gauges(&mut self, of: &Family, rows: Vec<Row<f64>>) {
        debug_assert_eq!(of.kind, MetricType::GAUGE, "{}", of.name);
        let metrics = rows.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = metric(of, labels);
            metric.set_gauge(gauge);
            metric
        });
        self.add(of, metrics.collect());
    }

    /// Adds a family of histograms: one for each name that is expected or has an observation.
    fn histograms<T>(
        &mut self,
        of: &Family,
        series: &PerWorker<T>,
        histogram: impl Fn(&T) -> &Histogram,
        expected: impl Fn(&str) -> bool,
    ) {
        debug_assert_eq!(of.kind, MetricType::HISTOGRAM, "{}", of.name);
        let metrics = series.iter().filter_map(|(value, workers)| {
            let all: Vec<&Histogram> = workers.values().map(|worker| histogram(worker)).collect();
            let counts: Vec<u64> =
                (0..=BOUNDS.len()).map(|i| all.iter().map(|one| one.buckets[i].get()).sum()).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 && !expected(value) {
                return None;
            }
            let mut histogram = prometheus::proto::Histogram::default();
            let mut cumulative = 0;
            let buckets = BOUNDS.iter().zip(&counts).map(|(bound, count)| {
                cumulative += count;
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*bound as f64 / 1e9);
                bucket.set_cumulative_count(cumulative);
                bucket
            });
            histogram.set_bucket(buckets.collect());
            histogram.set_sample_count(total);
            histogram.set_sample_sum(all.iter().map(|one| one.nanos.get() as f64 / 1e9).sum());
            let labels = if of.labels.is_empty() { Vec::new() } else { vec![value.clone()] };
            let mut metric = metric(of, labels);
            metric.set_histogram(histogram);
            Some(metric)
        });
        let metrics = metrics.collect();
        self.add(of, metrics);
    }

    fn routes(&mut self, series: &Series, expected: &impl ExpectedSeries) {
        let label = |code: Option<u16>| code.map_or_else(|| "other".to_owned(), |code| code.to_string());
        let labels = CODES.iter().map(|code| Some(*code)).chain([None]).map(|code| (label(code), code));
        let is_expected =
            |route: &str, code: Option<u16>| code.is_some_and(|code| expected.code(route, code));
        let codes = by_label(&series.routes, labels, |worker| &worker.codes, is_expected);
        self.counters(&families::REQUESTS, codes);
        self.histograms(&families::REQUEST_DURATION, &series.routes, |worker| &worker.duration, |_| true);
        let labels = RefusalReason::ALL.iter().map(|reason| (reason.name(), *reason));
        let is_expected = |route: &str, reason| expected.reason(route, reason);
        let reasons = by_label(&series.routes, labels, |worker| &worker.refusals, is_expected);
        self.counters(&families::REFUSED, reasons);
        let labels = CutReason::ALL.iter().map(|reason| (reason.name(), *reason));
        // Only answers of an upstream are long enough to be cut often.
        let is_expected = |route: &str, _| expected.reason(route, RefusalReason::Upstream);
        let cuts = by_label(&series.routes, labels, |worker| &worker.cuts, is_expected);
        self.counters(&families::CUT, cuts);
        self.counters(&families::REQUEST_BYTES, sums(&series.routes, |worker| &worker.received));
        self.counters(&families::RESPONSE_BYTES, sums(&series.routes, |worker| &worker.sent));
    }

    fn limits(&mut self, series: &Series, expected: &impl ExpectedSeries) {
        let labels = LimitOutcome::ALL.iter().map(|outcome| (outcome.name(), *outcome));
        let is_expected = |limit: &str, outcome| expected.outcome(limit, outcome);
        let outcomes = by_label(&series.limits, labels, |worker| &worker.outcomes, is_expected);
        self.counters(&families::DECISIONS, outcomes);
        self.counters(&families::WARNINGS, sums(&series.limits, |worker| &worker.warnings));
        let delays = |limit: &str| expected.delays(limit);
        self.histograms(&families::DELAY, &series.limits, |worker| &worker.delay, delays);
    }

    fn store(&mut self, series: &Series, expected: &impl ExpectedSeries) {
        let sum = |of: &dyn Fn(&StoreMetrics) -> u64| -> u64 {
            series.stores.values().flat_map(BTreeMap::values).map(|worker| of(worker)).sum()
        };
        let operations = Operation::NAMES.iter().enumerate();
        let operations = operations
            .map(|(at, name)| (vec![(*name).to_owned()], sum(&|worker| worker.operations[at].get())));
        self.counters(&families::STORE_OPERATIONS, operations.collect());
        self.histograms(&families::STORE_DURATION, &series.stores, |worker| &worker.duration, |_| true);
        let is_expected = |limit: &str, policy| expected.policy(limit, policy);
        let fallback =
            by_label(&series.limits, OnStoreFailure::WORDS, |worker| &worker.fallback, is_expected);
        self.counters(&families::STORE_FALLBACK, fallback);
        self.counters(&families::STORE_REMEMBERED, one(sum(&|worker| worker.remembered.get())));
        self.counters(&families::STORE_DISAGREEMENTS, one(sum(&|worker| worker.disagreements.get())));
    }

    fn upstreams(&mut self, series: &Series) {
        let labels = UpstreamOutcome::NAMES.iter().map(|name| (*name, ()));
        let outcomes = by_label(&series.upstreams, labels, |worker| &worker.outcomes, |_, ()| true);
        self.counters(&families::UPSTREAM_REQUESTS, outcomes);
        self.histograms(&families::UPSTREAM_DURATION, &series.upstreams, |worker| &worker.duration, |_| true);
        self.counters(&families::UPSTREAM_RETRIES, sums(&series.upstreams, |worker| &worker.retries));
        self.counters(&families::UPSTREAM_PANICS, sums(&series.upstreams, |worker| &worker.panics));
    }

    fn listeners(&mut self, series: &Series, expected: &impl ExpectedSeries) {
        let open = series.connections.iter();
        let open = open.map(|(listener, open)| (vec![listener.clone()], open.load(Ordering::Relaxed) as f64));
        self.gauges(&families::CONNECTIONS, open.collect());
        let labels = Refusal::ALL.iter().map(|reason| (reason.name(), *reason));
        let is_expected = |listener: &str, reason| expected.refused_connection(listener, reason);
        let refused = by_label(&series.listeners, labels, |worker| &worker.refused, is_expected);
        self.counters(&families::CONNECTIONS_REFUSED, refused);
        let labels = Handshake::NAMES.iter().map(|name| (*name, ()));
        let is_expected = |listener: &str, ()| expected.handshakes(listener);
        let handshakes = by_label(&series.listeners, labels, |worker| &worker.handshakes, is_expected);
        self.counters(&families::HANDSHAKE, handshakes);
    }

    /// Adds the figures of the process itself; `cpu_time` is the CPU time that it has used.
    pub fn process(&mut self, cpu_time: Duration) {
        let mut cpu = CounterValue::default();
        cpu.set_value(cpu_time.as_secs_f64());
        let mut metric = Metric::default();
        metric.set_counter(cpu);
        self.add(&families::PROCESS_CPU, vec![metric]);
        for (family, figure) in process::figures() {
            self.gauges(family, vec![(Vec::new(), figure)]);
        }
    }
}

/// The sum of one counter over all workers, by name.
fn sums<T>(series: &PerWorker<T>, of: impl Fn(&T) -> &Counter) -> Vec<Row<u64>> {
    let sum = |workers: &BTreeMap<usize, Arc<T>>| workers.values().map(|worker| of(worker).get()).sum();
    series.iter().map(|(name, workers)| (vec![name.clone()], sum(workers))).collect()
}

/// Sums of counters over all workers, by the name of the counted object and by label. `labels` are the names of the
/// counters in their order, each with the value that `expected` gets. A sum of 0 is left out unless `expected` returns
/// true for it.
fn by_label<T, L: Copy>(
    series: &PerWorker<T>,
    labels: impl IntoIterator<Item = (impl Into<String>, L)>,
    counters: impl Fn(&T) -> &[Counter],
    expected: impl Fn(&str, L) -> bool,
) -> Vec<Row<u64>> {
    let labels: Vec<(String, L)> = labels.into_iter().map(|(name, label)| (name.into(), label)).collect();
    let mut rows = Vec::new();
    for (object, workers) in series {
        for (at, (name, label)) in labels.iter().enumerate() {
            let sum = workers.values().map(|worker| counters(worker)[at].get()).sum();
            if sum > 0 || expected(object, *label) {
                rows.push((vec![object.clone(), name.clone()], sum));
            }
        }
    }
    rows
}

fn metric(of: &Family, labels: Vec<String>) -> Metric {
    debug_assert_eq!(of.labels.len(), labels.len(), "{}", of.name);
    let pairs = of.labels.iter().zip(labels).map(|(label, value)| {
        debug_assert!(label.allows(&value), "{} of {}: {value}", label.name, of.name);
        let mut pair = LabelPair::default();
        pair.set_name(label.name.to_owned());
        pair.set_value(value);
        pair
    });
    let mut metric = Metric::default();
    metric.set_label(pairs.collect());
    metric
}
