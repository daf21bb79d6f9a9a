//! The large files beside gateway.yaml: whoever changes one need not touch gateway.yaml.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Supervisor;
use crate::auth::Consumers;
use crate::config::Config;
use crate::lists::AddressList;
use crate::watched::{Unusable, Watch, Watched};

/// The files that the configuration in force was made of.
#[derive(Default)]
pub(super) struct Files {
    consumers: Option<(PathBuf, Watch<Consumers>)>,
    /// With the names of the lists.
    lists: Vec<(String, PathBuf, Watch<AddressList>)>,
}

impl Files {
    /// The files of a configuration that came into force.
    pub(super) fn of(config: &Config) -> Self {
        let consumers = config.api_key.consumers.as_ref();
        let lists = config.lists.iter().filter_map(|list| {
            let file = list.file.as_ref()?;
            Some((list.name.clone(), file.clone(), Watch::new(file, &*list.known)))
        });
        Self {
            consumers: consumers.map(|c| (c.file.clone(), Watch::new(&c.file, &*c.known))),
            lists: lists.collect(),
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
    fn note(&self, file: &str, wrong: Option<&Unusable>) -> bool {
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
