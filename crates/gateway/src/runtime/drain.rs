//! The end: no new connections, and open ones finish their requests, up to a deadline.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::signals::{Signal, Signals};
use super::sockets::Sockets;
use super::systemd;
use super::worker::{Command, Draining};
use crate::process_state::ProcessState;

/// Why the gateway ends.
pub(super) enum Ending {
    /// A signal asked for it.
    Signal,
    /// A successor serves.
    Succeeded,
    /// A critical task has failed: what it does.
    Failed(&'static str),
}

/// What is left to close.
pub(super) struct Closing {
    pub(super) sockets: Sockets,
    /// The end of the connections, if a successor has taken over: nothing is accepted then.
    pub(super) suspended: Option<mpsc::Receiver<()>>,
}

/// How long a connection may be idle before it is closed, so that requests which were sent before the signal are read and
/// answered.
const IDLE_GRACE: Duration = Duration::from_millis(100);
/// The same after a hand-over. Nothing waits for this process, and a client that sends a request in this time gets
/// `Connection: close` instead of a reset.
pub(super) const IDLE_GRACE_AFTER_HANDOVER: Duration = Duration::from_secs(2);
/// The deadline after a failure of a critical task: the gateway is not restarted before it has ended.
const DEADLINE_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How often the number of open connections is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Drains until all connections are closed, the deadline passes or a second signal arrives.
pub(super) async fn drain(
    ending: &Ending,
    shared: &ProcessState,
    closing: Closing,
    workers: &[mpsc::UnboundedSender<Command>],
    signals: &mut Signals,
) {
    shared.draining.store(true, Ordering::Relaxed);
    systemd::notify(systemd::STOPPING);
    if let Some(queues) = &shared.snapshot.load().queues {
        queues.iter().for_each(|queue| queue.state.wake.notify_one());
    }
    let second_signal = async {
        while signals.next().await != Signal::End {} // nothing is reloaded or reopened any more
    };
    tokio::select! {
        () = wait(ending, shared, closing, workers) => {}
        () = second_signal => tracing::warn!("told to end twice: not waiting for requests in flight"),
    }
}

async fn wait(
    ending: &Ending,
    shared: &ProcessState,
    Closing { sockets, suspended }: Closing,
    workers: &[mpsc::UnboundedSender<Command>],
) {
    let config = shared.snapshot.load().config.drain;
    let (delay, deadline) = match ending {
        Ending::Signal if suspended.is_none() => (config.delay, config.deadline),
        Ending::Signal | Ending::Succeeded => (Duration::ZERO, config.deadline),
        Ending::Failed(_) => (Duration::ZERO, config.deadline.min(DEADLINE_AFTER_FAILURE)),
    };
    if !delay.is_zero() {
        tracing::info!("not ready any more, and draining in {delay:?}");
        tokio::time::sleep(delay).await;
    }
    tracing::info!("draining: {} connections, at most {deadline:?}", shared.metrics.open_connections());
    let mut all_done = match suspended {
        Some(all_done) => {
            drop(sockets); // they are the successor's alone
            all_done
        }
        None => close(sockets, workers),
    };
    let empty = async {
        let _ = all_done.recv().await; // nothing is sent: it returns when all workers have dropped their senders
        while shared.metrics.open_connections() > 0 || delivers(shared) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(deadline, empty).await.is_err() {
        tracing::warn!("{} connections did not end in time", shared.metrics.open_connections());
    }
}

/// Whether queued requests are being sent.
fn delivers(shared: &ProcessState) -> bool {
    let snapshot = shared.snapshot.load();
    snapshot.queues.iter().any(|queues| queues.iter().any(|queue| queue.state.is_served()))
}

/// Has the workers stop accepting and close their connections. The receiver ends when all connections have been notified.
fn close(sockets: Sockets, workers: &[mpsc::UnboundedSender<Command>]) -> mpsc::Receiver<()> {
    let left = sockets.left_to_others(&[]).into();
    sockets.remove_files();
    drop(sockets); // a socket listens as long as any process or thread holds it
    let (done, all_done) = mpsc::channel(1);
    let draining = Draining { left, grace: IDLE_GRACE, done };
    for worker in workers {
        let _ = worker.send(Command::Drain(draining.clone())); // a worker that ended has reported that
    }
    all_done
}
