//! `sluicegate consumers`

use std::path::PathBuf;
use std::process::ExitCode;

use super::{COULD_NOT, ConfigOption, USERS_MISTAKE, fail, print_and_exit, say};
use crate::auth::edit::{self, EditError};
use crate::config;

#[derive(clap::Subcommand)]
#[command(after_help = "A gateway that runs takes a change over by itself.\n\nExamples:\n  \
                  sluicegate consumers add acme --plan pro    make a key and print it, once\n  \
                  sluicegate consumers list\n  \
                  sluicegate consumers remove acme")]
pub(super) enum Command {
    /// Make a key for a new consumer, and print it: it stands nowhere else
    #[command(
        after_help = "The key goes to standard output and nothing else does. The file holds its SHA-256 only, \
                            so a lost key is replaced, not found.\n\nExamples:\n  \
                            sluicegate consumers add acme\n  \
                            sluicegate consumers add acme --plan pro --config /etc/sluicegate/gateway.yaml\n  \
                            sluicegate consumers add acme --file consumers.yaml > acme.key"
    )]
    Add {
        /// Its name: letters, digits and - _ . @ + : /
        #[arg(value_name = "NAME")]
        name: String,
        /// Its plan
        #[arg(long, value_name = "PLAN")]
        plan: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// List the consumers: name, plan, number of keys
    #[command(after_help = "Examples:\n  sluicegate consumers list\n  \
                            sluicegate consumers list --file consumers.yaml | grep pro")]
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Remove a consumer and all its keys
    #[command(after_help = "Comments and all other consumers stay as they are.\n\nExamples:\n  \
                            sluicegate consumers remove acme\n  \
                            sluicegate consumers remove acme --file consumers.yaml")]
    Remove {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(clap::Args)]
pub(super) struct Place {
    /// The file of consumers [default: the one that the configuration names]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    option: ConfigOption,
}

pub(super) fn run(command: &Command) -> ExitCode {
    let (Command::Add { place, .. } | Command::List { place } | Command::Remove { place, .. }) = command;
    let (file, plans) = match place.file() {
        Ok(found) => found,
        Err(message) => return fail(USERS_MISTAKE, message),
    };
    let done = match command {
        Command::Add { name, plan, .. } => edit::add(&file, name, plan.as_deref(), &plans).map(|key| {
            say(format_args!(
                "{} has a new consumer `{name}`; this is its key, and it is not shown again:\n",
                file.display()
            ));
            key + "\n"
        }),
        Command::List { .. } => edit::list(&file).map(|all| {
            let line = |one: &edit::Listed| {
                format!("{}\t{}\t{}\n", one.name, one.plan.as_deref().unwrap_or("-"), one.keys)
            };
            all.iter().map(line).collect()
        }),
        Command::Remove { name, .. } => edit::remove(&file, name).map(|()| {
            say(format_args!("{} has no consumer `{name}` any more\n", file.display()));
            String::new()
        }),
    };
    match done {
        Ok(text) => print_and_exit(&text),
        Err(error @ EditError::Refused(_)) => fail(USERS_MISTAKE, error),
        Err(error @ EditError::Failed(_)) => fail(COULD_NOT, error),
    }
}

impl Place {
    /// The file, and the plans that its consumers can be on; none if they can be on any.
    fn file(&self) -> Result<(PathBuf, Vec<String>), String> {
        if let Some(file) = &self.file {
            return Ok((file.clone(), Vec::new()));
        }
        let config = &self.option.config;
        config::consumers_file(config)?.ok_or_else(|| {
            format!(
                "{config} names no file of consumers: add `auth: {{api_key: {{consumers: consumers.yaml}}}}`, or use --file"
            )
        })
    }
}
