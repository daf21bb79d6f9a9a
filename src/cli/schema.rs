//! `sluicegate schema`

use std::process::ExitCode;

use crate::config;

pub(super) fn run() -> ExitCode {
    super::print_and_exit(&format!("{:#}\n", config::schema()))
}
