//! The end: nobody new is taken in, and what is open is finished, up to a deadline.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::notify;
use super::signals::{Signal, Signals};
use super::sockets::Sockets;
use super::worker::{Command, Draining};
use crate::process_state::ProcessState;

/// Why the gateway ends.
pub(super) enum Ending {
    /// It was told to.
    Told,
    /// Another process serves on these addresses from now on.
    Succeeded(Vec<SocketAddr>),
    /// A part of it has failed: what it does.
    Failed(&'static str),
}

/// How long a connection may be idle before it is closed: what its client sent before the signal is read and answered.
const GRACE: Duration = Duration::from_millis(100);
/// The same when another process serves: nobody waits for this one, and a client that comes back within this time is
/// told to connect anew instead of being cut off.
const UNHURRIED: Duration = Duration::from_secs(2);
/// How long a gateway with a dead part waits for the others: until it has ended, nobody starts it again.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How often it is looked whether all connections have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Drains, unless a signal says that there is no time for it.
pub(super) async fn drain(
    ending: &Ending,
    shared: &ProcessState,
    sockets: Sockets,
    workers: &[mpsc::UnboundedSender<Command>],
    signals: &mut Signals,
) {
    shared.draining.store(true, Ordering::Relaxed);
    notify::notify(notify::STOPPING);
    let told_again = async {
        while signals.next().await != Signal::End {} // there is nothing to reload, and no log file
    };
    tokio::select! {
        () = wait(ending, shared, sockets, workers) => {}
        () = told_again => tracing::warn!("told to end twice: not waiting for requests in flight"),
    }
}

async fn wait(
    ending: &Ending,
    shared: &ProcessState,
    sockets: Sockets,
    workers: &[mpsc::UnboundedSender<Command>],
) {
    let config = shared.snapshot.load().config.drain;
    let (delay, grace, deadline) = match ending {
        Ending::Told => (config.delay, GRACE, config.deadline),
        Ending::Succeeded(_) => (Duration::ZERO, UNHURRIED, config.deadline),
        Ending::Failed(_) => (Duration::ZERO, GRACE, config.deadline.min(AFTER_FAILURE)),
    };
    if !delay.is_zero() {
        tracing::info!("not ready any more, and draining in {delay:?}");
        tokio::time::sleep(delay).await;
    }
    tracing::info!("draining: {} connections, at most {deadline:?}", shared.metrics.open_connections());
    let taken = match ending {
        Ending::Succeeded(taken) => taken.as_slice(),
        Ending::Told | Ending::Failed(_) => &[],
    };
    let left = sockets.left_to_others(taken).into();
    drop(sockets); // or they would go on listening when the workers have closed theirs
    let (done, mut told) = mpsc::channel(1);
    let draining = Draining { left, grace, done };
    for worker in workers {
        let _ = worker.send(Command::Drain(draining.clone())); // a worker that ended has said so
    }
    drop(draining);
    let empty = async {
        let _ = told.recv().await; // nothing is sent: it ends when the last worker has told its connections
        while shared.metrics.open_connections() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(deadline, empty).await.is_err() {
        tracing::warn!("{} connections did not end in time", shared.metrics.open_connections());
    }
}
