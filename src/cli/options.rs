//! Where commands read the configuration from.

use std::path::Path;
use std::sync::LazyLock;

use clap::ValueHint;

use super::output::say;
use sluicegate_gateway::resources::Source;

/// The names of the configuration that is read where no other is named; the first that exists is read.
const NAMES: [&str; 2] = ["sluicegate.yaml", "gateway.yaml"];

static DEFAULT: LazyLock<Source> = LazyLock::new(|| {
    let [first, second] = NAMES;
    // A link without a target is reported when it is read.
    let exists = |name: &str| Path::new(name).symlink_metadata().is_ok();
    match (exists(first), exists(second)) {
        (true, true) => say(format_args!("sluicegate: {first} is used; {second} beside it is ignored\n")),
        (true, false) => {}
        (false, _) => return Source::File(second.into()),
    }
    Source::File(first.into())
});

/// The configuration that is read where no other is named.
pub(super) fn default_source() -> &'static Source {
    &DEFAULT
}

/// The configuration as an option, for commands with other positional arguments.
#[derive(clap::Args)]
pub(super) struct ConfigOption {
    /// The configuration; - for standard input [default: sluicegate.yaml, or else gateway.yaml]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config: Option<Source>,
}

impl ConfigOption {
    pub(super) fn source(&self) -> &Source {
        self.config.as_ref().unwrap_or_else(|| default_source())
    }
}

/// The configuration as a positional argument.
#[derive(clap::Args)]
pub(super) struct ConfigFile {
    /// The configuration; - for standard input [default: sluicegate.yaml, or else gateway.yaml]
    #[arg(value_name = "FILE", conflicts_with = "config", value_hint = ValueHint::FilePath)]
    pub(super) file: Option<Source>,
}

impl ConfigFile {
    /// The positional argument, or else the option.
    pub(super) fn or<'a>(&'a self, option: &'a ConfigOption) -> &'a Source {
        self.file.as_ref().unwrap_or_else(|| option.source())
    }
}
