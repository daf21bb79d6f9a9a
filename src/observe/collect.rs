//! A scrape: the stripes of all workers added up, in Prometheus' text format.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use prometheus::proto::{
    Bucket, Counter as CounterValue, Gauge, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};
use sluicegate_limiter::Time;

use super::metrics::{Metrics, Series, Stripes};
use super::stripe::{
    BOUNDS, CODES, Counter, Histogram, OPERATIONS, OUTCOMES, POLICIES, StoreStripe, UPSTREAM_OUTCOMES,
    UpstreamStripe,
};
use crate::forward::UpstreamState;
use crate::limit::{Limit, StoreStatus};
use crate::snapshot::Snapshot;

/// The families of one scrape.
#[derive(Default)]
pub(super) struct Scrape(Vec<MetricFamily>);

/// The text of a scrape at `now`, where `uptime` is the gateway's milliseconds.
///
/// # Errors
/// When the text cannot be made, which would be a mistake of this file.
pub(super) fn text(
    metrics: &Metrics,
    snapshot: &Snapshot,
    now: Time,
    uptime: u64,
) -> prometheus::Result<Vec<u8>> {
    let mut scrape = Scrape::default();
    scrape.tables(snapshot, now);
    {
        let series = metrics.series.lock().unwrap_or_else(PoisonError::into_inner);
        scrape.routes(&series);
        scrape.limits(&series);
        scrape.upstreams(&series, snapshot, uptime);
        scrape.listeners(&series, &snapshot.config);
        if let Some(state) = &snapshot.store {
            scrape.store(&series, &state.status());
        }
        let open = series.connections.iter().map(|(listener, open)| {
            (vec![("listener", listener.clone())], open.load(Ordering::Relaxed) as f64)
        });
        scrape.gauges("sluicegate_connections", "Open connections of clients.", open.collect());
    }
    let cuts = metrics.cuts.all().filter(|(_, count)| *count > 0);
    scrape.counters(
        "sluicegate_h2_cut_total",
        "HTTP/2 connections that were cut off for what their clients sent, by the reason.",
        cuts.map(|(reason, count)| (vec![("reason", reason.to_owned())], count)).collect(),
    );
    scrape.counters(
        "sluicegate_access_log_dropped_total",
        "Lines of the access log that were lost because nothing took them in time.",
        vec![(Vec::new(), metrics.access_log_dropped.load(Ordering::Relaxed))],
    );
    scrape.counters(
        "sluicegate_log_dropped_total",
        "Lines of the gateway's own log that were lost because nothing took them in time.",
        vec![(Vec::new(), metrics.log_dropped.load(Ordering::Relaxed))],
    );
    let one = |value: u64| vec![(Vec::new(), value as f64)];
    scrape.gauges(
        "sluicegate_config_last_reload_successful",
        "Whether the last reload was accepted (1) or refused (0).",
        one(metrics.reload_successful.load(Ordering::Relaxed)),
    );
    scrape.gauges(
        "sluicegate_config_last_reload_success_timestamp_seconds",
        "When the configuration in force was loaded, in seconds since the epoch.",
        one(metrics.reload_at.load(Ordering::Relaxed)),
    );
    scrape.gauges(
        "sluicegate_config_generation",
        "Counts the configurations that were in force.",
        one(snapshot.generation),
    );
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    scrape.gauges("sluicegate_build_info", "The version that runs.", vec![(version, 1.0)]);
    scrape.0.extend(prometheus::default_registry().gather());

    let mut text = Vec::new();
    scrape.0.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode(&scrape.0, &mut text)?;
    Ok(text)
}

pub(super) type Labels = Vec<(&'static str, String)>;

impl Scrape {
    fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    pub(super) fn counters(&mut self, name: &str, help: &str, values: Vec<(Labels, u64)>) {
        let metrics = values.into_iter().map(|(labels, value)| {
            let mut counter = CounterValue::default();
            counter.set_value(value as f64);
            let mut metric = metric(labels);
            metric.set_counter(counter);
            metric
        });
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    pub(super) fn gauges(&mut self, name: &str, help: &str, values: Vec<(Labels, f64)>) {
        let metrics = values.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = metric(labels);
            metric.set_gauge(gauge);
            metric
        });
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    fn histograms<T>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        stripes: &Stripes<T>,
        of: impl Fn(&T) -> &Histogram,
    ) {
        let metrics = stripes.iter().filter_map(|(value, stripes)| {
            let all: Vec<&Histogram> = stripes.values().map(|stripe| of(stripe)).collect();
            let counts: Vec<u64> =
                (0..=BOUNDS.len()).map(|i| all.iter().map(|one| one.buckets[i].get()).sum()).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 {
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
            let labels = if label.is_empty() { Vec::new() } else { vec![(label, value.clone())] };
            let mut metric = metric(labels);
            metric.set_histogram(histogram);
            Some(metric)
        });
        let metrics = metrics.collect();
        self.add(name, help, MetricType::HISTOGRAM, metrics);
    }

    fn routes(&mut self, series: &Series) {
        let codes = by_label(&series.routes, "route", "code", |stripe| {
            let names = CODES.iter().map(u16::to_string).chain(["other".to_owned()]);
            names.zip(&stripe.codes).collect()
        });
        self.counters("sluicegate_requests_total", "Requests by route and status.", codes);
        self.histograms(
            "sluicegate_request_duration_seconds",
            "From the head of a request to the end of its answer.",
            "route",
            &series.routes,
            |stripe| &stripe.duration,
        );
    }

    /// What the tables of limits hold.
    fn tables(&mut self, snapshot: &Snapshot, now: Time) {
        let of = |value: &dyn Fn(&Arc<Limit>) -> u64| -> Vec<(Labels, u64)> {
            snapshot.limits.iter().map(|l| (vec![("limit", l.config.name.clone())], value(l))).collect()
        };
        let gauge = |values: Vec<(Labels, u64)>| {
            values.into_iter().map(|(labels, value)| (labels, value as f64)).collect()
        };
        self.gauges(
            "sluicegate_limit_keys",
            "Keys of a limit that have spent something that is not back yet.",
            gauge(of(&|limit| snapshot.keys(limit, now) as u64)),
        );
        self.gauges(
            "sluicegate_limit_entries",
            "Keys that a limit holds, also those that have all back and will be dropped for others.",
            gauge(of(&|limit| limit.all().map(|limit| limit.counters.entries() as u64).sum())),
        );
        self.counters(
            "sluicegate_limit_overflow_total",
            "Requests that shared the overflow bucket because the limit held max_keys live counters.",
            of(&|limit| limit.all().map(|limit| limit.counters.overflowed()).sum()),
        );
        let banning = snapshot.limits.iter().filter_map(|limit| Some((limit, limit.bans.as_ref()?)));
        self.counters(
            "sluicegate_limit_bans_total",
            "Bans that began on this gateway.",
            banning.map(|(l, bans)| (vec![("limit", l.config.name.clone())], bans.begun())).collect(),
        );
    }

    fn limits(&mut self, series: &Series) {
        let outcomes = by_label(&series.limits, "limit", "outcome", |stripe| {
            OUTCOMES.iter().map(|name| (*name).to_owned()).zip(&stripe.outcomes).collect()
        });
        self.counters("sluicegate_limit_decisions_total", "What limits said of requests.", outcomes);
        self.histograms(
            "sluicegate_limit_delay_seconds",
            "How long leaky buckets hold the requests that they hold.",
            "limit",
            &series.limits,
            |stripe| &stripe.delay,
        );
    }

    fn store(&mut self, series: &Series, status: &StoreStatus) {
        let up = f64::from(u8::from(status.up));
        self.gauges("sluicegate_store_up", "Whether every worker reaches the store.", vec![(Vec::new(), up)]);
        self.gauges(
            "sluicegate_store_gateways",
            "Live gateways that share the store, as far as is known.",
            vec![(Vec::new(), f64::from(status.gateways))],
        );
        let sum = |of: &dyn Fn(&StoreStripe) -> u64| -> u64 {
            series.stores.values().flat_map(|stripes| stripes.values()).map(|stripe| of(stripe)).sum()
        };
        let operations = OPERATIONS.iter().enumerate();
        let operations = operations
            .map(|(at, name)| (vec![("outcome", (*name).to_owned())], sum(&|s| s.operations[at].get())));
        self.counters("sluicegate_store_operations_total", "Calls to the store.", operations.collect());
        self.counters(
            "sluicegate_store_remembered_refusals_total",
            "Refusals that needed no call: the store had said until when.",
            vec![(Vec::new(), sum(&|stripe| stripe.remembered.get()))],
        );
        self.counters(
            "sluicegate_store_disagreements_total",
            "Answers of the store that do not agree with the state beside them: a fault of the gateway or the server.",
            vec![(Vec::new(), sum(&|stripe| stripe.disagreements.get()))],
        );
        self.histograms(
            "sluicegate_store_duration_seconds",
            "From sending a call to its answer.",
            "",
            &series.stores,
            |stripe| &stripe.duration,
        );
        let fallback = by_label(&series.limits, "limit", "policy", |stripe| {
            POLICIES.iter().map(|name| (*name).to_owned()).zip(&stripe.fallback).collect()
        });
        self.counters(
            "sluicegate_store_fallback_total",
            "Requests that limits decided without the store, by their on_store_failure.",
            fallback,
        );
    }

    fn upstreams(&mut self, series: &Series, snapshot: &Snapshot, now: u64) {
        let sum = |of: &dyn Fn(&UpstreamStripe) -> &Counter| -> Vec<(Labels, u64)> {
            let all = series.upstreams.iter();
            all.map(|(name, stripes)| {
                (vec![("upstream", name.clone())], stripes.values().map(|stripe| of(stripe).get()).sum())
            })
            .collect()
        };
        self.counters(
            "sluicegate_upstream_retries_total",
            "Requests that were tried on another server.",
            sum(&|stripe| &stripe.retries),
        );
        self.counters(
            "sluicegate_upstream_panics_total",
            "Requests for which no server was well, so that all were taken for it.",
            sum(&|stripe| &stripe.panics),
        );
        let label = |state: &UpstreamState| vec![("upstream", state.config.name.clone())];
        self.counters(
            "sluicegate_upstream_ejections_total",
            "How often failures in a row took a server out.",
            snapshot.upstreams.iter().map(|state| (label(state), state.ejections())).collect(),
        );
        self.counters(
            "sluicegate_upstream_unsolicited_total",
            "Connections on which a server sent bytes that no request asked for.",
            snapshot.upstreams.iter().map(|state| (label(state), state.unsolicited())).collect(),
        );
        self.gauges(
            "sluicegate_upstream_pending",
            "Requests that wait for a place at a server.",
            snapshot.upstreams.iter().map(|state| (label(state), state.waiting() as f64)).collect(),
        );
        let healthy = snapshot.upstreams.iter().flat_map(|state| {
            let servers = state.status(now).into_iter();
            servers.map(|server| {
                let labels = [label(state), vec![("server", server.server)]].concat();
                (labels, f64::from(u8::from(server.healthy)))
            })
        });
        self.gauges(
            "sluicegate_upstream_healthy",
            "Whether a server takes requests (1) or is out (0).",
            healthy.collect(),
        );
        let outcomes = by_label(&series.upstreams, "upstream", "outcome", |stripe| {
            UPSTREAM_OUTCOMES.iter().map(|name| (*name).to_owned()).zip(&stripe.outcomes).collect()
        });
        self.counters("sluicegate_upstream_requests_total", "Requests to upstreams by outcome.", outcomes);
        self.histograms(
            "sluicegate_upstream_duration_seconds",
            "From sending a request to the head of its answer.",
            "upstream",
            &series.upstreams,
            |stripe| &stripe.duration,
        );
    }
}

/// The counters of all workers added up, by the name of the thing and of the counter; zeros are left out.
pub(super) fn by_label<T>(
    stripes: &Stripes<T>,
    thing: &'static str,
    label: &'static str,
    counters: impl Fn(&T) -> Vec<(String, &Counter)>,
) -> Vec<(Labels, u64)> {
    let mut all = Vec::new();
    for (name, stripes) in stripes {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for stripe in stripes.values() {
            for (at, (value, counter)) in counters(stripe).into_iter().enumerate() {
                match sums.get_mut(at) {
                    Some(sum) => sum.1 += counter.get(),
                    None => sums.push((value, counter.get())),
                }
            }
        }
        let sums = sums.into_iter().filter(|(_, sum)| *sum > 0);
        all.extend(sums.map(|(value, sum)| (vec![(thing, name.clone()), (label, value)], sum)));
    }
    all
}

fn metric(labels: Labels) -> Metric {
    let pairs = labels.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    });
    let mut metric = Metric::default();
    metric.set_label(pairs.collect());
    metric
}
