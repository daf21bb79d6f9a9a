//! The `sluicegate` command.

fn main() -> std::process::ExitCode {
    sluicegate::cli::main()
}
