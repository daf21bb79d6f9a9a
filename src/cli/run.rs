//! `sluicegate run`

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::check;
use super::options::{ConfigFile, ConfigOption};
use super::output::{FAILED, INVALID, fail};
use sluicegate_config::parse_duration;
use sluicegate_gateway::resources::Source;
use sluicegate_gateway::runtime::{self, StartError};
use sluicegate_observe::process_log::ProcessLog;

/// The longest time for which a gateway that took over is watched.
const LONGEST_CONFIRM: Duration = Duration::from_secs(3600);

#[derive(clap::Args)]
#[command(
    after_help = "A changed file comes into force without a restart. A configuration from standard input cannot \
                        change, but the files that it names are watched.\n\n\
                        Examples:\n  sluicegate run\n  sluicegate run api.yaml --workers 4\n  \
                        sluicegate run --config gateway.yaml --handover /run/sluicegate/handover.sock\n  \
                        envsubst < gateway.template | sluicegate run -"
)]
pub(super) struct Args {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    option: ConfigOption,
    /// Validate the configuration and end, as `check` does
    #[arg(short = 't', conflicts_with_all = ["workers", "handover"])]
    test: bool,
    /// Number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Unix socket for upgrades: a gateway that is started with the same socket takes over from the running one,
    /// without a closed port or a lost request
    #[arg(long, value_name = "SOCKET")]
    handover: Option<PathBuf>,
    /// How long to watch the gateway that took over, up to 1h: if it ends in that time, this one serves again
    #[arg(long, value_name = "DURATION", default_value = "10s", requires = "handover", value_parser = confirm)]
    handover_confirm: Duration,
}

fn confirm(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time > LONGEST_CONFIRM => Err("it is at most 1h".to_owned()),
        Ok(time) => Ok(time),
        Err(mistake) => Err(mistake.message),
    }
}

impl Args {
    pub(super) fn run(&self) -> ExitCode {
        run(&self.options, self.file.or(&self.options.option))
    }
}

impl Options {
    pub(super) fn source(&self) -> &Source {
        self.option.source()
    }
}

pub(super) fn run(args: &Options, source: &Source) -> ExitCode {
    if args.test {
        return check::run(&check::Args::of(source));
    }
    let log = match ProcessLog::open() {
        Ok(log) => Arc::new(log),
        Err(error) => return fail(FAILED, format_args!("cannot start: {error}")),
    };
    let levels = std::env::var("RUST_LOG").unwrap_or_default();
    let (filter, malformed) = match levels.parse::<Targets>() {
        Ok(filter) if !levels.is_empty() => (filter, None),
        parsed => (Targets::new().with_default(LevelFilter::INFO), parsed.err()),
    };
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE) // `filter` decides
        .with_writer(Arc::clone(&log))
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .log_internal_errors(false) // they would be written to standard error without the queue
        .finish()
        .with(filter)
        .init();
    if let Some(error) = malformed {
        tracing::warn!(
            "RUST_LOG={levels} is ignored: {error}; expected LEVEL or MODULE=LEVEL, separated by commas"
        );
    }
    std::panic::set_hook(Box::new(log_panic));
    let options = runtime::Options {
        config: source.clone(),
        workers: args.workers.map(usize::from),
        handover: args.handover.clone(),
        handover_confirm: args.handover_confirm,
    };
    let (code, message) = match runtime::run(&options, &log) {
        Ok(()) => (0, None),
        Err(StartError::Config(message)) => (INVALID, Some(message)),
        Err(StartError::System(message)) => (FAILED, Some(message)),
    };
    if let Some(message) = message {
        log.say(&format!("sluicegate: {message}\n"));
    }
    log.finish();
    ExitCode::from(code)
}

/// Logs a panic. The hook of the standard library would write to standard error directly and wait for its reader.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!("thread {name} {panic}\n{backtrace}"),
        _ => tracing::error!("thread {name} {panic}"),
    }
}
