//! `sluicegate schema`

use std::process::ExitCode;

/// What `sluicegate_config::schema()` returns, as a test makes sure.
const SCHEMA: &str = include_str!("../../gateway.schema.json");

pub(super) fn run() -> ExitCode {
    super::output::print_and_exit(SCHEMA)
}
