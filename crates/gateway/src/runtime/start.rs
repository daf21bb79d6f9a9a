//! The start: from the options to a gateway that serves.

use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::access_log;
use super::drain::Ending;
use super::event_loop::Events;
use super::handover;
use super::options::{Options, StartError};
use super::reload::{not_in_force, open, read};
use super::signals::Signals;
use super::sockets::{Held, Sockets};
use super::supervisor::Supervisor;
use super::systemd;
use super::telemetry;
use super::watched_files::WatchedFiles;
use super::worker;
use crate::process_state::{ProcessState, Status};
use crate::server::ConnectionBudget;
use crate::snapshot::{Opened, SnapshotBuilder};
use sluicegate_base::clock::Clock;
use sluicegate_base::critical_task::CriticalTasks;
use sluicegate_base::own_load::OwnLoad;
use sluicegate_observe::metrics::Metrics;
use sluicegate_observe::process_log::ProcessLog;

/// Serves until a signal or the hand-over to another gateway ends it. The report on the configuration goes to `log`.
///
/// # Errors
/// If the configuration is wrong, an address cannot be bound, or a part of the gateway has failed.
pub fn run(options: &Options, log: &ProcessLog) -> Result<(), StartError> {
    let loaded = read(&options.config, None).map_err(StartError::Config)?;
    log.say(&loaded.rendered);
    let config = loaded.config.ok_or_else(|| StartError::Config(not_in_force(&options.config)))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = options.workers.or(config.workers).unwrap_or(cores);

    let system = |error: std::io::Error| StartError::System(format!("cannot start: {error}"));
    let received = options.handover.as_deref().map(handover::take_over).transpose();
    let (predecessor, given) = received.map_err(StartError::System)?.flatten().unzip();
    let sockets = Sockets::passed(given.unwrap_or_default()).map_err(system)?;
    let listeners = config.listeners.iter().map(|listener| sockets.open(listener, workers, true));
    let listeners = listeners.collect::<Result<Vec<Held>, _>>().map_err(|error| {
        let replaces = error.kind() == ErrorKind::AddrInUse && options.handover.is_none();
        let help = if replaces { "; to replace a gateway that runs, start both with --handover" } else { "" };
        StartError::System(format!("{error}{help}"))
    })?;

    let metrics = Metrics::new(log.dropped());
    metrics.show_consumers(config.metrics.by_consumer);
    let access_log =
        access_log::open(config.access_log.as_ref(), None, &metrics).map_err(StartError::System)?;
    let (spans, waiting) = telemetry::open(config.otlp.as_ref(), &metrics);
    let clock = Clock::start();
    let opened = open(&config, &Opened::default(), clock).map_err(StartError::System)?;
    let snapshots = SnapshotBuilder::default();
    let snapshot = snapshots.build(config, opened, None, clock.now());
    let shared = Arc::new(ProcessState {
        generation: AtomicU64::new(snapshot.generation),
        snapshot: ArcSwap::from_pointee(snapshot),
        draining: AtomicBool::new(false),
        metrics,
        clock,
        access_log: ArcSwapOption::new(access_log),
        spans: ArcSwapOption::new(spans),
        workers,
        load: OwnLoad::new(workers),
        tops: Default::default(),
        history: Default::default(),
        refusals: Default::default(),
        cuts: Default::default(),
        status: Mutex::new(Status { file: options.config.to_string(), ..Status::default() }),
    });
    let budget = Arc::new(ConnectionBudget::of_process(workers, listeners.len()));
    let (critical, failures) = mpsc::unbounded_channel();
    let critical = CriticalTasks::new(critical);
    let start = |index| worker::start(&shared, index, Arc::clone(&budget), critical.clone());
    let workers = (0..workers).map(start).collect::<Result<_, _>>()?;
    let (reloads, requests) = mpsc::channel(8);
    let mut supervisor = Supervisor {
        source: options.config.clone(),
        shared,
        snapshots,
        workers,
        sockets,
        reloads,
        text: loaded.text,
        admin: None,
        files: WatchedFiles::default(),
        store: Rc::default(),
        lending: Rc::default(),
        exporter: None,
        keys: None,
        upstreams: Vec::new(),
        budget,
        predecessor: None,
        suspended: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let local = LocalSet::new();
    let ended = local.block_on(&runtime, async move {
        let mut signals = Signals::new().map_err(system)?;
        let admin = supervisor.shared.snapshot.load().config.admin.as_ref().map(|admin| admin.address);
        supervisor.serve_admin(admin).map_err(StartError::System)?;
        let otlp = supervisor.shared.snapshot.load().config.otlp.clone();
        supervisor.export(otlp.as_ref(), waiting);
        let starting = supervisor.begin(listeners, predecessor, options.handover.as_deref());
        let Some(socket) = signals.unless_end(starting).await else {
            return supervisor.end(Ending::Signal, signals).await;
        };
        let socket = socket.map_err(StartError::System)?;
        systemd::notify(systemd::READY);
        let confirm = options.handover_confirm;
        supervisor.run(Events { signals, reloads: requests, failures, handover: socket, confirm }).await
    });
    runtime.shutdown_background(); // does not wait for threads that still read files
    ended
}
