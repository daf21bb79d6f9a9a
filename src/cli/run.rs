//! `sluicegate run`

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use super::{COULD_NOT, USERS_MISTAKE, fail};
use crate::app::{self, Options, StartError};

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
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    let options = Options {
        config: args.config.clone(),
        workers: args.workers.map(usize::from),
        handover: args.handover.clone(),
    };
    match app::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Config(message)) => fail(USERS_MISTAKE, message),
        Err(StartError::System(message)) => fail(COULD_NOT, message),
    }
}
