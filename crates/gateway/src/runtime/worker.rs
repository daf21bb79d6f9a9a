//! A worker: one thread with its own async runtime, listening sockets and upstream connections. Requests never move to
//! another thread.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;

use super::options::StartError;
use crate::delivery::Deliveries;
use crate::process_state::ProcessState;
use crate::request::Services;
use crate::server::{ConnectionBudget, ListenSocket, Server};
use sluicegate_base::critical_task::CriticalTasks;
use sluicegate_downstream::worker_state::Deadlines;

/// A command of the supervisor to a worker.
pub(super) enum Command {
    /// Accept connections on these sockets.
    Open(Vec<ListenSocket>),
    /// Stop accepting on the listener with this id, and close its connections when they are idle.
    Close(String),
    /// Flush the access log, then drop the sender.
    FlushAccessLog(mpsc::Sender<()>),
    /// Stop accepting, and close all connections when they are idle.
    Drain(Draining),
}

/// How all listeners are closed.
#[derive(Clone)]
pub(super) struct Draining {
    /// The ids of listeners whose sockets another process has too: that process accepts the connections in their queues.
    pub(super) left: Arc<[String]>,
    /// How long a connection may be idle before it is closed.
    pub(super) grace: Duration,
    /// Dropped when all connections have been notified.
    pub(super) done: mpsc::Sender<()>,
}

/// How long a connection of a removed listener may be idle before it is closed. Nothing waits for it, and a client that
/// sends a request in this time gets `Connection: close` instead of a reset.
const REMOVED_LISTENER_GRACE: Duration = Duration::from_secs(2);
/// Ticks between two checks of idle upstream connections: one second.
const REAP_TICKS: u64 = 10;
/// A worker is late if it was so at so many ticks in a row: a single delay is no overload.
const LATE: usize = 3;

/// One serving thread.
pub(super) struct Worker {
    services: Rc<Services>,
    server: Rc<Server>,
    deliveries: Deliveries,
    critical: CriticalTasks,
}

impl Worker {
    /// A worker that has no listeners yet. `budget` counts the client connections of the process.
    pub(super) fn new(
        process: Arc<ProcessState>,
        index: usize,
        budget: Arc<ConnectionBudget>,
        critical: CriticalTasks,
    ) -> Self {
        let services = Services::new(process, index);
        let deliveries = Deliveries::new(&services, &budget, &critical);
        let server = Server::new(&services, budget, critical.clone());
        Self { services, server, deliveries, critical }
    }

    /// Carries out commands until the channel closes.
    pub(super) async fn run(self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let server = Rc::clone(&self.server);
        let services = Rc::clone(&self.services);
        let (worker, guard) = (Rc::clone(&services.worker), self.critical.guard("wakes waiting requests"));
        sluicegate_base::boxed_future::spawn_local(async move {
            let _guard = guard;
            worker.backlog.run().await;
        });
        // A task of its own: in a common one, a wake-up for requests would end the wait for the next iteration.
        let (paced, guard) = (Rc::clone(&server), self.critical.guard("wakes waiting TLS handshakes"));
        sluicegate_base::boxed_future::spawn_local(async move {
            let _guard = guard;
            paced.handshakes.pacer.run().await;
        });
        sluicegate_base::boxed_future::spawn_local(self.tick());
        while let Some(command) = commands.recv().await {
            match command {
                Command::Open(sockets) => sockets.into_iter().for_each(|socket| server.open(socket)),
                Command::FlushAccessLog(done) => {
                    services.last_view().flush_access_log();
                    drop(done);
                }
                Command::Close(id) => {
                    server.close(|listener| listener.id == id, &[], REMOVED_LISTENER_GRACE, None);
                }
                Command::Drain(Draining { left, grace, done }) => {
                    server.close(|_| true, &left, grace, Some(done));
                }
            }
        }
    }

    /// Checks deadlines, flushes the access log and closes idle upstream connections.
    async fn tick(self) {
        let _guard = self.critical.guard("keeps deadlines");
        let worker = &self.services.worker;
        let mut interval = tokio::time::interval(Deadlines::TICK);
        let load = &self.services.process.load;
        let mut late = [Duration::ZERO; LATE];
        for tick in 0_u64.. {
            late[(tick % LATE as u64) as usize] = interval.tick().await.elapsed();
            load.set_late(self.services.index, late.into_iter().min().unwrap_or_default());
            worker.deadlines.sweep(worker.clock().uptime());
            worker.buffers.set_date(worker.clock().wall());
            self.services.last_view().flush_access_log();
            self.deliveries.follow();
            if tick % REAP_TICKS == 0 {
                // Also drops what an outdated view holds, where no request does.
                self.services.view().reap_upstream_connections(worker.deadlines.now());
            }
        }
    }
}

/// Starts the thread of the worker `index`. It carries out the commands that are sent through the returned channel.
///
/// # Errors
/// If the system has no more threads.
pub(super) fn start(
    shared: &Arc<ProcessState>,
    index: usize,
    budget: Arc<ConnectionBudget>,
    critical: CriticalTasks,
) -> Result<mpsc::UnboundedSender<Command>, StartError> {
    let (sender, commands) = mpsc::unbounded_channel();
    let shared = Arc::clone(shared);
    let serve = move |critical: CriticalTasks| {
        let _guard = critical.guard("serves");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Costs less than a `LocalSet`, whose tasks pass through a queue of their own.
        let runtime = builder.enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(async move { Worker::new(shared, index, budget, critical).run(commands).await });
        Ok::<(), std::io::Error>(())
    };
    let spawned = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        if let Err(error) = serve(critical.clone()) {
            tracing::error!("worker {index} cannot run: {error}");
            critical.failed("serves");
        }
    });
    spawned.map(|_| sender).map_err(|error| StartError::System(format!("cannot start a worker: {error}")))
}
