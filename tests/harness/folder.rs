//! A folder with files, in which commands of the program run.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::program;

/// A folder with files, in which the program runs.
pub struct Folder(TempDir);

impl Folder {
    pub fn with(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        program().args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    /// Runs with this on its standard input.
    pub fn pipe(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = program();
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        match child.stdin.take().unwrap().write_all(input) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => (), // it ends without reading all
            written => written.unwrap(),
        }
        child.wait_with_output().unwrap()
    }

    /// Replays a log and returns its decisions.
    pub fn decisions(&self, log: &str) -> Vec<Value> {
        let output = self.run(&["replay", log, "--decisions", "out.jsonl"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        self.read("out.jsonl")
    }

    pub fn read(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The output of a command, standard output and standard error.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The outcome of each request.
pub fn outcomes(decisions: &[Value]) -> Vec<&str> {
    decisions.iter().map(|decision| decision["outcome"].as_str().unwrap()).collect()
}
