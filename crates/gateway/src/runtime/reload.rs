//! Reloads: a new configuration comes into force as a whole, or changes nothing.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::access_log;
use super::sockets::Held;
use super::supervisor::Supervisor;
use super::watched_files::WatchedFiles;
use super::worker::Command;
use crate::admin::effective_config;
use crate::diff::Diff;
use crate::limit::Limit;
use crate::queue::Queues;
use crate::resources::{Loaded, LoadedConfig, Source};
use crate::rules::Rules;
use crate::snapshot::{Opened, Snapshot};
use sluicegate_base::boxed_future::spawn_blocking;
use sluicegate_base::clock::Clock;
use sluicegate_base::file;
use sluicegate_base::file_watch::settled;
use sluicegate_config::{Config, ListenerConfig};
use sluicegate_observe::metrics::ConfiguredNames;

/// A file with errors is read once more after this time, because it may have been read while it was being written.
const HALF_WRITTEN: Duration = Duration::from_millis(100);

/// The refusal of a reload if the configuration was read from standard input.
const READ_ONCE: &str = "nothing is reloaded: the configuration was read from standard input, which can be read once; \
                         start the gateway with a file, or replace it with --handover";

/// Reads and validates the configuration. `before` is the configuration in force.
pub(super) fn read(source: &Source, before: Option<&LoadedConfig>) -> Result<Loaded, String> {
    source.load_after(before).map_err(|error| format!("cannot read {source}: {error}"))
}

/// The message about a configuration with errors.
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

/// How many elements of `next` share this part with an element of `before`.
fn count_kept<T, P>(next: &[T], before: &[T], part: impl Fn(&T) -> &Arc<P>) -> usize {
    let is_kept = |one: &&T| before.iter().any(|other| Arc::ptr_eq(part(one), part(other)));
    next.iter().filter(is_kept).count()
}

/// The keys that a limit has counters for, on all plans.
fn entries(limit: &Arc<Limit>) -> u64 {
    let plans = limit.plans.iter().map(|(_, limit)| limit);
    std::iter::once(limit).chain(plans).map(|limit| limit.counted.counters.entries() as u64).sum()
}

/// Opens what a configuration names; `before` is what the one before had. Blocks.
pub(super) fn open(config: &Config, before: &Opened, clock: Clock) -> Result<Opened, String> {
    let rules = config.rules.as_ref().map(|rules| Rules::open(rules, clock, before.rules.as_ref()));
    Ok(Opened {
        rules: rules.transpose()?,
        queues: Some(Queues::open(config, before.queues.as_deref(), clock)?),
    })
}

/// Waits briefly for the addresses of new servers to be resolved.
pub(super) async fn resolve_new_names(snapshot: &Snapshot) {
    join_all(snapshot.upstreams.iter().map(|upstream| upstream.resolve_new_names())).await;
}

impl Supervisor {
    /// Loads the configuration and the files that it refers to, as far as they have changed.
    pub(super) async fn check_files(&mut self) {
        if let Source::File(path) = &self.source {
            let path = path.clone();
            self.check_config(path).await;
        }
        self.check_data_files().await;
    }

    async fn check_config(&mut self, path: PathBuf) {
        let look = async || {
            let path = path.clone();
            let read = spawn_blocking(move || file::read_text(&path, file::CONFIG)).await;
            read.unwrap_or_else(|error| Err(error.into()))
        };
        match look().await {
            Ok(text) if text == self.text => {}
            // The file is being replaced. If it stays away, nothing changes.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => {
                // A file that is written bit by bit is loaded when it is whole: a limit that is missing for a moment would lose its
                // counters.
                let text = settled(read.ok(), async || look().await.ok()).await;
                if text.is_none() {
                    self.text.clear(); // so that the same text counts as a change later
                }
                if text.as_ref() != Some(&self.text) {
                    let _ = self.reload("file changed").await; // `reload` logs errors and puts them into `GET /status`
                }
            }
        }
    }

    /// Loads the configuration. One with errors changes nothing, is logged once and shown by `GET /status`. `cause` says in
    /// debug events why it is loaded.
    pub(super) async fn reload(&mut self, cause: &'static str) -> Result<u64, String> {
        if self.source == Source::Stdin {
            tracing::warn!("{READ_ONCE}");
            return Err(READ_ONCE.to_owned());
        }
        let clock = self.shared.clock;
        let started = clock.uptime();
        tracing::debug!(cause, file = %self.source, "configuration reload started");
        let result = self.try_reload().await;
        let elapsed = clock.uptime() - started;
        match &result {
            Ok(generation) => {
                tracing::debug!(cause, generation, ?elapsed, "configuration reload finished");
                let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
                let diff = status.last_reload.as_ref();
                let summary = diff.map(|diff| format!("; {}", diff.summary())).unwrap_or_default();
                match diff.is_some_and(Diff::loses) {
                    true => tracing::warn!("{} is in force, generation {generation}{summary}", self.source),
                    false => tracing::info!("{} is in force, generation {generation}{summary}", self.source),
                }
            }
            Err(report) => {
                let reason = report.lines().next();
                tracing::debug!(cause, reason, ?elapsed, "configuration reload refused");
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
        let text = std::mem::take(&mut self.text); // stays empty if a later step fails, so that the file is tried again
        let listeners = self.open_new(&before.config, &config)?;
        let (shared, access_log) = (Arc::clone(&self.shared), config.access_log.clone());
        let opened = sluicegate_base::boxed_future::spawn_blocking(move || {
            access_log::open(access_log.as_ref(), shared.access_log.load_full(), &shared.metrics)
        });
        let access_log = opened.await.map_err(|error| error.to_string())??;
        let opened = self.opened_of(&config, &before).await?;
        self.serve_admin(config.admin.as_ref().map(|admin| admin.address))?;
        self.text = text;
        if !loaded.rendered.is_empty() {
            tracing::warn!("{}", loaded.rendered.trim_end());
        }
        if config.workers.is_some() && config.workers != before.config.workers {
            tracing::warn!("a changed number of workers is in force after a restart");
        }
        let removed: Vec<String> = before
            .config
            .listeners
            .iter()
            .map(ListenerConfig::id)
            .filter(|old| !config.listeners.iter().any(|new| new.id() == *old))
            .collect();
        tracing::debug!(
            opened = listeners.len(),
            kept = config.listeners.len() - listeners.len(),
            closed = removed.len(),
            "listeners updated"
        );

        self.shared.access_log.store(access_log);
        self.update_telemetry(config.otlp.as_ref());
        let counted = |limit: &str| before.limit(limit).map(entries);
        let old = effective_config(&before);
        let generation = self.put_in_force(config, opened, &before).await;
        let diff = Diff::between(&old, &effective_config(&self.shared.snapshot.load()), counted);
        self.update_store();
        self.update_regions();
        self.update_keys();
        self.update_upstreams();
        for id in removed {
            self.sockets.release(&id);
            self.push(|| Command::Close(id.clone()));
        }
        self.open(listeners);
        self.loaded();
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).last_reload = Some(diff);
        Ok(generation)
    }

    /// Reads the configuration on another thread: a million consumers take seconds, and the admin API has to answer
    /// meanwhile.
    async fn read_after(&self, before: &Arc<Snapshot>) -> Result<Loaded, String> {
        let (source, before) = (self.source.clone(), Arc::clone(before));
        let read =
            sluicegate_base::boxed_future::spawn_blocking(move || read(&source, Some(&before.config))).await;
        read.unwrap_or_else(|error| Err(format!("cannot read {}: {error}", self.source)))
    }

    /// Puts `config` in force: it applies to the next request of each worker. Returns its generation.
    pub(super) async fn put_in_force(
        &self,
        mut config: LoadedConfig,
        opened: Opened,
        before: &Snapshot,
    ) -> u64 {
        self.divide(&mut config);
        let next = self.snapshots.build(config, opened, Some(before), self.shared.clock.now());
        resolve_new_names(&next).await;
        let generation = next.generation;
        tracing::debug!(
            generation,
            limits = next.limits.len(),
            counters_kept = count_kept(&next.limits, &before.limits, |limit| &limit.counted.counters),
            upstreams = next.upstreams.len(),
            upstreams_kept = count_kept(&next.upstreams, &before.upstreams, |upstream| upstream),
            store_kept = next.store.as_ref().map(Arc::as_ptr) == before.store.as_ref().map(Arc::as_ptr),
            "configuration in force"
        );
        if !Arc::ptr_eq(&next.config.config, &before.config.config) {
            let names = names(&next.config);
            self.shared.metrics.retain(&names);
            self.shared.tops.retain(&names.limits);
            self.shared.metrics.show_consumers(next.config.metrics.by_consumer);
        }
        self.shared.snapshot.store(Arc::new(next));
        self.shared.generation.store(generation, Ordering::Release);
        generation
    }

    /// The rules and the queues that `config` names: those of `before` as far as they are the same.
    async fn opened_of(&self, config: &LoadedConfig, before: &Snapshot) -> Result<Opened, String> {
        let (config, before, clock) = (Arc::clone(&config.config), before.opened(), self.shared.clock);
        let opened =
            sluicegate_base::boxed_future::spawn_blocking(move || open(&config, &before, clock)).await;
        opened.map_err(|error| error.to_string())?
    }

    /// Begins with new rules if these have outgrown their keys.
    pub(super) async fn renew_rules(&self) {
        let before = self.shared.snapshot.load_full();
        if !before.rules().is_some_and(|rules| rules.have_outgrown()) {
            return;
        }
        match self.opened_of(&before.config, &before).await {
            Ok(opened) => {
                tracing::debug!("what is remembered of rules has become too much, and is read again");
                self.put_in_force(before.config.clone(), opened, &before).await;
            }
            Err(why) => tracing::warn!("{why}"),
        }
    }

    /// Opens sockets for the new listeners; if one cannot be opened, none is kept.
    fn open_new(&self, before: &Config, config: &Config) -> Result<Vec<Held>, String> {
        let old: Vec<String> = before.listeners.iter().map(ListenerConfig::id).collect();
        let new = config.listeners.iter().filter(|listener| !old.contains(&listener.id()));
        new.map(|listener| {
            // This process may bind its own port again on another address.
            let port = listener.address.port();
            let alone = !before.listeners.iter().any(|other| other.address.port() == port);
            self.sockets.open(listener, self.workers.len(), alone).map_err(|error| error.to_string())
        })
        .collect()
    }

    /// Records that a configuration came into force.
    pub(super) fn loaded(&mut self) {
        self.files = WatchedFiles::of(&self.shared.snapshot.load().config);
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
