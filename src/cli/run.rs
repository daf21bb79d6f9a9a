//! `sluicegate run`

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

use super::{COULD_NOT, USERS_MISTAKE, fail};
use crate::app::{self, Options, StartError};
use crate::observe::ProcessLog;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "gateway.yaml")]
    config: PathBuf,
    /// Serving threads, each with its own sockets [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// A Unix socket over which the next gateway that is started with it takes over from the one that runs, without
    /// a closed port or a lost request
    #[arg(long, value_name = "SOCKET")]
    handover: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let log = match ProcessLog::open() {
        Ok(log) => Arc::new(log),
        Err(error) => return fail(COULD_NOT, format_args!("cannot start: {error}")),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Arc::clone(&log))
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .log_internal_errors(false) // it would write to standard error, past the queue
        .init();
    std::panic::set_hook(Box::new(tell_panic));
    let options = Options {
        config: args.config.clone(),
        workers: args.workers.map(usize::from),
        handover: args.handover.clone(),
    };
    let (code, message) = match app::run(&options, &log) {
        Ok(()) => (0, None),
        Err(StartError::Config(message)) => (USERS_MISTAKE, Some(message)),
        Err(StartError::System(message)) => (COULD_NOT, Some(message)),
    };
    if let Some(message) = message {
        log.say(&format!("sluicegate: {message}\n"));
    }
    log.finish();
    ExitCode::from(code)
}

/// Logs a panic. The hook of the standard library writes to standard error itself, and would wait for its reader.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!("thread {name} {panic}\n{backtrace}"),
        _ => tracing::error!("thread {name} {panic}"),
    }
}
