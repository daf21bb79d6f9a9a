//! A configuration together with what the files that it names hold: consumers, lists, certificates and keys.
//!
//! `config` says which files there are; here they are read. Their mistakes go into the report of the configuration, so
//! that all of them are told at once.

mod limit_files;
mod limitador;
mod listener;
mod lists;
mod loaded;
mod rls;
mod source;
mod tokens;
mod upstream;

use std::path::Path;
use std::sync::Arc;

use self::lists::{address_lists, warn_of_lists};
use sluicegate_auth::Consumers;
use sluicegate_base::clock::today;
use sluicegate_base::file;
use sluicegate_base::file_watch::{Source as FileSource, Watched};
use sluicegate_base::tls::SystemRoots;
use sluicegate_config::{Config, ConsumersConfig, Folder, LimitConfig, Parsed, Report, nearest};
use sluicegate_route::warn_of_unreachable;

pub use self::limit_files::{LimitFileStamps, MAX_HITS};
pub use self::limitador::LimitadorLimits;
pub use self::loaded::{LoadedConfig, Resources};
pub use self::rls::RlsLimits;
pub use self::source::{Source, admin_address, consumers_file};

/// The result of reading a configuration: the configuration, if it is valid, and the report.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; `None` if there are errors.
    pub config: Option<LoadedConfig>,
    /// The errors and warnings.
    pub report: Report,
    /// The report as text, with the lines it refers to; empty if there are no errors and warnings.
    pub rendered: String,
    /// The text that was read.
    pub text: String,
}

/// Reads a text as if it stood in `file`; other files that it names are looked for in `folder`.
pub fn parse(text: String, file: &str, folder: &Path) -> Loaded {
    parse_after(text, file, folder, None)
}

/// The same. Files that have not changed since `before`, the configuration in force, are not parsed again.
fn parse_after(text: String, file: &str, folder: &Path, before: Option<&LoadedConfig>) -> Loaded {
    let mut report = Report::default();
    let folder = Folder { path: folder, read: &|path| file::read(path, file::SMALL).map(|(bytes, _)| bytes) };
    let parsed = sluicegate_config::parse(&text, folder, &mut report);
    let config = parsed.and_then(|Parsed { mut config, matches }| {
        warn_of_unreachable(&matches, &mut report);
        let limit_files = LimitFileStamps::of(&config);
        let rls = config.rls.as_ref().map(|rls| rls::load(rls, &mut config.limits, &mut report));
        let limitador = config.limitador.as_ref();
        let limitador = limitador.map(|one| limitador::load(one, &mut config.limits, &mut report));
        let (rls, limitador) = (all(rls)?, all(limitador)?);
        let resources = Resources { rls, limitador, limit_files, ..load(&config, before, &mut report)? };
        Some(LoadedConfig { config: Arc::new(config), resources, divisions: Vec::new() })
    });
    report.sort();
    let config = config.filter(|_| report.errors.is_empty());
    let rendered = report.render(file, &text);
    Loaded { config, report, rendered, text }
}

/// Reads all files of a configuration; `None` if any of them cannot be used.
fn load(config: &Config, before: Option<&LoadedConfig>, report: &mut Report) -> Option<Resources> {
    let known = before.and_then(|before| before.resources.consumers.as_ref());
    let named = config.api_key.consumers.as_ref();
    let consumers = named.map(|named| consumers(named, config, known, report));
    let lists = address_lists(config, before, report);
    warn_of_lists(config, &lists, report);
    let now = today();
    let listeners: Vec<_> = config
        .listeners
        .iter()
        .map(|listener| listener.tls.as_ref().map(|tls| listener::files(tls, before, now, report)))
        .collect();
    let token_keys = config.jwt.as_ref().and_then(|jwt| tokens::keys(&jwt.keys, report));
    let introspection = config.introspection.as_ref().map(|introspection| &introspection.service);
    let services = introspection.into_iter().chain(config.check.as_ref().map(|check| &check.service));
    services.filter_map(|service| service.ca.as_ref()).for_each(|ca| upstream::check_roots(ca, report));
    if let Some(tls) = config.store.as_ref().and_then(|store| store.tls.as_ref()) {
        upstream::check_redis(tls, report);
    }
    let system = SystemRoots::default();
    let upstreams: Vec<_> = config
        .upstreams
        .iter()
        .map(|upstream| {
            upstream.tls.as_ref().map(|tls| upstream::tls(tls, upstream.protocol, &system, report))
        })
        .collect();
    Some(Resources {
        consumers: all(consumers)?,
        lists: lists.into_iter().collect::<Option<_>>()?,
        listeners: listeners.into_iter().map(all).collect::<Option<_>>()?,
        rls: None,
        limitador: None,
        limit_files: LimitFileStamps::default(),
        token_keys,
        upstreams: upstreams.into_iter().map(all).collect::<Option<_>>()?,
    })
}

/// `None` if something that is named could not be loaded.
#[expect(clippy::option_option, reason = "whether it is named, and whether it could be loaded")]
fn all<T>(loaded: Option<Option<T>>) -> Option<Option<T>> {
    match loaded {
        Some(None) => None,
        Some(loaded) => Some(loaded),
        None => Some(None),
    }
}

fn consumers(
    named: &ConsumersConfig,
    config: &Config,
    known: Option<&Arc<Consumers>>,
    report: &mut Report,
) -> Option<Arc<Consumers>> {
    let path = &named.file.path;
    let loaded = Consumers::load(path, known).and_then(|consumers| {
        consumers.check(config, &path.display().to_string())?;
        Ok(consumers)
    });
    match loaded {
        Ok(consumers) => {
            if consumers.source().is_some_and(FileSource::open_to_others) {
                let message = format!("{} can be read by every user of this machine", path.display());
                report.warning(
                    named.file.problem(message).help(
                        "it tells the names of consumers and the digests of their keys; `chmod o-rw` it",
                    ),
                );
            }
            if named.required && consumers.is_empty() {
                report.warning(
                    named
                        .file
                        .problem("there are no consumers, so that every request is answered 401")
                        .help("`sluicegate consumers add NAME` makes a key"),
                );
            }
            warn_of_plans(config, &consumers, report);
            Some(consumers)
        }
        Err(unusable) => {
            let mut problem = named.file.problem(unusable.message);
            if !path.exists() {
                problem = problem.help("`sluicegate consumers add NAME` makes the file and a key");
            }
            problem.details = unusable.details;
            report.error(problem);
            None
        }
    }
}

/// Warns of plans that have numbers in a limit or are exempt from it, and that no consumer can have. Plans in tokens and in answers of a check are
/// not known here.
fn warn_of_plans(config: &Config, consumers: &Consumers, report: &mut Report) {
    let of_token = config.jwt.as_ref().is_some_and(|jwt| jwt.plan_claim.is_some())
        || config.introspection.as_ref().is_some_and(|introspection| introspection.plan_claim.is_some());
    if of_token || config.check.is_some() {
        return;
    }
    let exempt = config.limits.iter().flat_map(|limit| &limit.exempt.plans).map(|plan| ("plan:", plan));
    let with_numbers = config.limits.iter().flat_map(LimitConfig::plan_names).map(|plan| ("", plan));
    for (prefix, plan) in exempt.chain(with_numbers) {
        if consumers.plans().any(|known| known == plan.value) {
            continue;
        }
        let problem = plan.problem(format!("no consumer is on the plan `{}`", plan.value));
        report.warning(match nearest(&plan.value, consumers.plans()) {
            Some(near) => problem.help(format!("did you mean `{prefix}{near}`?")),
            None => problem.help("`sluicegate consumers add NAME --plan PLAN` makes one that is"),
        });
    }
}
