//! What commands write, and their exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

/// Exit codes: 0 success, 1 invalid configuration, input or arguments, 2 failure of the system.
pub(super) const INVALID: u8 = 1;
pub(super) const FAILED: u8 = 2;

pub(super) fn fail(code: u8, message: impl std::fmt::Display) -> ExitCode {
    say(format_args!("sluicegate: {message}\n"));
    ExitCode::from(code)
}

/// Writes to standard error. Errors are ignored: the exit code says the same.
pub(super) fn say(text: impl std::fmt::Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Writes to standard output. It is no error if the reader has closed it.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes the output of a command and returns its exit code.
pub(super) fn print_and_exit(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format!("cannot write: {error}")),
    }
}
