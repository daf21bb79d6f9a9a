//! The commands.

mod admin_client;
mod check;
mod completions;
mod consumers;
mod diff;
mod explain;
mod health;
mod man;
mod replay;
mod rules;
mod run;
mod schema;
mod size;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueHint};

use crate::resources::Source;

/// Exit codes: 0 success, 1 invalid configuration, input or arguments, 2 failure of the system.
const INVALID: u8 = 1;
const FAILED: u8 = 2;

#[derive(Parser)]
#[command(
    version,
    about = "A rate-limiting edge gateway: exact limits in front of an existing HTTP API",
    after_help = "Examples:\n  sluicegate                         serve ./gateway.yaml\n  \
                  sluicegate run api.yaml            serve another file\n  \
                  sluicegate check                   validate ./gateway.yaml\n  \
                  sluicegate replay access.log       test rules on past traffic\n  \
                  sluicegate consumers add acme      create an API key\n\n\
                  Commands that read a configuration take ./gateway.yaml, --config FILE, or --config - for standard \
                  input; run and check also take FILE alone. Relative paths in a configuration from standard input \
                  start at the current folder.",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    Run(run::Args),
    /// Validate a configuration: errors and warnings with lines and advice
    Check(check::Args),
    /// Explain which route and limits a request meets, and what it would be answered
    Explain(explain::Args),
    /// Show what a reload would keep, rescale or lose
    Diff(diff::Args),
    /// Test rules on past traffic: replay access logs
    Replay(replay::Args),
    /// Create, replace, remove and list consumers and their API keys
    #[command(subcommand)]
    Consumers(consumers::Command),
    /// List, create and remove rules of single keys, over the admin API
    #[command(subcommand)]
    Rules(rules::Command),
    /// Show the busiest and the most refused keys, live
    Top(top::Args),
    /// Estimate gateways, stores, memory and money for a given traffic
    Size(size::Args),
    /// Check whether a gateway is ready, for health checks of containers
    Health(health::Args),
    /// Print the JSON Schema of gateway.yaml, for editors
    #[command(after_help = "Example:\n  sluicegate schema > gateway.schema.json")]
    Schema,
    /// Print the completion script for a shell
    Completions(completions::Args),
    /// Print the manual pages of all commands, or write them to a folder
    Man(man::Args),
}

/// The configuration as an option, for commands with other positional arguments.
#[derive(clap::Args)]
struct ConfigOption {
    /// The configuration; - for standard input
    #[arg(long, value_name = "FILE", default_value = "gateway.yaml", value_hint = ValueHint::FilePath)]
    config: Source,
}

/// The configuration as a positional argument.
#[derive(clap::Args)]
struct ConfigFile {
    /// The configuration; - for standard input [default: gateway.yaml]
    #[arg(value_name = "FILE", conflicts_with = "config", value_hint = ValueHint::FilePath)]
    file: Option<Source>,
}

impl ConfigFile {
    /// The positional argument, or else the option.
    fn or<'a>(&'a self, option: &'a ConfigOption) -> &'a Source {
        self.file.as_ref().unwrap_or(&option.config)
    }
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // an error of the terminal cannot be reported
            return ExitCode::from(if error.use_stderr() { INVALID } else { 0 });
        }
    };
    match cli.command {
        None => run::run(&cli.run, cli.run.source()),
        Some(Command::Run(args)) => args.run(),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Diff(args)) => diff::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Consumers(command)) => consumers::run(&command),
        Some(Command::Rules(command)) => rules::run(&command),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Size(args)) => size::run(&args),
        Some(Command::Health(args)) => health::run(&args),
        Some(Command::Schema) => schema::run(),
        Some(Command::Completions(args)) => completions::run(&args, &mut Cli::command()),
        Some(Command::Man(args)) => man::run(&args, Cli::command()),
    }
}

fn fail(code: u8, message: impl std::fmt::Display) -> ExitCode {
    say(format_args!("sluicegate: {message}\n"));
    ExitCode::from(code)
}

/// Writes to standard error. Errors are ignored: the exit code says the same.
fn say(text: impl std::fmt::Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Writes to standard output. It is no error if the reader has closed it.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes the output of a command and returns its exit code.
fn print_and_exit(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format!("cannot write: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command has a description and an example in its help and its manual page.
    #[test]
    fn every_command_shows_examples() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}: {help}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        Cli::command().debug_assert();
        check(&Cli::command());
    }
}
