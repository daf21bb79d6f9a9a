//! How the process was started, and why it could not be.

use std::path::PathBuf;
use std::time::Duration;

use crate::resources::Source;

/// The options of the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the configuration is read from.
    pub config: Source,
    /// The number of workers; overrides the configuration.
    pub workers: Option<usize>,
    /// A Unix socket for the hand-over: a gateway that serves there passes its listening sockets to this one, and this one
    /// passes them to the next.
    pub handover: Option<PathBuf>,
    /// How long the gateway that took over is watched: if it ends in that time, this one serves again.
    pub handover_confirm: Duration,
}

/// Why the gateway did not start, or ended with a failure.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong: exit code 1.
    #[error("{0}")]
    Config(String),
    /// The system refused something, or a part of the gateway failed: exit code 2.
    #[error("{0}")]
    System(String),
}
