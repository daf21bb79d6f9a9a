//! The life of the process: start, workers, reload, drain, hand-over, signals.
//!
//! `start` builds what the threads share, starts the workers and then runs the `supervisor` on the main thread.
//!
//! - `worker`: the thread of a worker and its loop
//! - `event_loop`: what the supervisor waits for: file changes, reload requests, signals, a successor, failures
//! - `reload`: a new configuration comes into force; `data_files` and `tls_files`: so do the files it refers to
//! - `regions`, `exchange`: what gateways tell each other of rates, fair shares and upstreams
//! - `sockets`: the listening sockets; `handover`: passes them to the next gateway; `succession`: watches it, and serves again if
//!   it ends early; `drain`: the end

mod access_log;
mod data_files;
mod drain;
mod event_loop;
mod exchange;
mod handover;
mod lending;
mod options;
mod regions;
mod reload;
mod signals;
mod sockets;
mod start;
mod succession;
mod supervisor;
mod systemd;
mod telemetry;
mod tls_files;
mod watched_files;
mod worker;

pub use options::{Options, StartError};
pub use start::run;
