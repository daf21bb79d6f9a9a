//! A scrape: the counters of all workers added up, in Prometheus' text format.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use prometheus::proto::{
    Bucket, Counter as CounterValue, Gauge, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};
use sluicegate_limiter::Time;

use super::expected::Expected;
use super::families::{self as family, Family};
use super::registry::{Metrics, Series, Stripes};
use super::worker_counters::{
    BOUNDS, CODES, Counter, Histogram, OPERATIONS, OUTCOMES, POLICIES, StoreMetrics, UPSTREAM_OUTCOMES,
    UpstreamMetrics,
};
use crate::clock::cpu_time;
use crate::limit::{Limit, StoreStatus};
use crate::respond::Reason;
use crate::snapshot::Snapshot;
use crate::upstream::UpstreamState;

/// The families of one scrape.
#[derive(Default)]
pub(super) struct Scrape(Vec<MetricFamily>);

/// The values of a family's labels, in its order, and the number.
pub(super) type Row<T> = (Vec<String>, T);

/// The text of a scrape at `now`, where `uptime` is the gateway's milliseconds.
///
/// # Errors
/// When the text cannot be made, which would be a mistake of this file.
pub(crate) fn text(
    metrics: &Metrics,
    snapshot: &Snapshot,
    now: Time,
    uptime: u64,
) -> prometheus::Result<Vec<u8>> {
    let mut scrape = Scrape::default();
    let expected = Expected::of(snapshot);
    {
        let series = metrics.series.lock().unwrap_or_else(PoisonError::into_inner);
        scrape.routes(&series, &expected);
        scrape.limits(&series, &expected);
        scrape.tables(snapshot, now);
        scrape.upstreams(&series, snapshot, uptime);
        scrape.listeners(&series, &snapshot.config);
        let open = series.connections.iter();
        let open = open.map(|(listener, open)| (vec![listener.clone()], open.load(Ordering::Relaxed) as f64));
        scrape.gauges(&family::CONNECTIONS, open.collect());
        if let Some(state) = &snapshot.store {
            scrape.store(&series, &expected, &state.status());
        }
    }
    let aborts = metrics.aborts.all().map(|(reason, count)| (vec![reason.to_owned()], count));
    scrape.counters(&family::H2_CUT, aborts.collect());
    let lost = |counter: &std::sync::atomic::AtomicU64| one(counter.load(Ordering::Relaxed));
    scrape.counters(&family::ACCESS_LOG_DROPPED, lost(&metrics.access_log_dropped));
    scrape.counters(&family::LOG_DROPPED, lost(&metrics.log_dropped));
    let successful = metrics.reload_successful.load(Ordering::Relaxed);
    scrape.gauges(&family::CONFIG_SUCCESSFUL, one(successful as f64));
    scrape.gauges(&family::CONFIG_TIMESTAMP, one(metrics.reload_at.load(Ordering::Relaxed) as f64));
    scrape.gauges(&family::CONFIG_GENERATION, one(snapshot.generation as f64));
    scrape.gauges(&family::BUILD_INFO, vec![(vec![env!("CARGO_PKG_VERSION").to_owned()], 1.0)]);
    scrape.process();

    let mut text = Vec::new();
    scrape.0.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode(&scrape.0, &mut text)?;
    Ok(text)
}

/// The only series of a family without labels.
fn one<T>(value: T) -> Vec<Row<T>> {
    vec![(Vec::new(), value)]
}

impl Scrape {
    fn add(&mut self, of: &Family, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(of.name.to_owned());
        family.set_help(of.help.to_owned());
        family.set_field_type(of.kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    pub(super) fn counters(&mut self, of: &Family, rows: Vec<Row<u64>>) {
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

    pub(super) fn gauges(&mut self, of: &Family, rows: Vec<Row<f64>>) {
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

    /// One histogram for each name that is expected or has observed anything.
    fn histograms<T>(
        &mut self,
        of: &Family,
        stripes: &Stripes<T>,
        histogram: impl Fn(&T) -> &Histogram,
        expected: impl Fn(&str) -> bool,
    ) {
        debug_assert_eq!(of.kind, MetricType::HISTOGRAM, "{}", of.name);
        let metrics = stripes.iter().filter_map(|(value, stripes)| {
            let all: Vec<&Histogram> = stripes.values().map(|stripe| histogram(stripe)).collect();
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

    fn routes(&mut self, series: &Series, expected: &Expected<'_>) {
        let names: Vec<String> = CODES.iter().map(u16::to_string).chain(["other".to_owned()]).collect();
        let is_expected =
            |route: &str, at: usize| CODES.get(at).is_some_and(|code| expected.code(route, *code));
        let codes = by_label(&series.routes, &names, |stripe| &stripe.codes, is_expected);
        self.counters(&family::REQUESTS, codes);
        self.histograms(&family::REQUEST_DURATION, &series.routes, |stripe| &stripe.duration, |_| true);
        let is_expected = |route: &str, at: usize| expected.reason(route, Reason::ALL[at]);
        let reasons = by_label(&series.routes, Reason::NAMES, |stripe| &stripe.refusals, is_expected);
        self.counters(&family::REFUSED, reasons);
    }

    fn limits(&mut self, series: &Series, expected: &Expected<'_>) {
        let is_expected = |limit: &str, at: usize| expected.outcome(limit, at);
        let outcomes = by_label(&series.limits, &OUTCOMES, |stripe| &stripe.outcomes, is_expected);
        self.counters(&family::DECISIONS, outcomes);
        let delays = |limit: &str| expected.delays(limit);
        self.histograms(&family::DELAY, &series.limits, |stripe| &stripe.delay, delays);
    }

    /// What the tables of limits hold.
    fn tables(&mut self, snapshot: &Snapshot, now: Time) {
        fn rows<T>(snapshot: &Snapshot, value: impl Fn(&Arc<Limit>) -> Option<T>) -> Vec<Row<T>> {
            let row = |limit: &Arc<Limit>| Some((vec![limit.config.name.clone()], value(limit)?));
            snapshot.limits.iter().filter_map(row).collect()
        }
        self.gauges(&family::KEYS, rows(snapshot, |limit| Some(snapshot.keys(limit, now) as f64)));
        let entries = |limit: &Arc<Limit>| limit.all().map(|limit| limit.counters.entries() as f64).sum();
        self.gauges(&family::ENTRIES, rows(snapshot, |limit| Some(entries(limit))));
        let overflowed = |limit: &Arc<Limit>| limit.all().map(|limit| limit.counters.overflowed()).sum();
        self.counters(&family::OVERFLOW, rows(snapshot, |limit| Some(overflowed(limit))));
        self.counters(&family::BANS, rows(snapshot, |limit| Some(limit.bans.as_ref()?.begun())));
    }

    fn store(&mut self, series: &Series, expected: &Expected<'_>, status: &StoreStatus) {
        self.gauges(&family::STORE_UP, one(f64::from(u8::from(status.up))));
        self.gauges(&family::STORE_GATEWAYS, one(f64::from(status.gateways)));
        let sum = |of: &dyn Fn(&StoreMetrics) -> u64| -> u64 {
            series.stores.values().flat_map(|stripes| stripes.values()).map(|stripe| of(stripe)).sum()
        };
        let operations = OPERATIONS.iter().enumerate();
        let operations = operations
            .map(|(at, name)| (vec![(*name).to_owned()], sum(&|stripe| stripe.operations[at].get())));
        self.counters(&family::STORE_OPERATIONS, operations.collect());
        self.histograms(&family::STORE_DURATION, &series.stores, |stripe| &stripe.duration, |_| true);
        let is_expected = |limit: &str, at: usize| expected.policy(limit, at);
        let fallback = by_label(&series.limits, &POLICIES, |stripe| &stripe.fallback, is_expected);
        self.counters(&family::STORE_FALLBACK, fallback);
        self.counters(&family::STORE_REMEMBERED, one(sum(&|stripe| stripe.remembered.get())));
        self.counters(&family::STORE_DISAGREEMENTS, one(sum(&|stripe| stripe.disagreements.get())));
    }

    fn upstreams(&mut self, series: &Series, snapshot: &Snapshot, now: u64) {
        let sum = |of: &dyn Fn(&UpstreamMetrics) -> &Counter| -> Vec<Row<u64>> {
            let all = series.upstreams.iter();
            let sum = |stripes: &std::collections::BTreeMap<usize, Arc<UpstreamMetrics>>| {
                stripes.values().map(|stripe| of(stripe).get()).sum()
            };
            all.map(|(name, stripes)| (vec![name.clone()], sum(stripes))).collect()
        };
        let name = |state: &UpstreamState| vec![state.config.name.clone()];
        let states = || snapshot.upstreams.iter();
        let outcomes =
            by_label(&series.upstreams, &UPSTREAM_OUTCOMES, |stripe| &stripe.outcomes, |_, _| true);
        self.counters(&family::UPSTREAM_REQUESTS, outcomes);
        self.histograms(&family::UPSTREAM_DURATION, &series.upstreams, |stripe| &stripe.duration, |_| true);
        let healthy = states().flat_map(|state| {
            let servers = state.status(now).into_iter();
            servers.map(|server| {
                (vec![state.config.name.clone(), server.server], f64::from(u8::from(server.healthy)))
            })
        });
        self.gauges(&family::UPSTREAM_HEALTHY, healthy.collect());
        let pending = states().map(|state| (name(state), state.waiting() as f64));
        self.gauges(&family::UPSTREAM_PENDING, pending.collect());
        self.counters(&family::UPSTREAM_RETRIES, sum(&|stripe| &stripe.retries));
        let ejections = states().map(|state| (name(state), state.ejections()));
        self.counters(&family::UPSTREAM_EJECTIONS, ejections.collect());
        let unsolicited = states().map(|state| (name(state), state.unsolicited()));
        self.counters(&family::UPSTREAM_UNSOLICITED, unsolicited.collect());
        self.counters(&family::UPSTREAM_PANICS, sum(&|stripe| &stripe.panics));
    }

    /// What the library tells of the process, in our words; its CPU time comes in whole seconds and is replaced.
    fn process(&mut self) {
        for mut gathered in prometheus::default_registry().gather() {
            let Some(known) = family::PROCESS.iter().find(|known| known.name == gathered.name()) else {
                continue;
            };
            if known.name == family::PROCESS_CPU.name {
                let mut counter = CounterValue::default();
                counter.set_value(cpu_time().as_secs_f64());
                gathered.mut_metric().iter_mut().for_each(|metric| metric.set_counter(counter.clone()));
            }
            gathered.set_help(known.help.to_owned());
            self.0.push(gathered);
        }
    }
}

/// The counters of all workers added up, by the name of the thing and of the counter. A zero is shown where it is
/// expected that the counter will count.
pub(super) fn by_label<T>(
    stripes: &Stripes<T>,
    names: &[impl AsRef<str>],
    counters: impl Fn(&T) -> &[Counter],
    expected: impl Fn(&str, usize) -> bool,
) -> Vec<Row<u64>> {
    let mut rows = Vec::new();
    for (thing, stripes) in stripes {
        for (at, name) in names.iter().enumerate() {
            let sum = stripes.values().map(|stripe| counters(stripe)[at].get()).sum();
            if sum > 0 || expected(thing, at) {
                rows.push((vec![thing.clone(), name.as_ref().to_owned()], sum));
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
