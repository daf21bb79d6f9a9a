//! A configuration comes into force, or changes nothing.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::Supervisor;
use super::files::Files;
use super::log;
use super::sockets::Held;
use super::worker::Command;
use crate::config::{Config, ListenerConfig, Loaded, Source};
use crate::file;
use crate::metrics::ConfiguredNames;
use crate::snapshot::Snapshot;

/// How long a bad file may be half-written before it is reported.
const HALF_WRITTEN: Duration = Duration::from_millis(100);

/// The answer to a request for a reload when there is no file to read again.
const READ_ONCE: &str = "nothing is reloaded: the configuration was read from standard input, which can be read once; \
                         start the gateway with a file, or replace it with --handover";

/// What the file says now. `before` is the configuration in force.
pub(super) fn read(source: &Source, before: Option<&Config>) -> Result<Loaded, String> {
    source.load_after(before).map_err(|error| format!("cannot read {source}: {error}"))
}

/// What is said of a file with errors.
pub(super) fn not_in_force(source: &Source) -> String {
    format!("{source} has errors and is not in force")
}

/// The names whose series are exposed while `config` is in force.
fn names(config: &Config) -> ConfiguredNames<'_> {
    ConfiguredNames {
        routes: config.routes.iter().map(|route| route.name.as_str()).collect(),
        limits: config.limits.iter().map(|limit| limit.name.as_str()).collect(),
        upstreams: config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect(),
        listeners: config.listeners.iter().map(|listener| listener.name.as_str()).collect(),
    }
}

/// Waits a moment for the addresses of servers that are new.
pub(super) async fn find_servers(snapshot: &Snapshot) {
    join_all(snapshot.upstreams.iter().map(|upstream| upstream.find_servers())).await;
}

impl Supervisor {
    /// Loads the file if it has changed.
    pub(super) async fn look(&mut self) {
        if let Source::File(path) = &self.source {
            let path = path.clone();
            self.look_at_config(path).await;
        }
        self.look_at_files().await;
    }

    async fn look_at_config(&mut self, path: PathBuf) {
        let read = tokio::task::spawn_blocking(move || file::read_text(&path, file::CONFIG)).await;
        match read.unwrap_or_else(|error| Err(error.into())) {
            Ok(text) if text == self.text => {}
            // It is being replaced; one that is gone for good changes nothing either.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => {
                if read.is_err() {
                    self.text.clear(); // the same text again is then a change
                }
                let _ = self.reload().await; // reported where operators look
            }
        }
    }

    /// Loads the file. A bad one changes nothing, is logged once and stands in /status.
    pub(super) async fn reload(&mut self) -> Result<u64, String> {
        if self.source == Source::Stdin {
            tracing::warn!("{READ_ONCE}");
            return Err(READ_ONCE.to_owned());
        }
        let result = self.try_reload().await;
        match &result {
            Ok(generation) => tracing::info!("{} is in force, generation {generation}", self.source),
            Err(report) => {
                let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
                if status.last_error.as_ref() != Some(report) {
                    tracing::error!("{}\n{report}", not_in_force(&self.source));
                }
                status.last_error = Some(report.clone());
                self.shared.metrics.reload_successful.store(0, Ordering::Relaxed);
            }
        }
        result
    }

    async fn try_reload(&mut self) -> Result<u64, String> {
        let before = self.shared.snapshot.load_full();
        let mut loaded = self.read_after(&before).await?;
        if loaded.config.is_none() && loaded.text != self.text {
            tokio::time::sleep(HALF_WRITTEN).await;
            loaded = self.read_after(&before).await?;
        }
        self.text = loaded.text;
        let config = loaded.config.ok_or_else(|| loaded.rendered.clone())?;
        let text = std::mem::take(&mut self.text); // until the machine has allowed it, the file is looked at again
        let listeners = self.open_new(&before.config, &config)?;
        let (shared, access_log) = (Arc::clone(&self.shared), config.access_log.clone());
        let opened = tokio::task::spawn_blocking(move || {
            log::open(access_log.as_ref(), shared.access_log.load_full(), &shared.metrics)
        });
        let access_log = opened.await.map_err(|error| error.to_string())??;
        self.serve_admin(config.admin.as_ref().map(|admin| admin.address))?;
        self.text = text;
        if !loaded.rendered.is_empty() {
            tracing::warn!("{}", loaded.rendered.trim_end());
        }
        if config.workers.is_some() && config.workers != before.config.workers {
            tracing::warn!("a changed number of workers is in force after a restart");
        }
        let gone: Vec<String> = before
            .config
            .listeners
            .iter()
            .map(ListenerConfig::id)
            .filter(|old| !config.listeners.iter().any(|new| new.id() == *old))
            .collect();

        self.shared.access_log.store(access_log);
        let generation = self.put_in_force(config, &before).await;
        self.keep_store();
        self.keep_keys();
        self.keep_upstreams();
        for id in gone {
            self.sockets.release(&id);
            self.tell(|| Command::Close(id.clone()));
        }
        self.open(listeners);
        self.loaded();
        Ok(generation)
    }

    /// Reads the file on a thread of its own: a million consumers take a moment, in which the admin API goes on
    /// answering.
    async fn read_after(&self, before: &Arc<Snapshot>) -> Result<Loaded, String> {
        let (source, before) = (self.source.clone(), Arc::clone(before));
        let read = tokio::task::spawn_blocking(move || read(&source, Some(&before.config))).await;
        read.unwrap_or_else(|error| Err(format!("cannot read {}: {error}", self.source)))
    }

    /// Lets the workers serve under `config` from their next request on.
    pub(super) async fn put_in_force(&self, config: Config, before: &Snapshot) -> u64 {
        let next = self.snapshots.build(config, Some(before), self.shared.clock.now());
        find_servers(&next).await;
        let generation = next.generation;
        self.shared.metrics.retain(&names(&next.config));
        self.shared.snapshot.store(Arc::new(next));
        self.shared.generation.store(generation, Ordering::Release);
        generation
    }

    /// Sockets for the listeners that are new; if one cannot be had, none is kept.
    fn open_new(&self, before: &Config, config: &Config) -> Result<Vec<Held>, String> {
        let old: Vec<String> = before.listeners.iter().map(ListenerConfig::id).collect();
        let new = config.listeners.iter().filter(|listener| !old.contains(&listener.id()));
        new.map(|listener| {
            // A port that this process has already, on another address, is shared with itself.
            let alone = !before.listeners.iter().any(|other| other.address.port() == listener.address.port());
            self.sockets.open(listener, self.workers.len(), alone).map_err(|error| error.to_string())
        })
        .collect()
    }

    /// Notes that a configuration came into force.
    pub(super) fn loaded(&mut self) {
        self.files = Files::of(&self.shared.snapshot.load().config);
        let at = self.shared.clock.wall();
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.loaded_at = at.to_string();
        status.last_error = None;
        status.file_errors.clear();
        let metrics = &self.shared.metrics;
        metrics.reload_successful.store(1, Ordering::Relaxed);
        metrics.reload_at.store(u64::try_from(at.as_second()).unwrap_or(0), Ordering::Relaxed);
    }
}
