//! The commands.

mod check;
mod consumers;
mod replay;
mod run;
mod schema;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit codes: 0 fine, 1 a user's mistake, 2 could not start or run.
const USERS_MISTAKE: u8 = 1;
const COULD_NOT: u8 = 2;

#[derive(Parser)]
#[command(
    version,
    about = "A rate-limiting edge gateway: exact limits in front of an existing HTTP API",
    after_help = "Examples:\n  sluicegate                         serve ./gateway.yaml\n  \
                  sluicegate run --config api.yaml   serve another file\n  \
                  sluicegate check                   is ./gateway.yaml right?\n  \
                  sluicegate replay access.log       what would these rules have done?\n  \
                  sluicegate consumers add acme      make an API key",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Args,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    Run(run::Args),
    /// Validate a configuration: errors and warnings, with lines and advice
    Check(check::Args),
    /// Run a log through the rules: who would have been refused?
    Replay(replay::Args),
    /// Make API keys, and list and remove those who have them
    #[command(subcommand)]
    Consumers(consumers::Command),
    /// Print the JSON Schema of gateway.yaml, for editors
    Schema,
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // nobody to tell if the terminal has gone
            return ExitCode::from(if error.use_stderr() { USERS_MISTAKE } else { 0 });
        }
    };
    match cli.command {
        None => run::run(&cli.run),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Consumers(command)) => consumers::run(&command),
        Some(Command::Schema) => schema::run(),
    }
}

fn fail(code: u8, message: impl std::fmt::Display) -> ExitCode {
    say(format_args!("sluicegate: {message}\n"));
    ExitCode::from(code)
}

/// Writes to standard error. That nobody can read it is no reason to fail: the exit code says the same.
fn say(text: impl std::fmt::Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Writes to standard output. Whoever reads it may have seen enough: that is no error.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes to standard output as the last thing that a command does.
fn print_and_exit(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(COULD_NOT, format!("cannot write: {error}")),
    }
}
