//! `sluicegate man`

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, ValueHint};
use clap_mangen::{Man, generate_to};

use super::output::{FAILED, fail, print_and_exit};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  sluicegate man | man -l -\n  \
                        sluicegate man --dir /usr/local/share/man/man1 && man sluicegate-replay")]
pub(super) struct Args {
    /// Write one file per command to this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args, command: Command) -> ExitCode {
    let command = command.disable_help_subcommand(true);
    let Some(dir) = &args.dir else {
        return match pages(command) {
            Ok(pages) => print_and_exit(&pages),
            Err(error) => fail(FAILED, format!("cannot write: {error}")),
        };
    };
    match std::fs::create_dir_all(dir).and_then(|()| generate_to(command, dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format!("cannot write to {}: {error}", dir.display())),
    }
}

/// The pages of a command and of its subcommands, one after another.
fn pages(mut command: Command) -> io::Result<String> {
    fn write(command: &Command, pages: &mut Vec<u8>) -> io::Result<()> {
        Man::new(command.clone()).render(pages)?;
        command.get_subcommands().try_for_each(|below| write(below, pages))
    }
    command.build();
    let mut pages = Vec::new();
    write(&command, &mut pages)?;
    Ok(String::from_utf8_lossy(&pages).into_owned())
}
