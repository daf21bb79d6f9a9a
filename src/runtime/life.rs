//! From the first request to the last: what is asked from outside, and what ends the gateway.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

use super::drain::{self, Ending};
use super::handover::{self, Door, Predecessor};
use super::signals::{Signal, Signals};
use super::sockets::{Held, Sockets};
use super::{StartError, Supervisor};
use super::{log, reload};
use crate::admin::ReloadRequest;
use crate::config::Source;
use crate::file_watch;

/// What the supervisor is asked by others.
pub(super) struct Asked {
    pub(super) signals: Signals,
    pub(super) requests: mpsc::Receiver<ReloadRequest>,
    pub(super) failures: mpsc::UnboundedReceiver<&'static str>,
    pub(super) door: Option<Door>,
}

impl Supervisor {
    /// Serves, tells the gateway before this one that it may go, and opens the door for the one after it.
    pub(super) async fn begin(
        &mut self,
        listeners: Vec<Held>,
        predecessor: Option<Predecessor>,
        door: Option<&Path>,
    ) -> Result<Option<Door>, String> {
        reload::find_servers(&self.shared.snapshot.load_full()).await;
        self.keep_store();
        self.keep_keys();
        self.keep_upstreams();
        self.loaded();
        self.open(listeners);
        self.sockets.settle();
        let Some(path) = door else { return Ok(None) };
        let cannot = |error| format!("cannot be taken over from at {}: {error}", path.display());
        let mut door = Door::make(path).map_err(cannot)?; // what can fail does so before the other one goes
        if let Some(predecessor) = predecessor {
            let addresses = self.sockets.addresses();
            let told = tokio::task::spawn_blocking(move || predecessor.serving(&addresses)).await;
            told.unwrap_or_else(|error| Err(error.to_string()))?;
            tracing::info!("took over from the gateway before this one, which drains");
        }
        door.put().map_err(cannot)?;
        Ok(Some(door))
    }

    /// Looks after the file and does what is asked until something ends the gateway.
    pub(super) async fn run(self, asked: Asked) -> Result<(), StartError> {
        let Asked { mut signals, mut requests, mut failures, mut door } = asked;
        let shared = Arc::clone(&self.shared);
        let path = match &self.source {
            Source::File(path) => path.clone(),
            Source::Stdin => PathBuf::from("."), // the files that it names may be there
        };
        let supervisor = Rc::new(tokio::sync::Mutex::new(self));
        let watching = file_watch::watch(&path, async || supervisor.lock().await.look().await);
        let hangup = Notify::new();
        let reloading = async {
            loop {
                tokio::select! {
                    Some(answer) = requests.recv() => {
                        let result = supervisor.lock().await.reload().await;
                        let _ = answer.send(result); // whoever asked may have gone
                    }
                    () = hangup.notified() => {
                        let _ = supervisor.lock().await.reload().await; // reported where operators look
                    }
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
            match &mut door {
                None => std::future::pending().await,
                Some(door) => loop {
                    let successor = door.knock().await;
                    // Nothing is reloaded meanwhile: what is handed over is what is in force.
                    let supervisor = supervisor.lock().await;
                    match hand_over(successor, &supervisor.sockets, door).await {
                        Ok(taken) => break taken,
                        Err(error) => tracing::warn!("who asked for the sockets did not take over: {error}"),
                    }
                },
            }
        };
        let ending = tokio::select! {
            () = watching => Ending::Told,
            () = reloading => Ending::Told,
            () = signalled => Ending::Told,
            taken = succeeded => Ending::Succeeded(taken),
            Some(task) = failures.recv() => Ending::Failed(task),
        };
        drop((requests, door)); // whoever asks for a reload or for the sockets now is told that there will be none
        supervisor.lock().await.end(ending, signals).await
    }

    /// Ends what was begun.
    pub(super) async fn end(&mut self, ending: Ending, mut signals: Signals) -> Result<(), StartError> {
        match &ending {
            Ending::Succeeded(_) => self.end_admin(false),
            Ending::Failed(task) => tracing::error!("what {task} has failed; the gateway ends"),
            Ending::Told => {}
        }
        let sockets = std::mem::take(&mut self.sockets);
        drain::drain(&ending, &self.shared, sockets, &self.workers, &mut signals).await;
        let store = self.store.borrow_mut().take();
        if let Some(store) = store {
            store.leave().await;
        }
        log::finish(&self.shared, &self.workers).await;
        match ending {
            Ending::Told | Ending::Succeeded(_) => Ok(()),
            Ending::Failed(task) => Err(StartError::System(format!("what {task} has failed; see the log"))),
        }
    }
}

/// Gives a successor the sockets, and waits until it serves on them; on which addresses.
async fn hand_over(
    successor: UnixStream,
    sockets: &Sockets,
    door: &mut Door,
) -> std::io::Result<Vec<SocketAddr>> {
    let cloned = sockets.all().into_iter().map(|socket| socket.try_clone().map(OwnedFd::from));
    let cloned: Vec<OwnedFd> = cloned.collect::<Result<_, _>>()?;
    let waiting = tokio::task::spawn_blocking(move || {
        let taken = handover::hand_over(&successor, &cloned);
        taken.map(|taken| (successor, taken))
    });
    let (successor, taken) = waiting.await.map_err(std::io::Error::other)??;
    handover::confirm(&successor)?;
    door.leave_to_successor();
    tracing::info!("another gateway has taken over");
    Ok(taken)
}
