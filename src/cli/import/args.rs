//! The arguments of all imports.

use std::path::PathBuf;

use clap::{ArgGroup, ValueHint};

#[derive(clap::Args)]
#[command(group(ArgGroup::new("files").args(["output", "report"]).multiple(true)))]
pub(in crate::cli) struct Args {
    /// The first file, or a folder with the files of the source; - for standard input
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(super) path: PathBuf,
    /// Write the gateway.yaml to a file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    /// Replace the files of -o and --report if they exist
    #[arg(long, requires = "files")]
    pub(super) force: bool,
    /// Write what became of each directive to a file; without FILE, to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub(super) report: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Fail if a directive is unsupported
    #[arg(long)]
    pub(super) strict: bool,
}
