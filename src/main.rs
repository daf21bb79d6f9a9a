//! The `sluicegate` command.

/// Measured: the system's allocator costs a tenth more per refused request (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    sluicegate::cli::main()
}
