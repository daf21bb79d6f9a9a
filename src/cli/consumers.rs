//! `sluicegate consumers`

use std::path::PathBuf;
use std::process::ExitCode;

use super::options::ConfigOption;
use super::output::{FAILED, INVALID, fail, print_and_exit, say};
use sluicegate_auth::edit::{self, EditError};
use sluicegate_gateway::resources;

#[derive(clap::Subcommand)]
#[command(after_help = "A running gateway applies changes without a restart.\n\nExamples:\n  \
                  sluicegate consumers add acme --plan pro    create a key and print it, once\n  \
                  sluicegate consumers list\n  \
                  sluicegate consumers add-key acme           create a second key\n  \
                  sluicegate consumers remove acme")]
pub(super) enum Command {
    /// Create a consumer with a key, and print the key, which is not stored
    #[command(
        after_help = "Only the key is written to standard output. The file contains only its SHA-256, \
                            so a lost key cannot be recovered.\n\nExamples:\n  \
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
                            sluicegate consumers list --file consumers.yaml | grep pro\n  \
                            sluicegate consumers list --keys | grep acme")]
    List {
        /// Also show the first digits of the SHA-256 of each key
        #[arg(long)]
        keys: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Create another key for a consumer, and print it
    #[command(
        after_help = "To replace a key without refusing clients: add a key, change the clients to it, then remove the \
                            old key.\n\nExamples:\n  \
                            sluicegate consumers add-key acme > acme.key\n  \
                            sluicegate consumers list --keys | grep acme\n  \
                            sluicegate consumers remove-key acme sha256:6ab9f1eb8f7d3388"
    )]
    AddKey(Named),
    /// Remove one key of a consumer that has several
    #[command(after_help = "Example:\n  sluicegate consumers remove-key acme sha256:6ab9f1eb8f7d3388")]
    RemoveKey {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// The first 8 or more digits of the key's SHA-256, as `consumers list --keys` shows them
        #[arg(value_name = "SHA256")]
        key: String,
        #[command(flatten)]
        place: Place,
    },
    /// Replace all keys of a consumer with a new one immediately, and print it: for a leaked key
    #[command(
        after_help = "Clients that send an old key are refused as soon as the gateway has read the file, within a second. \
                            To change clients first, use add-key and remove-key.\n\nExamples:\n  \
                            sluicegate consumers rotate acme > acme.key\n  \
                            sluicegate consumers rotate acme --file consumers.yaml"
    )]
    Rotate(Named),
    /// Remove a consumer and all its keys
    #[command(after_help = "Comments and other consumers are not changed.\n\nExamples:\n  \
                            sluicegate consumers remove acme\n  \
                            sluicegate consumers remove acme --file consumers.yaml")]
    #[command(visible_alias = "rm")]
    Remove(Named),
}

/// A consumer and its file.
#[derive(clap::Args)]
pub(super) struct Named {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(clap::Args)]
pub(super) struct Place {
    /// The file of consumers [default: the file that the configuration names]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    option: ConfigOption,
}

pub(super) fn run(command: &Command) -> ExitCode {
    let (Command::Add { place, .. }
    | Command::RemoveKey { place, .. }
    | Command::List { place, .. }
    | Command::AddKey(Named { place, .. })
    | Command::Rotate(Named { place, .. })
    | Command::Remove(Named { place, .. })) = command;
    let (file, plans) = match place.file() {
        Ok(found) => found,
        Err(message) => return fail(INVALID, message),
    };
    let done = match command {
        Command::Add { name, plan, .. } => edit::add(&file, name, plan.as_deref(), &plans).map(|key| {
            say(format_args!(
                "{} has a new consumer `{name}`; this is its key, and it is not shown again:\n",
                file.display()
            ));
            key + "\n"
        }),
        Command::AddKey(Named { name, .. }) => edit::add_key(&file, name).map(|key| {
            say(format_args!(
                "{} has another key of `{name}`, beside those before; it is not shown again:\n",
                file.display()
            ));
            key + "\n"
        }),
        Command::RemoveKey { name, key, .. } => edit::remove_key(&file, name, key).map(|()| {
            say(format_args!("{} has that key of `{name}` no more\n", file.display()));
            String::new()
        }),
        Command::Rotate(Named { name, .. }) => edit::rotate(&file, name).map(|(key, before)| {
            let gone = if before == 1 {
                "the key before is".into()
            } else {
                format!("the {before} keys before are")
            };
            say(format_args!(
                "{} has one key of `{name}`, a new one, and it is not shown again; {gone} removed:\n",
                file.display()
            ));
            key + "\n"
        }),
        Command::List { keys, .. } => edit::list(&file).map(|all| {
            let line = |one: &edit::Listed| {
                let plan = one.plan.as_deref().unwrap_or("-");
                let keys = if *keys { format!("\t{}", one.keys.join(",")) } else { String::new() };
                format!("{}\t{plan}\t{}{keys}\n", one.name, one.keys.len())
            };
            all.iter().map(line).collect()
        }),
        Command::Remove(Named { name, .. }) => edit::remove(&file, name).map(|()| {
            say(format_args!("{} has no consumer `{name}` any more\n", file.display()));
            String::new()
        }),
    };
    match done {
        Ok(text) => print_and_exit(&text),
        Err(error @ EditError::Refused(_)) => fail(INVALID, error),
        Err(error @ EditError::Failed(_)) => fail(FAILED, error),
    }
}

impl Place {
    /// The file, and the plans that its consumers may have; empty if any plan is allowed.
    fn file(&self) -> Result<(PathBuf, Vec<String>), String> {
        if let Some(file) = &self.file {
            return Ok((file.clone(), Vec::new()));
        }
        let config = self.option.source();
        resources::consumers_file(config)?.ok_or_else(|| {
            format!(
                "{config} names no file of consumers: add `auth: {{api_key: {{consumers: consumers.yaml}}}}`, or use --file"
            )
        })
    }
}
