//! `sluicegate completions`

use std::process::ExitCode;

use clap_complete::{Shell, generate};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  source <(sluicegate completions bash)\n  \
                        sluicegate completions bash > /usr/share/bash-completion/completions/sluicegate\n  \
                        sluicegate completions zsh > /usr/share/zsh/site-functions/_sluicegate\n  \
                        sluicegate completions fish > ~/.config/fish/completions/sluicegate.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args, command: &mut clap::Command) -> ExitCode {
    let mut script = Vec::new();
    generate(args.shell, command, "sluicegate", &mut script);
    super::output::print_and_exit(&String::from_utf8_lossy(&script))
}
