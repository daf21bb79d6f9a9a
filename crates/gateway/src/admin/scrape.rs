//! `GET /metrics`: the counters of the workers, and gauges of the key tables, upstreams, certificates and the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sluicegate_config::{Priority, RegionsConfig, WHOLE};
use sluicegate_limiter::{Division, Time};
use sluicegate_overload::FULL;

use super::expected_series::Expected;
use crate::limit::{LeaseCounts, Limit, StoreStatus, capacity, counting_in_force};
use crate::process_state::ProcessState;
use crate::queue::{Figures, Queue, Queues, millis};
use crate::snapshot::Snapshot;
use sluicegate_base::clock::cpu_time;
use sluicegate_base::own_load::{OwnLoad, RESOURCES};
use sluicegate_base::queue_event::QueueEvent;
use sluicegate_observe::metrics::{self, Metrics, Row, Scrape, families, one};
use sluicegate_upstream::fair_shares::FairShares;
use sluicegate_upstream::{OverloadStatus, ServerStatus, UpstreamState};

/// The text of a scrape at `now`; `uptime` is the gateway's uptime in milliseconds.
///
/// # Errors
/// If a family is inconsistent, which is a bug.
pub(super) fn text(
    (metrics, load): (&Metrics, &OwnLoad),
    snapshot: &Snapshot,
    now: Time,
    uptime: u64,
) -> metrics::Result<Vec<u8>> {
    scrape((metrics, load), snapshot, now, uptime).text()
}

/// The same for a collector of OpenTelemetry.
pub fn otlp(process: &ProcessState) -> Vec<Value> {
    let now = process.clock.now();
    let uptime = u64::try_from(process.clock.uptime().as_millis()).unwrap_or(u64::MAX);
    let begun = Time::from_nanos(now.as_nanos().saturating_sub(uptime.saturating_mul(1_000_000)));
    scrape((&process.metrics, &process.load), &process.snapshot.load_full(), now, uptime).otlp(begun, now)
}

fn scrape((metrics, load): (&Metrics, &OwnLoad), snapshot: &Snapshot, now: Time, uptime: u64) -> Scrape {
    let mut scrape = Scrape::of(metrics, &Expected::of(snapshot));
    key_tables(&mut scrape, snapshot, now);
    upstreams(&mut scrape, snapshot, uptime, now);
    certificates(&mut scrape, snapshot);
    scrape.counters(&families::AUTH_CALLS, auth_calls(snapshot));
    if let Some(state) = &snapshot.store {
        store(&mut scrape, &state.status());
    }
    if let Some(config) = &snapshot.config.regions {
        regions(&mut scrape, snapshot, config, metrics.is_lent(now));
    }
    if snapshot.config.overload.is_some() {
        own_load(&mut scrape, load);
    }
    if let Some(queues) = &snapshot.queues {
        queues_of(&mut scrape, queues, now);
    }
    if let Some(rules) = snapshot.rules() {
        let is_up = rules.trouble().is_none();
        scrape.gauges(&families::RULES_UP, one(f64::from(u8::from(is_up))));
        scrape.gauges(&families::RULES_CACHED, one(rules.cached() as f64));
        scrape.gauges(&families::RULES_VERSION, one(rules.version() as f64));
    }
    scrape.gauges(&families::CONFIG_GENERATION, one(snapshot.generation as f64));
    if snapshot.config.otlp.is_some() {
        scrape.counters(&families::OTLP_MESSAGES, metrics.otlp.messages());
        scrape.counters(&families::OTLP_DROPPED, one(metrics.otlp.spans_dropped()));
    }
    scrape.process(cpu_time());
    scrape
}

fn key_tables(scrape: &mut Scrape, snapshot: &Snapshot, now: Time) {
    fn rows<T>(snapshot: &Snapshot, value: impl Fn(&Arc<Limit>) -> Option<T>) -> Vec<Row<T>> {
        let row = |limit: &Arc<Limit>| Some((vec![limit.config.name.clone()], value(limit)?));
        snapshot.limits.iter().filter_map(row).collect()
    }
    scrape.gauges(&families::KEYS, rows(snapshot, |limit| Some(snapshot.keys(limit, now) as f64)));
    let entries = |limit: &Arc<Limit>| limit.all().map(|limit| limit.counted.counters.entries() as f64).sum();
    scrape.gauges(&families::ENTRIES, rows(snapshot, |limit| Some(entries(limit))));
    let most = |limit: &Arc<Limit>| limit.all().map(|limit| limit.config.max_keys as f64).sum();
    scrape.gauges(&families::MAX_KEYS, rows(snapshot, |limit| Some(most(limit))));
    let overflowed = |limit: &Arc<Limit>| limit.all().map(|limit| limit.counted.counters.overflowed()).sum();
    let unreadable =
        |limit: &Arc<Limit>| Some(limit.counted.counters.unreadable_costs.load(Ordering::Relaxed));
    scrape.counters(&families::UNREADABLE_COSTS, rows(snapshot, unreadable));
    scrape.counters(&families::OVERFLOW, rows(snapshot, |limit| Some(overflowed(limit))));
    let leases = |limit: &Arc<Limit>, count: fn(&LeaseCounts) -> &AtomicU64| {
        let all = || limit.all().filter(|limit| limit.counted.leased().is_some());
        let sum = || all().map(|limit| count(&limit.counted.counters.leases).load(Ordering::Relaxed)).sum();
        all().next().map(|_| sum())
    };
    scrape.counters(&families::LEASED, rows(snapshot, |limit| leases(limit, |counts| &counts.granted)));
    scrape.counters(
        &families::LEASES_RETURNED,
        rows(snapshot, |limit| leases(limit, |counts| &counts.returned)),
    );
    scrape.counters(&families::OVERSHOOT, rows(snapshot, |limit| leases(limit, |counts| &counts.over)));
    let gateways = snapshot.store.as_ref().map_or(1, |state| state.gateways());
    let bound = |limit: &Arc<Limit>| {
        limit.config.shared.then(|| counting_in_force(limit, gateways).over_admission as f64)
    };
    scrape.gauges(&families::OVERSHOOT_BOUND, rows(snapshot, bound));
    let fair = |limit: &Limit| Some(limit.fair.as_ref()?.standing(now, capacity(&limit.counted.quota)));
    let shares = rows(snapshot, |limit| {
        let level = fair(limit)?.level.unwrap_or_else(|| capacity(&limit.counted.quota));
        Some(level as f64 / 1e6)
    });
    scrape.gauges(&families::FAIR_SHARE, shares);
    scrape.counters(&families::ABOVE_SHARE, rows(snapshot, |limit| Some(limit.fair.as_ref()?.above())));
    let banned = |limit: &Arc<Limit>| Some(limit.counted.bans.as_ref()?.banned(now) as f64);
    scrape.gauges(&families::BANNED, rows(snapshot, banned));
    scrape.counters(&families::BANS, rows(snapshot, |limit| Some(limit.counted.bans.as_ref()?.begun())));
}

fn queues_of(scrape: &mut Scrape, queues: &Queues, now: Time) {
    let rows = |value: &dyn Fn(&Figures) -> f64| {
        let row = |queue: &Arc<Queue>| {
            (vec![queue.state.limit().to_owned()], value(&queue.state.standing().figures))
        };
        queues.iter().map(row).collect::<Vec<Row<f64>>>()
    };
    scrape.gauges(&families::QUEUE_LENGTH, rows(&|figures| figures.length as f64));
    scrape.gauges(&families::QUEUE_BYTES, rows(&|figures| figures.bytes as f64));
    scrape.gauges(&families::QUEUE_FAILED, rows(&|figures| figures.failed as f64));
    let age = |figures: &Figures| {
        figures.oldest.map_or(0.0, |oldest| millis(now).saturating_sub(oldest) as f64 / 1e3)
    };
    scrape.gauges(&families::QUEUE_OLDEST, rows(&age));
    let events = queues.iter().flat_map(|queue| {
        QueueEvent::ALL.iter().map(|event| {
            let labels = vec![queue.state.limit().to_owned(), event.name().to_owned()];
            (labels, queue.state.counts.get(*event))
        })
    });
    scrape.counters(&families::QUEUE_EVENTS, events.collect());
}

fn regions(scrape: &mut Scrape, snapshot: &Snapshot, config: &RegionsConfig, is_lent: bool) {
    let rows = snapshot.limits.iter().filter_map(|limit| {
        let Division { rate, size } = limit.config.division?;
        let part = if limit.config.is_lent() { rate } else { size };
        Some((vec![limit.config.name.clone()], f64::from(part) / f64::from(WHOLE)))
    });
    scrape.gauges(&families::REGION_SHARE, rows.collect());
    if config.home.is_some() {
        scrape.gauges(&families::REGION_HOME_UP, one(f64::from(u8::from(is_lent))));
    }
}

fn upstreams(scrape: &mut Scrape, snapshot: &Snapshot, now: u64, time: Time) {
    fn rows<T>(snapshot: &Snapshot, value: impl Fn(&UpstreamState) -> T) -> Vec<Row<T>> {
        let row = |state: &Arc<UpstreamState>| (vec![state.config.name.clone()], value(state));
        snapshot.upstreams.iter().map(row).collect()
    }
    let servers: Vec<_> = snapshot
        .upstreams
        .iter()
        .flat_map(|state| state.status(now).into_iter().map(|server| (state.config.name.clone(), server)))
        .collect();
    fn of<T>(servers: &[(String, ServerStatus)], value: impl Fn(&ServerStatus) -> T) -> Vec<Row<T>> {
        servers
            .iter()
            .map(|(upstream, one)| (vec![upstream.clone(), one.server.clone()], value(one)))
            .collect()
    }
    scrape.gauges(&families::UPSTREAM_HEALTHY, of(&servers, |one| f64::from(u8::from(one.is_up()))));
    scrape.gauges(&families::SERVER_READY, of(&servers, |one| f64::from(u8::from(one.is_ready()))));
    scrape.counters(&families::SERVER_REQUESTS, of(&servers, |one| one.requests));
    scrape.counters(&families::SERVER_FAILURES, of(&servers, |one| one.failed));
    overload(scrape, snapshot);
    fair_shares(scrape, snapshot, time);
    scrape.gauges(&families::UPSTREAM_PENDING, rows(snapshot, |state| state.waiting() as f64));
    scrape.counters(&families::UPSTREAM_EJECTIONS, rows(snapshot, UpstreamState::ejections));
    scrape.counters(&families::UPSTREAM_UNSOLICITED, rows(snapshot, UpstreamState::unsolicited));
}

/// Of upstreams with `overload`.
fn overload(scrape: &mut Scrape, snapshot: &Snapshot) {
    let bounded =
        snapshot.upstreams.iter().filter_map(|state| Some((state, state.overload.as_ref()?.status())));
    let bounded: Vec<(&str, OverloadStatus)> =
        bounded.map(|(state, status)| (state.config.name.as_str(), status)).collect();
    let each = |value: fn(&OverloadStatus) -> u32| -> Vec<Row<f64>> {
        bounded.iter().map(|(name, status)| (vec![(*name).to_owned()], f64::from(value(status)))).collect()
    };
    scrape.gauges(&families::UPSTREAM_LIMIT, each(|status| status.limit));
    scrape.gauges(&families::UPSTREAM_IN_FLIGHT, each(|status| status.in_flight));
    let priorities = || {
        bounded.iter().flat_map(|(name, status)| {
            let row = move |(at, (word, _)): (usize, &(&str, Priority))| {
                (vec![(*name).to_owned(), (*word).to_owned()], status.waiting[at], status.shed[at])
            };
            Priority::NAMED.iter().enumerate().map(row).collect::<Vec<_>>()
        })
    };
    scrape.gauges(
        &families::UPSTREAM_WAITING,
        priorities().map(|(labels, waiting, _)| (labels, waiting as f64)).collect(),
    );
    scrape.counters(&families::UPSTREAM_SHED, priorities().map(|(labels, _, shed)| (labels, shed)).collect());
}

/// Of the gateway itself, with `overload`.
fn own_load(scrape: &mut Scrape, load: &OwnLoad) {
    let pressures = RESOURCES.into_iter().zip(load.each());
    let pressures = pressures.map(|(name, part)| (vec![name.to_owned()], f64::from(part) / f64::from(FULL)));
    scrape.gauges(&families::PRESSURE, pressures.collect());
    let shed = Priority::NAMED.iter().zip(load.refused());
    let shed = shed.map(|((name, _), refused)| (vec![(*name).to_owned()], refused));
    scrape.counters(&families::OVERLOAD_SHED, shed.collect());
}

/// Of upstreams with `fair`.
fn fair_shares(scrape: &mut Scrape, snapshot: &Snapshot, now: Time) {
    let divided = || snapshot.upstreams.iter().filter_map(|state| Some((state, state.fair.as_ref()?)));
    let level = |(state, fair): (&Arc<UpstreamState>, &Arc<FairShares>)| {
        let throughput = state.overload.as_ref().and_then(|overload| overload.throughput());
        let level = fair.standing(now, throughput.unwrap_or(u64::MAX)).level.or(throughput);
        (vec![state.config.name.clone()], level.unwrap_or(0) as f64 / 1e6)
    };
    scrape.gauges(&families::UPSTREAM_FAIR_SHARE, divided().map(level).collect());
    let above = divided().map(|(state, fair)| (vec![state.config.name.clone()], fair.above())).collect();
    scrape.counters(&families::UPSTREAM_ABOVE_SHARE, above);
}

fn certificates(scrape: &mut Scrape, snapshot: &Snapshot) {
    let expiries = snapshot.config.tls_of_listeners().flat_map(|(listener, tls, files)| {
        tls.certificates.iter().zip(&files.certificates).map(|(named, known)| {
            let labels = vec![listener.name.clone(), named.cert.display().to_string()];
            (labels, known.not_after.as_second() as f64)
        })
    });
    scrape.gauges(&families::CERTIFICATE_EXPIRY, expiries.collect());
}

fn auth_calls(snapshot: &Snapshot) -> Vec<Row<u64>> {
    let row =
        |service: &str, (outcome, count): (&str, u64)| (vec![service.to_owned(), outcome.to_owned()], count);
    let introspection = snapshot.introspection.iter().flat_map(|introspection| introspection.calls());
    let check = snapshot.check.iter().flat_map(|check| check.calls());
    let introspection = introspection.map(|call| row("introspection", call));
    introspection.chain(check.map(|call| row("check", call))).collect()
}

fn store(scrape: &mut Scrape, status: &StoreStatus) {
    scrape.gauges(&families::STORE_UP, one(f64::from(u8::from(status.up))));
    scrape.gauges(&families::STORE_GATEWAYS, one(f64::from(status.gateways)));
}
