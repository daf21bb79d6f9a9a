//! A shell that runs the commands of documents one after the other, each with a deadline.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::{deadline, until};

/// Follows the output of each command, on a line of its own.
const END: &str = "--- end of the command ---";

/// A POSIX shell. Its background processes are killed when it ends, also if the test is killed.
pub struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Shell {
    pub fn start(folder: &Path, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new("sh");
        command.current_dir(folder).envs(env.iter().copied()).env_remove("UPDATE").env_remove("RUST_LOG");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || output.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut shell = Self { input: child.stdin.take(), child, lines };
        shell.run("exec 2>&1; trap 'jobs -p > .jobs; kill -KILL $(cat .jobs)' EXIT");
        shell
    }

    /// Runs a command and returns the lines that it prints.
    #[track_caller]
    pub fn run(&mut self, command: &str) -> Vec<String> {
        // What has no line break at its end gets one here.
        let script = format!("{command}\nprintf '\\n{END}\\n'\n");
        self.input.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
        let mut printed = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline() * 2) {
                Ok(line) if line == END => break,
                Ok(line) => printed.push(line.trim_end().to_owned()),
                Err(_) => panic!("no end of `{command}`, which printed\n{}", printed.join("\n")),
            }
        }
        if printed.last().is_some_and(String::is_empty) {
            printed.pop();
        }
        printed
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.input.take()); // the shell reads the end of its input, and runs its trap
        until("the shell ends", || self.child.try_wait().unwrap());
    }
}
