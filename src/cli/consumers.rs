//! `sluicegate consumers`

use std::path::PathBuf;
use std::process::ExitCode;

use super::{COULD_NOT, ConfigOption, USERS_MISTAKE, fail, print_and_exit, say};
use crate::auth::edit::{self, EditError};
use crate::resources;

#[derive(clap::Subcommand)]
#[command(after_help = "A gateway that runs takes a change over by itself.\n\nExamples:\n  \
                  sluicegate consumers add acme --plan pro    make a key and print it, once\n  \
                  sluicegate consumers list\n  \
                  sluicegate consumers add-key acme           a second key, beside the first\n  \
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
                            sluicegate consumers list --file consumers.yaml | grep pro\n  \
                            sluicegate consumers list --keys | grep acme")]
    List {
        /// Also the first digits of the SHA-256 of each key
        #[arg(long)]
        keys: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Give a consumer another key beside those that it has, and print it
    #[command(
        after_help = "To replace a key while no client is refused: add a key, move the clients to it, then remove the \
                            old one.\n\nExamples:\n  \
                            sluicegate consumers add-key acme > acme.key\n  \
                            sluicegate consumers list --keys | grep acme\n  \
                            sluicegate consumers remove-key acme sha256:6ab9f1eb8f7d3388"
    )]
    AddKey {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Remove one key of a consumer that has others
    #[command(after_help = "Example:\n  sluicegate consumers remove-key acme sha256:6ab9f1eb8f7d3388")]
    RemoveKey {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// The first digits of the key's SHA-256, 8 or more, as `consumers list --keys` shows them
        #[arg(value_name = "SHA256")]
        key: String,
        #[command(flatten)]
        place: Place,
    },
    /// Replace all keys of a consumer by a new one at once, and print it: for a key that has leaked
    #[command(
        after_help = "Clients that send an old key are refused when the gateway has read the file, within a second. \
                            To move them first, use add-key and remove-key.\n\nExamples:\n  \
                            sluicegate consumers rotate acme > acme.key\n  \
                            sluicegate consumers rotate acme --file consumers.yaml"
    )]
    Rotate {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
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
    let (Command::Add { place, .. }
    | Command::AddKey { place, .. }
    | Command::RemoveKey { place, .. }
    | Command::Rotate { place, .. }
    | Command::List { place, .. }
    | Command::Remove { place, .. }) = command;
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
        Command::AddKey { name, .. } => edit::add_key(&file, name).map(|key| {
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
        Command::Rotate { name, .. } => edit::rotate(&file, name).map(|(key, before)| {
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
        resources::consumers_file(config)?.ok_or_else(|| {
            format!(
                "{config} names no file of consumers: add `auth: {{api_key: {{consumers: consumers.yaml}}}}`, or use --file"
            )
        })
    }
}
