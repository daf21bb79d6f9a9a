//! Where commands read the configuration from.

use clap::ValueHint;

use sluicegate_gateway::resources::Source;

/// The configuration as an option, for commands with other positional arguments.
#[derive(clap::Args)]
pub(super) struct ConfigOption {
    /// The configuration; - for standard input
    #[arg(short, long, value_name = "FILE", default_value = "gateway.yaml", value_hint = ValueHint::FilePath)]
    pub(super) config: Source,
}

/// The configuration as a positional argument.
#[derive(clap::Args)]
pub(super) struct ConfigFile {
    /// The configuration; - for standard input [default: gateway.yaml]
    #[arg(value_name = "FILE", conflicts_with = "config", value_hint = ValueHint::FilePath)]
    pub(super) file: Option<Source>,
}

impl ConfigFile {
    /// The positional argument, or else the option.
    pub(super) fn or<'a>(&'a self, option: &'a ConfigOption) -> &'a Source {
        self.file.as_ref().unwrap_or(&option.config)
    }
}
