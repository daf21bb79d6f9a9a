//! The supervisor: what it owns, and how it brings that in line with the configuration in force.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::handover::Watching;
use super::lending::Lending;
use super::sockets::{Held, Sockets};
use super::watched_files::WatchedFiles;
use super::worker::Command;
use crate::admin::{Admin, ReloadRequest};
use crate::limit::Store;
use crate::process_state::ProcessState;
use crate::resources::Source;
use crate::server::{ConnectionBudget, ListenSocket};
use crate::snapshot::SnapshotBuilder;
use sluicegate_auth::jwt::Keys;
use sluicegate_observe::telemetry::Exporter;
use sluicegate_upstream::UpstreamState;

/// The state of the thread that starts, reloads and ends the others. It serves no client.
pub(super) struct Supervisor {
    pub(super) source: Source,
    pub(super) shared: Arc<ProcessState>,
    pub(super) snapshots: SnapshotBuilder,
    /// The connections of clients.
    pub(super) budget: Arc<ConnectionBudget>,
    pub(super) workers: Vec<mpsc::UnboundedSender<Command>>,
    pub(super) sockets: Sockets,
    pub(super) reloads: mpsc::Sender<ReloadRequest>,
    /// The text of the configuration file at the last check, valid or not.
    pub(super) text: String,
    /// The address of the admin API, and the sender that stops it.
    pub(super) admin: Option<(SocketAddr, oneshot::Sender<bool>)>,
    /// The files that the configuration in force refers to.
    pub(super) files: WatchedFiles,
    /// This thread's connection to the store.
    pub(super) store: Rc<RefCell<Option<Rc<Store>>>>,
    /// What is known of the regions that divide the limits.
    pub(super) lending: Rc<RefCell<Lending>>,
    /// What sends spans and metrics to a collector.
    pub(super) exporter: Option<Exporter>,
    /// The keys for tokens, and the handle of the task that refreshes them.
    pub(super) keys: Option<(Arc<Keys>, AbortHandle)>,
    /// The upstreams, and the handles of the tasks that resolve and probe them.
    pub(super) upstreams: Vec<(Arc<UpstreamState>, AbortHandle)>,
    /// The gateway before this one, which serves again if this one ends soon.
    pub(super) predecessor: Option<Watching>,
    /// The end of the connections, while a successor serves and nothing is accepted here.
    pub(super) suspended: Option<mpsc::Receiver<()>>,
}

impl Supervisor {
    /// Has the workers accept connections on the sockets of these listeners.
    pub(super) fn open(&mut self, listeners: Vec<Held>) {
        let mut shares: Vec<Vec<ListenSocket>> = self.workers.iter().map(|_| Vec::new()).collect();
        for listener in listeners {
            for (worker, socket) in self.sockets.keep(listener) {
                shares[worker].push(socket);
            }
        }
        for (worker, share) in self.workers.iter().zip(shares) {
            let _ = worker.send(Command::Open(share)); // a worker that ended has reported that
        }
    }

    /// Sends a command to all workers.
    pub(super) fn push(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            let _ = worker.send(command());
        }
    }

    /// Serves the admin API on `address` from now on, or not at all.
    pub(super) fn serve_admin(&mut self, address: Option<SocketAddr>) -> Result<(), String> {
        let before = self.admin.as_ref().map(|(served, _)| *served);
        if before == address {
            return Ok(());
        }
        let Some(address) = address else {
            self.end_admin(false);
            return Ok(());
        };
        // As for listeners: this process may bind its own port again on another address.
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
        sluicegate_base::boxed_future::spawn_local(admin.serve(socket, end));
        self.admin = Some((address, ended));
        self.sockets.keep_admin(Some((address, kept)));
        Ok(())
    }

    /// Stops accepting on the admin API. If its socket was detached, connections that are being established are still
    /// accepted.
    pub(super) fn end_admin(&mut self, detached: bool) {
        self.sockets.keep_admin(None);
        if let Some((_, end)) = self.admin.take() {
            let _ = end.send(detached); // the API may have ended with an error
        }
    }

    /// Connects this thread to the store of the configuration in force.
    pub(super) fn update_store(&self) {
        let snapshot = self.shared.snapshot.load();
        let before = self.store.borrow_mut().take();
        let store = snapshot
            .store
            .as_ref()
            .map(|state| self.shared.store(state, self.workers.len(), before.as_ref()));
        let same = store.as_ref().zip(before.as_ref()).is_some_and(|(new, old)| Rc::ptr_eq(new, old));
        if let Some(before) = before.filter(|_| !same) {
            sluicegate_base::boxed_future::spawn_local(async move {
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

    /// Refreshes the keys for tokens that the configuration in force names.
    pub(super) fn update_keys(&mut self) {
        let keys = self.shared.snapshot.load().jwt.as_ref().map(|jwt| Arc::clone(jwt.keys()));
        let kept = self.keys.as_ref().map(|(keys, _)| keys);
        if keys.as_ref().map(Arc::as_ptr) == kept.map(Arc::as_ptr) {
            return;
        }
        let next = keys.map(|keys| {
            let tending = Arc::clone(&keys).tend(self.shared.clock);
            (keys, sluicegate_base::boxed_future::spawn_local(tending).abort_handle())
        });
        if let Some((_, before)) = std::mem::replace(&mut self.keys, next) {
            before.abort();
        }
    }

    /// Resolves and probes the upstreams of the configuration in force, and no others.
    pub(super) fn update_upstreams(&mut self) {
        let snapshot = self.shared.snapshot.load();
        let is_kept = |tended: &Arc<UpstreamState>| snapshot.upstreams.iter().any(|s| Arc::ptr_eq(s, tended));
        for (_, gone) in self.upstreams.extract_if(.., |(tended, _)| !is_kept(tended)) {
            gone.abort();
        }
        for state in &snapshot.upstreams {
            if !self.upstreams.iter().any(|(tended, _)| Arc::ptr_eq(tended, state)) {
                let tending = Arc::clone(state).maintain(self.shared.clock);
                let tending = sluicegate_base::boxed_future::spawn_local(tending);
                self.upstreams.push((Arc::clone(state), tending.abort_handle()));
            }
        }
    }
}
