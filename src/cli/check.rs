//! `sluicegate check`

use std::process::ExitCode;
use std::time::Duration;

use super::admin_client::{AdminClient, AdminOptions};
use super::options::{ConfigFile, ConfigOption};
use super::output::{INVALID, fail, say};
use sluicegate_config::{
    AccessLogConfig, LogTarget, Place, Problem, QueueStorage, RedisConfig, RegionsConfig, SharedQueue,
    SyncMode, grouped,
};
use sluicegate_gateway::diff::Diff;
use sluicegate_gateway::limit::{Counted, Counting, counting};
use sluicegate_gateway::queue::{Durability, durability};
use sluicegate_gateway::resources::{LoadedConfig, Source};
use sluicegate_gateway::store_settings::try_store;
use sluicegate_observe::access_log::try_log;

#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 if the file can be used, 1 if not; with --strict, 1 also for warnings; with \
                        --against-running, 1 also if counters would be lost.\n\n\
                        Examples:\n  sluicegate check\n  sluicegate check --strict deploy/gateway.yaml\n  \
                        sluicegate check --connect gateway.yaml    also test the store\n  \
                        sluicegate check --against-running         which counters a reload would lose\n  \
                        helm template . | yq … | sluicegate check -"
)]
pub(super) struct Args {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    option: ConfigOption,
    /// Also fail on warnings
    #[arg(long)]
    strict: bool,
    /// Also connect to the store and test all commands that a gateway needs
    #[arg(long)]
    connect: bool,
    /// Also show what a reload with this file would keep, rescale or lose on a running gateway
    #[arg(long)]
    against_running: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

impl Args {
    /// `check` of a configuration, without anything else.
    pub(super) fn of(config: &Source) -> Self {
        Self {
            file: ConfigFile { file: None },
            option: ConfigOption { config: Some(config.clone()) },
            strict: false,
            connect: false,
            against_running: false,
            admin: AdminOptions::default(),
        }
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    let source = args.file.or(&args.option);
    let mut loaded = match source.load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(INVALID, format!("cannot read {source}: {error}")),
    };
    if let Some(problem) = loaded.config.as_ref().and_then(|config| cannot_log(config.access_log.as_ref()?)) {
        loaded.report.error(problem);
        loaded.report.sort();
        loaded.rendered = loaded.report.render(&source.to_string(), &loaded.text);
    }
    let (errors, warnings) = (loaded.report.errors.len(), loaded.report.warnings.len());
    say(&loaded.rendered);
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let summary = format!("{source}: {}, {}", count(errors, "error"), count(warnings, "warning"));
    if errors > 0 || (args.strict && warnings > 0) {
        say(format_args!("{summary}\n"));
        return ExitCode::from(INVALID);
    }
    let mut far = false;
    for (what, store) in loaded.config.iter().flat_map(stores).filter(|_| args.connect) {
        match try_store(store) {
            Ok(took) => far |= is_far(what, took.into(), store.timeout),
            Err(trouble) => {
                let help = "docs/redis.md, \"Setting Redis up\", has what it needs";
                return fail(INVALID, format!("the {what} cannot be used: {trouble}\n  help: {help}"));
            }
        }
    }
    for (limit, queue) in loaded.config.iter().flat_map(shared_queues).filter(|_| args.connect) {
        match durability(queue).map(Durability::risk) {
            Ok(None) => say(format_args!("the queue of `{limit}` is safe in Redis\n")),
            Ok(Some(risk)) => {
                say(format_args!("warning: the queue of `{limit}` is not safe in Redis: {risk}\n"));
                far = true;
            }
            Err(trouble) => {
                return fail(INVALID, format!("the queue of `{limit}` cannot be used: {trouble}"));
            }
        }
    }
    if far && args.strict {
        say(format_args!("{summary}\n"));
        return ExitCode::from(INVALID);
    }
    if args.against_running {
        say(format_args!("{summary}\n"));
        return match against_running(source, &args.admin.or(source)) {
            Ok(diff) => super::diff::show(&diff, false),
            Err(message) => fail(INVALID, message),
        };
    }
    let counted = loaded.config.as_ref().map(counted).unwrap_or_default();
    let region =
        loaded.config.as_ref().and_then(|config| config.regions.as_ref()).map(region).unwrap_or_default();
    super::output::print_and_exit(&format!("{region}{counted}{summary}\n"))
}

/// Why the access log cannot be written, on which `run` would fail. No file is made.
fn cannot_log(log: &AccessLogConfig) -> Option<Problem> {
    let LogTarget::File(path) = &log.target else { return None };
    let at = log.written.as_ref().map_or(Place::START, |written| written.at);
    let problem =
        |why: String| Problem::new(at, format!("cannot write the access log to {}: {why}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let help = format!("make the folder {}", folder.display());
        return Some(problem("its folder does not exist".to_owned()).help(help));
    }
    try_log(path).err().map(|error| problem(error.to_string()))
}

/// The queues in Redis, with their limits.
fn shared_queues(config: &LoadedConfig) -> impl Iterator<Item = (&str, &SharedQueue)> {
    config.limits.iter().filter_map(|limit| match &limit.queue.as_ref()?.storage {
        QueueStorage::Redis(queue) => Some((limit.name.as_str(), queue)),
        QueueStorage::File(_) => None,
    })
}

/// The stores of a configuration.
fn stores(config: &LoadedConfig) -> impl Iterator<Item = (&'static str, &RedisConfig)> {
    let home = config.regions.as_ref().and_then(|regions| regions.home.as_ref());
    config.store.iter().map(|store| ("store", store)).chain(home.map(|home| ("home store", home)))
}

/// Says how far away a store is. Returns whether that is too far for its timeout.
fn is_far(what: &str, took: Duration, timeout: Duration) -> bool {
    let far = took * 2 > timeout;
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let (took, timeout) = (millis(took), millis(timeout));
    say(match far {
        false => format!("the {what} answers in {took}; `timeout` is {timeout}\n"),
        true => format!(
            "warning: the {what} answers in {took}, and `timeout` is {timeout}: many calls would not be answered in time\n  \
             help: use a store that is nearer, or raise `timeout`\n"
        ),
    });
    far
}

/// What the region of the gateway has of the shared limits.
fn region(regions: &RegionsConfig) -> String {
    let percent = |part: u32| format!("{}%", f64::from(part) / 1e4);
    let size = regions.division(regions.floor()).size;
    let mut text = format!("region {}: {} of each shared limit\n", regions.name, percent(size));
    if regions.home.is_some() {
        text = format!(
            "region {}: {} of the rate of each shared bucket, and up to {} while other regions need less; {} of its size, and of \
             windows and places\n",
            regions.name,
            percent(regions.floor()),
            percent(regions.floor() + regions.pool()),
            percent(size)
        );
    }
    text
}

/// How the limits are counted that several gateways share, if some of them are leased.
fn counted(config: &LoadedConfig) -> String {
    let Some(store) = &config.store else { return String::new() };
    let shared: Vec<_> = config.limits.iter().filter(|limit| limit.shared).collect();
    if shared.iter().all(|limit| limit.sync.mode == SyncMode::Exact) {
        return String::new();
    }
    let gateways = store.gateways.max(1);
    let words = if gateways == 1 { "1 gateway".to_owned() } else { format!("{gateways} gateways") };
    let mut text = format!("limits in the store, with {words} (store.redis.gateways):\n");
    for limit in shared {
        let Counting { counted, why, lease, over_admission } =
            counting(&limit.in_region(limit.division), gateways);
        let how = match (counted, why) {
            (Counted::Leased, _) => format!(
                "leased: a gateway pays for up to {} tokens of a key in advance; all gateways together admit at most {} \
                 above the limit",
                grouped(lease),
                grouped(over_admission)
            ),
            (_, Some(why)) => format!("exact: {why}"),
            (_, None) => "exact".to_owned(),
        };
        text += &format!("  {}: {how}\n", limit.name);
    }
    if config.rules.is_some() {
        text += "  a rule that raises a rate raises what is admitted above it, too: /status shows what is in force\n";
    }
    text
}

/// What a reload with this file would change on a running gateway.
fn against_running(source: &Source, admin: &AdminOptions) -> Result<Diff, String> {
    let mut client = AdminClient::new(admin)?;
    let running = client.json("/config")?;
    let limits = client.json("/limits")?;
    let counted = |name: &str| {
        let limits = limits.as_array()?;
        let limit = limits.iter().find(|limit| limit["name"] == name)?;
        limit["candidate"].is_null().then(|| limit["entries"].as_u64())? // a candidate has entries of its own
    };
    Ok(Diff::between(&running, &super::diff::effective(source)?, counted))
}
