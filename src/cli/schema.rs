//! `sluicegate schema`

use std::process::ExitCode;

use crate::config;

pub(super) fn run() -> ExitCode {
    println!("{:#}", config::schema());
    ExitCode::SUCCESS
}
