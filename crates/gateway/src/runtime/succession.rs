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
use crate::rules::Rules;
use sluicegate_config::ListenAddress;

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
        let rules = self.shared.snapshot.load().rules();
        lend_rules(rules.as_ref(), |rules| {
            rules.hand_over();
            Ok(())
        })
        .await;
        let result = self.hand_over(successor, socket, confirm).await;
        if let Ok(Succession::Done) = result {
            return Succession::Done;
        }
        lend_rules(rules.as_ref(), Rules::take_back).await;
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

/// Lets a successor write the rules, or takes them back.
async fn lend_rules(
    rules: Option<&Arc<Rules>>,
    lend: impl FnOnce(&Rules) -> Result<(), String> + Send + 'static,
) {
    let Some(rules) = rules.map(Arc::clone) else { return };
    match sluicegate_base::boxed_future::spawn_blocking(move || lend(&rules)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("{error}: rules can be changed here after a restart only"),
        Err(error) => tracing::error!("{error}"),
    }
}
