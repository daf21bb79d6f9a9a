//! The succession: another process takes over. For a while this one keeps its listening sockets without accepting on them; if
//! the other process ends in that time, it serves again, with its counters.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::drain::IDLE_GRACE_AFTER_HANDOVER;
use super::handover::{self, HandoverSocket, Succession};
use super::supervisor::Supervisor;
use super::worker::{Command, Draining};
use crate::snapshot::Opened;
use sluicegate_config::ListenAddress;

/// How long a hand-over waits for attempts to deliver queued requests.
const ATTEMPT_GRACE: Duration = Duration::from_secs(5);
/// How long it waits after it has ended them.
const CUT_GRACE: Duration = Duration::from_secs(1);
/// How often it looks whether they have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Supervisor {
    /// Waits for a process that takes over, and watches it for the time `confirm`. Returns when it is still there then.
    ///
    /// The configuration must not change in the meantime.
    pub(super) async fn hand_over_to(
        &mut self,
        successor: UnixStream,
        socket: &mut HandoverSocket,
        confirm: Duration,
    ) -> Succession {
        let opened = self.shared.snapshot.load().opened();
        lend(&opened).await;
        let result = self.hand_over(successor, socket, confirm).await;
        if let Ok(Succession::Done) = result {
            return Succession::Done;
        }
        take_back(&opened).await;
        match result {
            Ok(_) => {
                tracing::error!("the gateway that took over has ended: this one serves again");
                self.resume();
                if let Err(error) = socket.reclaim() {
                    tracing::error!("this gateway cannot be taken over from any more: {error}");
                }
            }
            Err(error) => {
                tracing::warn!("the process that asked for the sockets did not take over: {error}");
            }
        }
        Succession::Failed
    }

    /// Passes the sockets to a successor, stops accepting when it serves, and watches it.
    async fn hand_over(
        &mut self,
        successor: UnixStream,
        socket: &mut HandoverSocket,
        confirm: Duration,
    ) -> std::io::Result<Succession> {
        let cloned = self.sockets.all().into_iter().map(|socket| socket.try_clone().map(OwnedFd::from));
        let cloned: Vec<OwnedFd> = cloned.collect::<Result<_, _>>()?;
        let waiting = sluicegate_base::boxed_future::spawn_blocking(move || {
            let taken = handover::hand_over(&successor, &cloned);
            taken.map(|taken| (successor, taken))
        });
        let (successor, taken) = waiting.await.map_err(std::io::Error::other)??;
        handover::confirm(&successor)?;
        socket.leave_to_successor();
        // The gateway before this one need not serve again for this one any more.
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.succeeded();
        }
        tracing::info!("another gateway has taken over");
        self.suspend(&taken);
        Ok(handover::watch(successor, confirm).await)
    }

    /// Stops accepting and lets connections end, but keeps the sockets on which the successor serves.
    fn suspend(&mut self, taken: &[ListenAddress]) {
        self.shared.draining.store(true, Ordering::Relaxed);
        let left: Arc<[String]> = self.sockets.left_to_others(taken).into();
        self.sockets.suspend(taken);
        self.end_admin(false);
        let (done, ended) = mpsc::channel(1);
        let draining = Draining { left, grace: IDLE_GRACE_AFTER_HANDOVER, done };
        self.push(|| Command::Drain(draining.clone()));
        self.suspended = Some(ended);
    }

    /// Serves again on all addresses of the configuration in force.
    fn resume(&mut self) {
        self.suspended = None;
        self.shared.draining.store(false, Ordering::Relaxed);
        let snapshot = self.shared.snapshot.load_full();
        let mut opened = Vec::new();
        for listener in &snapshot.config.listeners {
            match self.sockets.open(listener, self.workers.len(), false) {
                Ok(held) => opened.push(held),
                Err(error) => tracing::error!("{error}"),
            }
        }
        self.open(opened);
        if let Err(error) = self.serve_admin(snapshot.config.admin.as_ref().map(|admin| admin.address)) {
            tracing::error!("{error}");
        }
        self.sockets.drop_unused();
    }
}

/// Lets a successor write the rules and deliver what is queued. Attempts to deliver that are in progress are completed, or ended
/// after a while: the successor makes them again.
async fn lend(opened: &Opened) {
    if let Some(queues) = &opened.queues {
        queues.iter().for_each(|queue| queue.state.lend(true));
        let is_idle = || queues.iter().all(|queue| !queue.state.is_served());
        if !wait_until(is_idle, ATTEMPT_GRACE).await {
            queues.iter().for_each(|queue| queue.state.cut.notify_waiters());
            wait_until(is_idle, CUT_GRACE).await;
        }
    }
    let Opened { rules, queues } = opened.clone();
    let lent = sluicegate_base::boxed_future::spawn_blocking(move || {
        rules.iter().for_each(|rules| rules.hand_over());
        queues.iter().for_each(|queues| queues.hand_over());
    });
    if let Err(error) = lent.await {
        tracing::error!("{error}");
    }
}

/// Takes them back from a successor that has failed.
async fn take_back(opened: &Opened) {
    let Opened { rules, queues } = opened.clone();
    let taken = sluicegate_base::boxed_future::spawn_blocking(move || {
        let rules = rules.map_or(Ok(()), |rules| rules.take_back());
        let rules = rules.map_err(|error| format!("{error}: rules can be changed here after a restart only"));
        let queues = queues.map_or(Ok(()), |queues| queues.take_back());
        let queues =
            queues.map_err(|error| format!("{error}: requests are queued here after a restart only"));
        [rules, queues]
    });
    match taken.await {
        Ok(taken) => taken.into_iter().filter_map(Result::err).for_each(|error| tracing::error!("{error}")),
        Err(error) => tracing::error!("{error}"),
    }
}

/// Waits until something is the case, at most for a time. Returns whether it is.
async fn wait_until(is_so: impl Fn() -> bool, longest: Duration) -> bool {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    };
    tokio::time::timeout(longest, waiting).await.is_ok()
}
