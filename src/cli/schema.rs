//! `sluicegate schema`

use std::process::ExitCode;

pub(super) fn run() -> ExitCode {
    super::print_and_exit(&format!("{:#}\n", sluicegate_config::schema()))
}
