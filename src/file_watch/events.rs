//! Tells when gateway.yaml may have changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// How often the file is looked at even if nobody tells of a change: network file systems do not.
const POLL: Duration = Duration::from_millis(500);
/// Editors write in several steps; what comes within this time is one change.
const SETTLE: Duration = Duration::from_millis(30);

/// Runs for ever and calls `look` whenever the file may have changed. The folder is watched, not the file: a
/// rename over it, or Kubernetes' swap of a symbolic link beside it, would end a watch of the file.
///
/// `look` compares contents, so it may be called once too often, never once too rarely.
pub async fn watch(path: &Path, mut look: impl AsyncFnMut()) {
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = match start(path, changed) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!("cannot watch {}: {error}; looking at it twice a second instead", path.display());
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
        look().await;
    }
}

fn start(path: &Path, changed: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Looking at the file is an event too, and must not lead to another look.
        let looked_at = |event: &Event| match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
            EventKind::Access(_) => true,
            _ => false,
        };
        if !event.as_ref().is_ok_and(looked_at) {
            let _ = changed.try_send(()); // a full channel is as good: the look is still to come
        }
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    watcher
        .watch(&folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf), RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
