//! Reads lists of addresses from their files, and warns of doubtful content.

use std::collections::HashSet;
use std::sync::Arc;

use super::loaded::LoadedConfig;
use sluicegate_auth::lists::AddressList;
use sluicegate_base::file_watch::Watched;
use sluicegate_config::{Config, FileRef, ListSource, Problem, Report, believes_everybody};

/// The lists of a configuration; `None` for one whose file cannot be used, which is reported.
pub(super) fn address_lists(
    config: &Config,
    before: Option<&LoadedConfig>,
    report: &mut Report,
) -> Vec<Option<Arc<AddressList>>> {
    let read = |source: &ListSource| match source {
        ListSource::Networks(networks) => Some(Arc::new(AddressList::new(networks.iter().copied()))),
        ListSource::File(file) => from_file(file, before, report),
    };
    config.lists.iter().map(|list| &list.source).map(read).collect()
}

fn from_file(file: &FileRef, before: Option<&LoadedConfig>, report: &mut Report) -> Option<Arc<AddressList>> {
    let known = before.and_then(|before| {
        let at = before.lists.iter().position(|list| list.file() == Some(file))?;
        before.resources.lists.get(at)
    });
    AddressList::load(&file.path, known)
        .map_err(|unusable| {
            let mut problem = file.problem(unusable.message);
            problem.details = unusable.details;
            if !file.path.exists() {
                problem =
                    problem.help("a list is a text file with one address or network a line; it may be empty");
            }
            report.error(problem);
        })
        .ok()
}

/// Warns of lists that are valid but probably not intended.
pub(super) fn warn_of_lists(config: &Config, lists: &[Option<Arc<AddressList>>], report: &mut Report) {
    let loaded = |index: usize| lists.get(index)?.as_deref();
    for trusted in &config.client_ip.trusted_lists {
        if loaded(trusted.list.index).is_some_and(AddressList::has_everybody) {
            report.warning(believes_everybody(&trusted.written));
        }
    }
    let only = config.routes.iter().filter_map(|route| match &route.access.allow[..] {
        [only] => Some(only.index),
        _ => None,
    });
    let only: HashSet<usize> = only.collect();
    for (index, list) in config.lists.iter().enumerate() {
        if only.contains(&index) && loaded(index).is_some_and(AddressList::is_empty) {
            let message = format!("the list `{}` is empty, and only its addresses are allowed", list.name);
            report.warning(Problem::new(list.at, message).help("every request there is answered 403"));
        }
    }
}
