//! Wiring: sockets, workers, reload, signals, the end.

mod drain;
mod files;
mod handover;
mod life;
mod log;
mod notify;
mod reload;
mod signals;
mod sockets;
mod tls_files;
mod worker;
mod workers;

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, LocalSet};

use crate::admin::{Admin, ReloadRequest};
use crate::auth::jwt::Keys;
use crate::clock::Clock;
use crate::config::Source;
use crate::critical_task::CriticalTasks;
use crate::limit::Store;
use crate::metrics::Metrics;
use crate::process_log::ProcessLog;
use crate::process_state::{ProcessState, Status};
use crate::server::{Budget, Opened};
use crate::snapshot::SnapshotBuilder;
use crate::upstream::UpstreamState;
use drain::Ending;
use files::Files;
use life::Asked;
use reload::{not_in_force, read};
use signals::Signals;
use sockets::{Held, Sockets};
use worker::Command;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the configuration is read from.
    pub config: Source,
    /// Serving threads, instead of the file's number.
    pub workers: Option<usize>,
    /// A Unix socket: whoever serves there hands its listening sockets over, and the next one finds this one there.
    pub handover: Option<PathBuf>,
}

/// Why the gateway did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The user's mistake: exit code 1.
    #[error("{0}")]
    Config(String),
    /// The machine's refusal: exit code 2.
    #[error("{0}")]
    System(String),
}

/// The thread that serves nobody: it loads, reloads, and ends.
struct Supervisor {
    source: Source,
    shared: Arc<ProcessState>,
    snapshots: SnapshotBuilder,
    workers: Vec<mpsc::UnboundedSender<Command>>,
    sockets: Sockets,
    reloads: mpsc::Sender<ReloadRequest>,
    /// The text that was last looked at, good or bad.
    text: String,
    /// Where the admin API is served, and what ends it.
    admin: Option<(SocketAddr, oneshot::Sender<bool>)>,
    /// The files beside it.
    files: Files,
    /// This thread's own way to the store.
    store: Rc<RefCell<Option<Rc<Store>>>>,
    /// The keys for tokens, and what ends their care.
    keys: Option<(Arc<Keys>, AbortHandle)>,
    /// The upstreams, and what ends their care.
    upstreams: Vec<(Arc<UpstreamState>, AbortHandle)>,
}

/// Serves until a signal ends it, or a gateway that takes over. What is said of the file at the start goes to `log`.
///
/// # Errors
/// When the file is wrong, an address cannot be had, or a part of the gateway has failed.
pub fn run(options: &Options, log: &ProcessLog) -> Result<(), StartError> {
    let loaded = read(&options.config, None).map_err(StartError::Config)?;
    log.say(&loaded.rendered);
    let config = loaded.config.ok_or_else(|| StartError::Config(not_in_force(&options.config)))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = options.workers.or(config.workers).unwrap_or(cores);

    let system = |error: std::io::Error| StartError::System(format!("cannot start: {error}"));
    let asked = options.handover.as_deref().map(handover::take_over).transpose();
    let (predecessor, given) = asked.map_err(StartError::System)?.flatten().unzip();
    let sockets = Sockets::given(given.unwrap_or_default()).map_err(system)?;
    let listeners = config.listeners.iter().map(|listener| sockets.open(listener, workers, true));
    let listeners = listeners.collect::<Result<Vec<Held>, _>>().map_err(|error| {
        let replaces = error.kind() == ErrorKind::AddrInUse && options.handover.is_none();
        let help = if replaces { "; to replace a gateway that runs, start both with --handover" } else { "" };
        StartError::System(format!("{error}{help}"))
    })?;

    let metrics = Metrics::new(log.dropped());
    let access_log = log::open(config.access_log.as_ref(), None, &metrics).map_err(StartError::System)?;
    let clock = Clock::start();
    let snapshots = SnapshotBuilder::default();
    let snapshot = snapshots.build(config, None, clock.now());
    let shared = Arc::new(ProcessState {
        generation: AtomicU64::new(snapshot.generation),
        snapshot: ArcSwap::from_pointee(snapshot),
        draining: AtomicBool::new(false),
        metrics,
        clock,
        access_log: ArcSwapOption::new(access_log),
        status: Mutex::new(Status { file: options.config.to_string(), ..Status::default() }),
    });
    let budget = Arc::new(Budget::of_process(workers, listeners.len()));
    let (critical, failures) = mpsc::unbounded_channel();
    let critical = CriticalTasks::new(critical);
    let start = |index| workers::start(&shared, index, Arc::clone(&budget), critical.clone());
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
        files: Files::default(),
        store: Rc::default(),
        keys: None,
        upstreams: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let local = LocalSet::new();
    let ended = local.block_on(&runtime, async move {
        let mut signals = Signals::new().map_err(system)?;
        let admin = supervisor.shared.snapshot.load().config.admin.as_ref().map(|admin| admin.address);
        supervisor.serve_admin(admin).map_err(StartError::System)?;
        let starting = supervisor.begin(listeners, predecessor, options.handover.as_deref());
        let Some(door) = signals.unless_end(starting).await else {
            return supervisor.end(Ending::Told, signals).await;
        };
        let door = door.map_err(StartError::System)?;
        notify::notify(notify::READY);
        supervisor.run(Asked { signals, requests, failures, door }).await
    });
    runtime.shutdown_background(); // who still reads a file is not waited for
    ended
}

impl Supervisor {
    /// Has the workers serve on the sockets of some listeners.
    fn open(&mut self, listeners: Vec<Held>) {
        let mut shares: Vec<Vec<Opened>> = self.workers.iter().map(|_| Vec::new()).collect();
        for listener in listeners {
            for (worker, socket) in self.sockets.keep(listener) {
                shares[worker].push(socket);
            }
        }
        for (worker, share) in self.workers.iter().zip(shares) {
            let _ = worker.send(Command::Open(share)); // a worker that ended has said so
        }
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            let _ = worker.send(command());
        }
    }

    /// Serves the admin API where the file now says.
    fn serve_admin(&mut self, address: Option<SocketAddr>) -> Result<(), String> {
        let before = self.admin.as_ref().map(|(served, _)| *served);
        if before == address {
            return Ok(());
        }
        let Some(address) = address else {
            self.end_admin(false);
            return Ok(());
        };
        // As for listeners: a port that it has already, on another address, is shared with itself.
        let alone = before.is_none_or(|before| before.port() != address.port());
        let opened = self.sockets.open_admin(address, alone).and_then(|(socket, kept)| {
            let shown = socket.local_addr()?;
            Ok((tokio::net::TcpListener::from_std(socket)?, kept, shown))
        });
        let (socket, kept, shown) = opened.map_err(|error| format!("{error} (admin)"))?;
        let detached = !alone && self.sockets.detach_admin();
        self.end_admin(detached);
        tracing::info!("admin on http://{shown}/");
        let (shared, reloads) = (Arc::clone(&self.shared), self.reloads.clone());
        let admin = Admin { shared, reloads, store: Rc::clone(&self.store) };
        let (ended, end) = oneshot::channel();
        tokio::task::spawn_local(admin.serve(socket, end));
        self.admin = Some((address, ended));
        self.sockets.keep_admin(Some((address, kept)));
        Ok(())
    }

    /// Takes in nobody new on the admin API. If its socket was detached, who was about to connect is still taken in.
    fn end_admin(&mut self, detached: bool) {
        self.sockets.keep_admin(None);
        if let Some((_, end)) = self.admin.take() {
            let _ = end.send(detached); // it may have failed
        }
    }

    /// Has this thread's store lead where the configuration in force says.
    fn keep_store(&self) {
        let snapshot = self.shared.snapshot.load();
        let before = self.store.borrow_mut().take();
        let store = snapshot
            .store
            .as_ref()
            .map(|state| self.shared.store(state, self.workers.len(), before.as_ref()));
        let same = store.as_ref().zip(before.as_ref()).is_some_and(|(new, old)| Rc::ptr_eq(new, old));
        if let Some(before) = before.filter(|_| !same) {
            tokio::task::spawn_local(async move {
                before.leave().await;
                before.close();
            });
        }
        if let Some(store) = store.as_ref().filter(|_| !same) {
            let shared = Arc::clone(&self.shared);
            store.keep(move |limit| shared.snapshot.load().forget(limit));
        }
        *self.store.borrow_mut() = store;
    }

    /// Has the keys for tokens kept fresh where the configuration in force says.
    fn keep_keys(&mut self) {
        let keys = self.shared.snapshot.load().jwt.as_ref().map(|jwt| Arc::clone(jwt.keys()));
        let kept = self.keys.as_ref().map(|(keys, _)| keys);
        if keys.as_ref().map(Arc::as_ptr) == kept.map(Arc::as_ptr) {
            return;
        }
        let next = keys.map(|keys| {
            let tending = Arc::clone(&keys).tend(self.shared.clock);
            (keys, tokio::task::spawn_local(tending).abort_handle())
        });
        if let Some((_, before)) = std::mem::replace(&mut self.keys, next) {
            before.abort();
        }
    }

    /// Has the upstreams of the configuration in force looked after, and no others.
    fn keep_upstreams(&mut self) {
        let snapshot = self.shared.snapshot.load();
        let is_kept = |tended: &Arc<UpstreamState>| snapshot.upstreams.iter().any(|s| Arc::ptr_eq(s, tended));
        for (_, gone) in self.upstreams.extract_if(.., |(tended, _)| !is_kept(tended)) {
            gone.abort();
        }
        for state in &snapshot.upstreams {
            if !self.upstreams.iter().any(|(tended, _)| Arc::ptr_eq(tended, state)) {
                let tending = tokio::task::spawn_local(Arc::clone(state).tend());
                self.upstreams.push((Arc::clone(state), tending.abort_handle()));
            }
        }
    }
}
