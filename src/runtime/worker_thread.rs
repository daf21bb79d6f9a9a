//! The thread of a worker.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::options::StartError;
use super::worker::{Command, Worker};
use crate::critical_task::CriticalTasks;
use crate::process_state::ProcessState;
use crate::server::ConnectionBudget;

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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        local.block_on(
            &runtime,
            async move { Worker::new(shared, index, budget, critical).run(commands).await },
        );
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
