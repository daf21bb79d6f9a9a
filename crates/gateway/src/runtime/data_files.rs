//! Consumers, address lists and upstream certificates: a changed file comes into force without a reload.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::supervisor::Supervisor;
use crate::resources::{LimitFileStamps, LoadedConfig};
use sluicegate_base::boxed_future::spawn_blocking;
use sluicegate_base::file_watch::{Unusable, Watched, settled};
use sluicegate_config::Config;

/// Why the configuration is loaded again when a file that could not be used has changed.
const REPAIRED: &str = "file repaired";

impl Supervisor {
    /// Loads the files that have changed. The rest of the configuration stays as it is.
    pub(super) async fn check_data_files(&mut self) {
        if let Some((file, watch)) = &mut self.files.consumers
            && let Some(read) = watch.changed().await
        {
            let file = file.clone();
            let snapshot = self.shared.snapshot.load_full();
            let read = read.and_then(|consumers| {
                consumers.check(&snapshot.config, &file.display().to_string())?;
                Ok(consumers)
            });
            self.apply_one(&file, read, |config| config.resources.consumers.as_mut()).await;
        }
        let mut at = 0;
        while let Some((name, file, watch)) = self.files.lists.get_mut(at) {
            at += 1;
            let Some(read) = watch.changed().await else { continue };
            let (name, file) = (name.clone(), file.clone());
            let of_name = |config: &LoadedConfig| config.lists.iter().position(|list| list.name == name);
            self.apply_one(&file, read, |config| {
                let at = of_name(config)?;
                config.resources.lists.get_mut(at)
            })
            .await;
        }
        self.check_limit_files().await;
        self.check_tls_files().await;
        let mut at = 0;
        while let Some((name, watches)) = self.files.upstream_tls.get_mut(at) {
            at += 1;
            let mut changed = false;
            for watch in watches {
                changed |= watch.changed().await.is_some();
            }
            if changed {
                let name = name.clone();
                self.apply_upstream_tls(&name).await;
            }
        }
    }

    /// Loads the configuration again if a file of limits for other proxies has changed: its limits are among those of the
    /// configuration.
    async fn check_limit_files(&mut self) {
        let config = Arc::clone(&self.shared.snapshot.load_full().config.config);
        if !LimitFileStamps::has_files(&config) {
            return;
        }
        let look = async || {
            let config = Arc::clone(&config);
            spawn_blocking(move || LimitFileStamps::of(&config)).await.unwrap_or_default()
        };
        let stamps = look().await;
        if self.files.limits != stamps {
            // A file that is written bit by bit is read when it is whole. A file that cannot be used is logged once.
            self.files.limits = settled(stamps, look).await;
            let _ = self.reload("file changed").await;
        }
    }

    /// Applies the certificates of an upstream: all of them are valid together, or none is applied.
    async fn apply_upstream_tls(&mut self, upstream: &str) {
        let known = |config: &Config| {
            config.upstreams.iter().position(|known| known.name == upstream && known.tls.is_some())
        };
        let before = self.shared.snapshot.load_full();
        let Some(known_tls) =
            known(&before.config).and_then(|index| before.config.resources.upstreams[index].as_ref())
        else {
            return;
        };
        let again = known_tls.clone();
        let read = sluicegate_base::boxed_future::spawn_blocking(move || again.again()).await;
        let Ok(read) = read else { return };
        let wrong = read.as_ref().err().map_or(&[][..], |wrong| &wrong[..]);
        let files = known_tls.files.all().map(|file| {
            let mistake = wrong.iter().find(|(path, _)| *path == file.path).map(|(_, mistake)| mistake);
            (file.path.as_path(), mistake)
        });
        let files: Vec<_> = files.collect();
        let change = |config: &mut LoadedConfig| {
            let (Ok(tls), Some(index)) = (&read, known(&config.config)) else { return false };
            let place = &mut config.resources.upstreams[index];
            if place.as_ref() == Some(tls) {
                return false;
            }
            tracing::info!("the certificates of the upstream {upstream} are in force");
            *place = Some(tls.clone());
            true
        };
        if self.apply(&files, change).await {
            self.update_upstreams();
        }
    }

    /// Applies the content of one file at its place in the configuration.
    async fn apply_one<T: Watched>(
        &mut self,
        file: &Path,
        read: Result<Arc<T>, Unusable>,
        place: impl Fn(&mut LoadedConfig) -> Option<&mut Arc<T>>,
    ) {
        let change = |config: &mut LoadedConfig| {
            let (Ok(known), Some(place)) = (&read, place(config)) else { return false };
            if place.is_same(known) {
                return false;
            }
            tracing::info!("{} is in force", file.display());
            *place = Arc::clone(known);
            true
        };
        self.apply(&[(file, read.as_ref().err())], change).await;
    }

    /// Applies files that have changed, each with why it cannot be used. If all of them can, `change` puts their content into
    /// the configuration in force; it returns whether that is another one. Otherwise a file was reverted, or a reload has
    /// applied it. Returns whether anything was applied.
    pub(super) async fn apply(
        &mut self,
        files: &[(&Path, Option<&Unusable>)],
        change: impl FnOnce(&mut LoadedConfig) -> bool,
    ) -> bool {
        let mut refused = false;
        for (file, wrong) in files {
            let file = file.display().to_string();
            tracing::debug!(file, usable = wrong.is_none(), "file changed");
            refused |= self.record_file(&file, *wrong);
        }
        if files.iter().any(|(_, wrong)| wrong.is_some()) {
            return false;
        }
        if refused {
            let _ = self.reload(REPAIRED).await; // the configuration may have been refused because of this file
        }
        let before = self.shared.snapshot.load_full();
        let mut config = before.config.clone();
        let changed = change(&mut config);
        if changed {
            self.put_in_force(config, before.opened(), &before).await;
        }
        changed
    }

    /// Records whether a file could be used. An unusable file changes nothing, is logged once and shown by `GET /status`.
    /// Returns whether the last configuration was refused, so that it may be accepted with this file.
    fn record_file(&self, file: &str, wrong: Option<&Unusable>) -> bool {
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        match wrong.map(ToString::to_string) {
            None => _ = status.file_errors.remove(file),
            Some(report) => {
                if status.file_errors.get(file) != Some(&report) {
                    tracing::error!("{report}\nthe previous content of {file} stays in force");
                }
                status.file_errors.insert(file.to_owned(), report);
            }
        }
        let refused = status.last_error.is_some();
        let successful = status.file_errors.is_empty() && !refused;
        self.shared.metrics.reload_successful.store(u64::from(successful), Ordering::Relaxed);
        refused
    }
}
