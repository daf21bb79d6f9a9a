//! Wiring: sockets, workers, reload, signals, the end.

mod files;

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, LocalSet};

use crate::auth::jwt::Keys;
use crate::clock::Clock;
use crate::config::{self, Config, ListenerConfig, Loaded};
use crate::forward::UpstreamState;
use crate::limit::Store;
use crate::listen::{self, Opened};
use crate::observe::{Admin, Metrics, ReloadRequest};
use crate::snapshot::{Lineage, Snapshot};
use crate::worker::{Command, Shared, Status, Worker};
use files::Files;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Serving threads, instead of the file's number.
    pub workers: Option<usize>,
}

/// Why the gateway did not start.
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
    path: PathBuf,
    shared: Arc<Shared>,
    lineage: Lineage,
    workers: Vec<mpsc::UnboundedSender<Command>>,
    reloads: mpsc::Sender<ReloadRequest>,
    /// The text that was last looked at, good or bad.
    text: String,
    /// Where the admin API is served, and what ends it.
    admin: Option<(SocketAddr, Rc<Notify>)>,
    /// The files beside it.
    files: Files,
    /// This thread's own way to the store.
    store: Rc<RefCell<Option<Rc<Store>>>>,
    /// The keys for tokens, and what ends their care.
    keys: Option<(Arc<Keys>, AbortHandle)>,
    /// The upstreams, and what ends their care.
    upstreams: Vec<(Arc<UpstreamState>, AbortHandle)>,
}

/// How long a bad file may be half-written before it is reported.
const HALF_WRITTEN: Duration = Duration::from_millis(100);

/// Serves until a signal ends it.
///
/// # Errors
/// When the file is wrong or an address cannot be had.
pub fn run(options: &Options) -> Result<(), StartError> {
    let loaded = read(&options.config, None).map_err(StartError::Config)?;
    eprint!("{}", loaded.rendered);
    let config = loaded.config.ok_or_else(|| StartError::Config(not_in_force(&options.config)))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = options.workers.or(config.workers).unwrap_or(cores);

    let clock = Clock::start();
    let lineage = Lineage::default();
    let mut sockets = Vec::new();
    for listener in &config.listeners {
        sockets.push(
            listen::open(listener, workers, true).map_err(|error| StartError::System(error.to_string()))?,
        );
    }
    let snapshot = lineage.next(config, None, clock.now());
    let shared = Arc::new(Shared {
        generation: AtomicU64::new(snapshot.generation),
        snapshot: ArcSwap::from_pointee(snapshot),
        draining: AtomicBool::new(false),
        metrics: Metrics::default(),
        clock,
        status: Mutex::new(Status { file: options.config.display().to_string(), ..Status::default() }),
    });
    let workers = (0..workers).map(|index| start_worker(&shared, index)).collect::<Result<_, _>>()?;
    let (reloads, requests) = mpsc::channel(8);
    let mut supervisor = Supervisor {
        path: options.config.clone(),
        shared,
        lineage,
        workers,
        reloads,
        text: loaded.text,
        admin: None,
        files: Files::default(),
        store: Rc::default(),
        keys: None,
        upstreams: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::System(format!("cannot start: {error}")))?;
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let admin = supervisor.shared.snapshot.load().config.admin.as_ref().map(|admin| admin.address);
        supervisor.serve_admin(admin).await.map_err(StartError::System)?;
        find_servers(&supervisor.shared.snapshot.load_full()).await;
        supervisor.keep_store();
        supervisor.keep_keys();
        supervisor.keep_upstreams();
        supervisor.loaded();
        supervisor.open(sockets);
        supervisor.run(requests).await;
        Ok(())
    })
}

fn start_worker(shared: &Arc<Shared>, index: usize) -> Result<mpsc::UnboundedSender<Command>, StartError> {
    let (sender, commands) = mpsc::unbounded_channel();
    let shared = Arc::clone(shared);
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        local.block_on(&runtime, async move { Worker::new(shared, index).run(commands).await });
        Ok::<(), std::io::Error>(())
    };
    let spawned = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        if let Err(error) = serve() {
            tracing::error!("worker {index} cannot run: {error}");
        }
    });
    spawned.map(|_| sender).map_err(|error| StartError::System(format!("cannot start a worker: {error}")))
}

fn read(path: &Path, before: Option<&Config>) -> Result<Loaded, String> {
    config::load_after(path, before).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn not_in_force(path: &Path) -> String {
    format!("{} has errors and is not in force", path.display())
}

impl Supervisor {
    /// Looks after the file and the signals until one of them ends the gateway.
    async fn run(self, mut requests: mpsc::Receiver<ReloadRequest>) {
        let shared = Arc::clone(&self.shared);
        let workers = self.workers.clone();
        let path = self.path.clone();
        let store = Rc::clone(&self.store);
        let supervisor = Rc::new(tokio::sync::Mutex::new(self));
        let watching = config::watch(&path, async || supervisor.lock().await.look().await);
        let asked = async {
            let mut hangup = signal(SignalKind::hangup()).ok();
            loop {
                tokio::select! {
                    Some(answer) = requests.recv() => {
                        let result = supervisor.lock().await.reload().await;
                        let _ = answer.send(result); // whoever asked may have gone
                    }
                    () = next_signal(&mut hangup) => {
                        let _ = supervisor.lock().await.reload().await; // reported where operators look
                    }
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = asked => {}
            () = told_to_end() => {}
        }
        shared.draining.store(true, Ordering::Relaxed);
        drop(requests); // whoever asks for a reload now is told that there will be none
        tokio::select! {
            () = drain(&shared, &workers) => {}
            () = told_to_end() => tracing::warn!("told to end twice: not waiting for requests in flight"),
        }
        let store = store.borrow_mut().take();
        if let Some(store) = store {
            store.leave().await;
        }
    }

    /// Loads the file if it has changed.
    async fn look(&mut self) {
        match std::fs::read_to_string(&self.path) {
            Ok(text) if text == self.text => {}
            // It is being replaced; one that is gone for good changes nothing either.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => {
                if read.is_err() {
                    self.text.clear(); // the same text again is then a change
                }
                let _ = self.reload().await; // reported where operators look
            }
        }
        self.look_at_files().await;
    }

    /// Loads the file. A bad one changes nothing, is logged once and stands in /status.
    async fn reload(&mut self) -> Result<u64, String> {
        let result = self.try_reload().await;
        match &result {
            Ok(generation) => tracing::info!("{} is in force, generation {generation}", self.path.display()),
            Err(report) => {
                let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
                if status.last_error.as_ref() != Some(report) {
                    tracing::error!("{}\n{report}", not_in_force(&self.path));
                }
                status.last_error = Some(report.clone());
                self.shared.metrics.reload_successful.store(0, Ordering::Relaxed);
            }
        }
        result
    }

    async fn try_reload(&mut self) -> Result<u64, String> {
        let before = self.shared.snapshot.load_full();
        let mut loaded = self.read_after(&before).await?;
        if loaded.config.is_none() && loaded.text != self.text {
            tokio::time::sleep(HALF_WRITTEN).await;
            loaded = self.read_after(&before).await?;
        }
        self.text = loaded.text;
        let config = loaded.config.ok_or_else(|| loaded.rendered.clone())?;
        if !loaded.rendered.is_empty() {
            tracing::warn!("{}", loaded.rendered.trim_end());
        }
        if config.workers.is_some() && config.workers != before.config.workers {
            tracing::warn!("a changed number of workers is in force after a restart");
        }
        let sockets = self.open_new(&before.config, &config)?;
        self.serve_admin(config.admin.as_ref().map(|admin| admin.address)).await?;
        let gone: Vec<String> = before
            .config
            .listeners
            .iter()
            .map(ListenerConfig::id)
            .filter(|old| !config.listeners.iter().any(|new| new.id() == *old))
            .collect();

        let generation = self.put_in_force(config, &before).await;
        self.keep_store();
        self.keep_keys();
        self.keep_upstreams();
        for id in gone {
            self.tell(|| Command::Close(id.clone()));
        }
        self.open(sockets);
        self.loaded();
        Ok(generation)
    }

    /// Reads the file on a thread of its own: a million consumers take a moment, in which the admin API goes on
    /// answering.
    async fn read_after(&self, before: &Arc<Snapshot>) -> Result<Loaded, String> {
        let (path, before) = (self.path.clone(), Arc::clone(before));
        let read = tokio::task::spawn_blocking(move || read(&path, Some(&before.config))).await;
        read.unwrap_or_else(|error| Err(format!("cannot read {}: {error}", self.path.display())))
    }

    /// Lets the workers serve under `config` from their next request on.
    async fn put_in_force(&self, config: Config, before: &Snapshot) -> u64 {
        let next = self.lineage.next(config, Some(before), self.shared.clock.now());
        find_servers(&next).await;
        let generation = next.generation;
        self.shared.metrics.retain(&next);
        self.shared.snapshot.store(Arc::new(next));
        self.shared.generation.store(generation, Ordering::Release);
        generation
    }

    /// Sockets for the listeners that are new; if one cannot be had, none is kept.
    fn open_new(&self, before: &Config, config: &Config) -> Result<Vec<Vec<Opened>>, String> {
        let old: Vec<String> = before.listeners.iter().map(ListenerConfig::id).collect();
        let new = config.listeners.iter().filter(|listener| !old.contains(&listener.id()));
        new.map(|listener| {
            // A port that this process has already, on another address, is shared with itself.
            let alone = !before.listeners.iter().any(|other| other.address.port() == listener.address.port());
            listen::open(listener, self.workers.len(), alone).map_err(|error| error.to_string())
        })
        .collect()
    }

    /// Gives each worker its own socket of every listener.
    fn open(&self, sockets: Vec<Vec<Opened>>) {
        let mut shares: Vec<Vec<Opened>> = self.workers.iter().map(|_| Vec::new()).collect();
        for listener in sockets {
            if let Some(first) = listener.first() {
                let address =
                    first.socket.local_addr().map_or_else(|_| "?".into(), |address| address.to_string());
                tracing::info!("listening on {address}");
            }
            for (share, socket) in shares.iter_mut().zip(listener) {
                share.push(socket);
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
    async fn serve_admin(&mut self, address: Option<SocketAddr>) -> Result<(), String> {
        if self.admin.as_ref().map(|(served, _)| *served) == address {
            return Ok(());
        }
        let next = match address {
            None => None,
            Some(address) => {
                let socket = TcpListener::bind(address)
                    .await
                    .map_err(|error| format!("cannot listen on {address} (admin): {error}"))?;
                let shown = socket.local_addr().unwrap_or(address);
                tracing::info!("admin on http://{shown}/");
                let (shared, reloads) = (Arc::clone(&self.shared), self.reloads.clone());
                let admin = Admin { shared, reloads, store: Rc::clone(&self.store) };
                let moved = Rc::new(Notify::new());
                tokio::task::spawn_local(admin.serve(socket, Rc::clone(&moved)));
                Some((address, moved))
            }
        };
        if let Some((_, moved)) = std::mem::replace(&mut self.admin, next) {
            moved.notify_one();
        }
        Ok(())
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

    /// Notes that a configuration came into force.
    fn loaded(&mut self) {
        self.files = Files::of(&self.shared.snapshot.load().config);
        let at = self.shared.clock.wall();
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.loaded_at = at.to_string();
        status.last_error = None;
        status.file_errors.clear();
        let metrics = &self.shared.metrics;
        metrics.reload_successful.store(1, Ordering::Relaxed);
        metrics.reload_at.store(u64::try_from(at.as_second()).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Waits a moment for the addresses of servers that are new.
async fn find_servers(snapshot: &Snapshot) {
    join_all(snapshot.upstreams.iter().map(|upstream| upstream.find_servers())).await;
}

async fn next_signal(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits for SIGTERM or SIGINT.
async fn told_to_end() {
    let mut terminate = signal(SignalKind::terminate()).ok();
    let mut interrupt = signal(SignalKind::interrupt()).ok();
    tokio::select! {
        () = next_signal(&mut terminate) => {}
        () = next_signal(&mut interrupt) => {}
    }
}

/// Stops accepting and waits for the requests in flight, up to the configured time.
async fn drain(shared: &Shared, workers: &[mpsc::UnboundedSender<Command>]) {
    let within = shared.snapshot.load().config.drain;
    tracing::info!("draining: {} connections, at most {within:?}", shared.metrics.open_connections());
    let (done, mut told) = mpsc::channel(1);
    for worker in workers {
        let _ = worker.send(Command::Drain(done.clone())); // a worker that ended has said so
    }
    drop(done);
    let empty = async {
        let _ = told.recv().await; // nothing is sent: it ends when the last worker has told its connections
        while shared.metrics.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(within, empty).await.is_err() {
        tracing::warn!("{} connections did not end in time", shared.metrics.open_connections());
    }
}
