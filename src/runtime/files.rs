//! The large files beside gateway.yaml: whoever changes one need not touch gateway.yaml.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Supervisor;
use super::tls_files::TlsFiles;
use crate::auth::Consumers;
use crate::config::Config;
use crate::file_watch::{Unusable, Watch, Watched};
use crate::lists::AddressList;
use crate::pem::Pem;

/// The files that the configuration in force was made of.
#[derive(Default)]
pub(super) struct Files {
    consumers: Option<(PathBuf, Watch<Consumers>)>,
    /// With the names of the lists.
    lists: Vec<(String, PathBuf, Watch<AddressList>)>,
    pub(super) tls: Vec<TlsFiles>,
    /// The certificates of upstreams, with the names of those.
    upstream_tls: Vec<(String, Vec<Watch<Pem>>)>,
}

impl Files {
    /// The files of a configuration that came into force.
    pub(super) fn of(config: &Config) -> Self {
        let consumers = config.api_key.consumers.as_ref();
        let lists = config.lists.iter().filter_map(|list| {
            let file = list.file.as_ref()?;
            Some((list.name.clone(), file.clone(), Watch::new(file, &*list.known)))
        });
        let tls = config.upstreams.iter().filter_map(|upstream| {
            let files = upstream.tls.as_ref()?.files.all();
            Some((upstream.name.clone(), files.map(|file| Watch::new(&file.path, &*file.pem)).collect()))
        });
        Self {
            upstream_tls: tls.collect(),
            consumers: consumers.map(|c| (c.file.clone(), Watch::new(&c.file, &*c.known))),
            lists: lists.collect(),
            tls: TlsFiles::of(config),
        }
    }
}

impl Supervisor {
    /// Loads what has changed. The rest of the configuration stays.
    pub(super) async fn look_at_files(&mut self) {
        if let Some((file, watch)) = &mut self.files.consumers
            && let Some(read) = watch.look().await
        {
            let file = file.clone();
            let plans = &self.shared.snapshot.load().config.plans;
            let read = read.and_then(|consumers| {
                consumers.check_plans(plans, &file.display().to_string())?;
                Ok(consumers)
            });
            self.take(file, read, |config| Some(&mut config.api_key.consumers.as_mut()?.known)).await;
        }
        let mut at = 0;
        while let Some((name, file, watch)) = self.files.lists.get_mut(at) {
            at += 1;
            let Some(read) = watch.look().await else { continue };
            let (name, file) = (name.clone(), file.clone());
            let of_name = |config: &mut Config| config.lists.iter().position(|list| list.name == name);
            self.take(file, read, |config| {
                let at = of_name(config)?;
                Some(&mut config.lists[at].known)
            })
            .await;
        }
        self.look_at_tls_files().await;
        let mut at = 0;
        while let Some((name, watches)) = self.files.upstream_tls.get_mut(at) {
            at += 1;
            let mut changed = false;
            for watch in watches {
                changed |= watch.look().await.is_some();
            }
            if changed {
                let name = name.clone();
                self.take_upstream_tls(&name).await;
            }
        }
    }

    /// Puts in force what the certificates of an upstream are now: all of them fit together, or none is taken.
    async fn take_upstream_tls(&mut self, upstream: &str) {
        let known = |config: &Config| {
            config.upstreams.iter().position(|known| known.name == upstream && known.tls.is_some())
        };
        let before = self.shared.snapshot.load_full();
        let Some(known_tls) =
            known(&before.config).and_then(|index| before.config.upstreams[index].tls.as_ref())
        else {
            return;
        };
        let again = known_tls.clone();
        let read = tokio::task::spawn_blocking(move || again.again()).await;
        let Ok(read) = read else { return };
        let wrong = read.as_ref().err().map_or(&[][..], |wrong| &wrong[..]);
        let mut waiting = false;
        for file in known_tls.files.all() {
            let mistake = wrong.iter().find(|(path, _)| *path == file.path).map(|(_, mistake)| mistake);
            waiting |= self.note(&file.path.display().to_string(), mistake);
        }
        let Ok(tls) = read else { return };
        if waiting {
            let _ = self.reload().await; // a configuration that was refused may have waited for it
        }
        let before = self.shared.snapshot.load_full();
        let Some(index) = known(&before.config) else { return };
        if before.config.upstreams[index].tls.as_ref() == Some(&tls) {
            return; // a mistake was taken back, or the reload has it already
        }
        tracing::info!("the certificates of the upstream {upstream} are in force");
        let mut config = before.config.clone();
        config.upstreams[index].tls = Some(tls);
        self.put_in_force(config, &before).await;
        self.keep_upstreams();
    }

    /// Puts in force what a file holds now, in its place in the configuration.
    async fn take<T: Watched>(
        &mut self,
        file: PathBuf,
        read: Result<Arc<T>, Unusable>,
        place: impl Fn(&mut Config) -> Option<&mut Arc<T>>,
    ) {
        let file = file.display().to_string();
        let waiting = self.note(&file, read.as_ref().err());
        let Ok(known) = read else { return };
        if waiting {
            let _ = self.reload().await; // a configuration that was refused may have waited for it
        }
        let before = self.shared.snapshot.load_full();
        let mut config = before.config.clone();
        let Some(place) = place(&mut config) else { return };
        if place.is_same(&known) {
            return; // a mistake was taken back, or the reload has it already
        }
        tracing::info!("{file} is in force");
        *place = known;
        self.put_in_force(config, &before).await;
    }

    /// Notes whether a file is right. A bad one changes nothing, is logged once and stands in /status. Answers whether
    /// the configuration itself was refused.
    pub(super) fn note(&self, file: &str, wrong: Option<&Unusable>) -> bool {
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        match wrong.map(ToString::to_string) {
            None => _ = status.file_errors.remove(file),
            Some(report) => {
                if status.file_errors.get(file) != Some(&report) {
                    tracing::error!("{report}\nwhat {file} said before stays in force");
                }
                status.file_errors.insert(file.to_owned(), report);
            }
        }
        let waiting = status.last_error.is_some();
        let successful = status.file_errors.is_empty() && !waiting;
        self.shared.metrics.reload_successful.store(u64::from(successful), Ordering::Relaxed);
        waiting
    }
}
