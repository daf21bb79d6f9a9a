//! The supervisor's event loop: from the first request to the event that ends the gateway.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_leases::ASK_EVERY;
use sluicegate_limiter::Time;
use tokio::sync::{Notify, mpsc};

use super::access_log;
use super::drain::{self, Closing, Ending};
use super::exchange::{EXCHANGE, exchange};
use super::handover::{HandoverSocket, Predecessor, Succession};
use super::lending;
use super::options::StartError;
use super::reload;
use super::signals::{Signal, Signals};
use super::sockets::Held;
use super::supervisor::Supervisor;
use crate::admin::ReloadRequest;
use crate::resources::Source;
use sluicegate_base::file_watch;
use sluicegate_base::own_load::available_memory;

/// How often what has nothing to do looks whether it has now.
const IDLE: Duration = Duration::from_secs(1);
/// How often the gateway looks at its own load.
const MEASURE: Duration = Duration::from_millis(100);

/// Where the events come from that the supervisor handles.
pub(super) struct Events {
    pub(super) signals: Signals,
    pub(super) reloads: mpsc::Receiver<ReloadRequest>,
    /// Critical tasks that have failed.
    pub(super) failures: mpsc::UnboundedReceiver<&'static str>,
    pub(super) handover: Option<HandoverSocket>,
    /// How long a process that took over is watched.
    pub(super) confirm: Duration,
}

impl Supervisor {
    /// Starts to serve, tells the predecessor to drain, and opens the hand-over socket for a successor.
    pub(super) async fn begin(
        &mut self,
        listeners: Vec<Held>,
        predecessor: Option<Predecessor>,
        handover: Option<&Path>,
    ) -> Result<Option<HandoverSocket>, String> {
        reload::resolve_new_names(&self.shared.snapshot.load_full()).await;
        self.update_store();
        self.update_regions();
        self.update_keys();
        self.update_upstreams();
        self.loaded();
        self.open(listeners);
        self.sockets.drop_unused();
        let Some(path) = handover else { return Ok(None) };
        let cannot = |error| format!("cannot be taken over from at {}: {error}", path.display());
        let mut socket = HandoverSocket::bind(path).map_err(cannot)?; // before the predecessor drains, because it may fail
        let takes_over = predecessor.is_some();
        if let Some(predecessor) = predecessor {
            let addresses = self.sockets.addresses();
            let reply =
                sluicegate_base::boxed_future::spawn_blocking(move || predecessor.serving(&addresses)).await;
            self.predecessor = Some(reply.unwrap_or_else(|error| Err(error.to_string()))?);
        }
        socket.publish().map_err(cannot)?;
        if takes_over {
            tracing::info!("took over from the gateway before this one, which drains");
        }
        Ok(Some(socket))
    }

    /// Handles events until one of them ends the gateway.
    pub(super) async fn run(self, events: Events) -> Result<(), StartError> {
        let Events { mut signals, mut reloads, mut failures, mut handover, confirm } = events;
        let shared = Arc::clone(&self.shared);
        let path = match &self.source {
            Source::File(path) => path.clone(),
            Source::Stdin => PathBuf::from("."), // the files that the configuration refers to may be there
        };
        let (store, lending) = (Rc::clone(&self.store), Rc::clone(&self.lending));
        let budget = Arc::clone(&self.budget);
        let supervisor = Rc::new(tokio::sync::Mutex::new(self));
        let watching = file_watch::watch(&path, async || supervisor.lock().await.check_files().await);
        let hangup = Notify::new();
        let reloading = async {
            loop {
                tokio::select! {
                    Some(answer) = reloads.recv() => {
                        let result = supervisor.lock().await.reload("admin API").await;
                        let _ = answer.send(result); // the client may have left
                    }
                    () = hangup.notified() => {
                        let _ = supervisor.lock().await.reload("SIGHUP").await; // `reload` logs errors
                    }
                    () = tokio::time::sleep(CARE) => supervisor.lock().await.renew_rules().await,
                }
            }
        };
        let sharing = async {
            loop {
                tokio::time::sleep(ASK_EVERY.into()).await;
                lending::ask_home(&lending, &shared).await;
                supervisor.lock().await.follow_shares().await;
            }
        };
        let exchanging = async {
            let mut next = IDLE;
            loop {
                tokio::time::sleep(next).await;
                let store = store.borrow().clone();
                next = if exchange(store, &shared).await { EXCHANGE } else { IDLE };
            }
        };
        let measuring = async {
            let available = available_memory();
            let mut next = IDLE;
            loop {
                tokio::time::sleep(next).await;
                let snapshot = shared.snapshot.load();
                let config = snapshot.config.overload.as_ref();
                next = if config.is_some() { MEASURE } else { IDLE };
                let memory = config.and_then(|config| config.max_memory).unwrap_or(available);
                shared.load.measure(config, memory, budget.used());
            }
        };
        let sampling = async {
            loop {
                let next = shared.clock.now().as_nanos() / SECOND + 1;
                tokio::time::sleep_until(shared.clock.instant(Time::from_nanos(next * SECOND))).await;
                let now = shared.clock.now();
                shared.history.sample(&shared.metrics, now.as_nanos() / SECOND);
                shared.tops.advance(now);
            }
        };
        let publishing = async {
            loop {
                tokio::time::sleep(PUBLISH).await;
                let store = store.borrow().clone();
                let snapshot = shared.snapshot.load_full();
                let limits = snapshot.limits.iter().filter(|limit| limit.config.shared);
                let names: Vec<&str> = limits.map(|limit| limit.config.name.as_str()).collect();
                if let Some(store) = store.filter(|_| !names.is_empty()) {
                    let ranking = shared.tops.publish(names.into_iter(), snapshot.show_in_top());
                    let _ = store.publish(&ranking).await; // the next one is told soon
                }
            }
        };
        let signalled = async {
            loop {
                match signals.next().await {
                    Signal::Reload => hangup.notify_one(),
                    Signal::Reopen => shared.access_log.load().iter().for_each(|log| log.reopen()),
                    Signal::End => return,
                }
            }
        };
        let succeeded = async {
            let Some(socket) = &mut handover else { return std::future::pending().await };
            loop {
                let successor = socket.accept().await;
                // The lock keeps the configuration from changing while its sockets are handed over.
                let mut supervisor = supervisor.lock().await;
                if let Succession::Done = supervisor.hand_over_to(successor, socket, confirm).await {
                    return;
                }
            }
        };
        let ending = tokio::select! {
            () = watching => Ending::Signal,
            () = reloading => Ending::Signal,
            () = signalled => Ending::Signal,
            () = sharing => Ending::Signal,
            () = sampling => Ending::Signal,
            () = publishing => Ending::Signal,
            () = exchanging => Ending::Signal,
            () = measuring => Ending::Signal,
            () = succeeded => Ending::Succeeded,
            Some(task) = failures.recv() => Ending::Failed(task),
        };
        drop((reloads, handover)); // from now on, requests for a reload or for the sockets are refused
        supervisor.lock().await.end(ending, signals).await
    }

    /// Drains and ends.
    pub(super) async fn end(&mut self, ending: Ending, mut signals: Signals) -> Result<(), StartError> {
        if let Ending::Failed(task) = ending {
            tracing::error!("the task that {task} has failed; the gateway ends");
        }
        self.predecessor = None; // it serves again, if it has not ended yet
        let closing =
            Closing { sockets: std::mem::take(&mut self.sockets), suspended: self.suspended.take() };
        drain::drain(&ending, &self.shared, closing, &self.workers, &mut signals).await;
        let store = self.store.borrow_mut().take();
        if let Some(store) = store {
            store.leave().await;
        }
        access_log::finish(&self.shared, &self.workers).await;
        if let Some(exporter) = self.exporter.take() {
            exporter.finish().await;
        }
        match ending {
            Ending::Signal | Ending::Succeeded => Ok(()),
            Ending::Failed(task) => {
                Err(StartError::System(format!("the task that {task} has failed; see the log")))
            }
        }
    }
}

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// How often the other gateways are told the busiest keys.
const PUBLISH: Duration = Duration::from_secs(5);
/// How often it is looked whether rules have to be renewed.
const CARE: Duration = Duration::from_secs(1);
