//! Detects when gateway.yaml may have changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// How often the file is checked without a notification: network file systems send none.
const POLL: Duration = Duration::from_millis(500);
/// Notifications within this time are one change, because editors write in several steps.
const SETTLE: Duration = Duration::from_millis(30);

/// Calls `check` whenever the file may have changed, and never returns. The folder is watched, not the file: a
/// rename over the file, or Kubernetes' swap of a symbolic link beside it, would end a watch of the file.
///
/// `check` has to compare contents, because it is also called without a change.
pub async fn watch(path: &Path, mut check: impl AsyncFnMut()) {
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = match start(path, changed) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!("cannot watch {}: {error}; checking it twice a second instead", path.display());
            None
        }
    };
    let mut tick = tokio::time::interval(POLL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(()) = changes.recv() => tokio::time::sleep(SETTLE).await,
            _ = tick.tick() => {}
        }
        while changes.try_recv().is_ok() {}
        check().await;
    }
}

fn start(path: &Path, changed: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Reading the file is an event too, and must not cause another check.
        let is_read = |event: &Event| match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
            EventKind::Access(_) => true,
            _ => false,
        };
        if !event.as_ref().is_ok_and(is_read) {
            let _ = changed.try_send(()); // if the channel is full, a check is due already
        }
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    watcher
        .watch(&folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf), RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
