//! A page of docs/integrations: its files, and its commands with what they print.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cookbook::prints;
use crate::harness::{Shell, deadline, within};

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/integrations")
}

/// A page, as its fenced blocks: the kind of each, and its lines.
pub(super) struct Page {
    name: String,
    blocks: Vec<(String, Vec<String>)>,
}

impl Page {
    pub(super) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(name).with_extension("md")).unwrap();
        let mut blocks: Vec<(String, Vec<String>)> = Vec::new();
        let mut inside = false;
        for line in text.lines() {
            match (line.strip_prefix("```"), inside) {
                (Some(kind), false) => blocks.push((kind.to_owned(), Vec::new())),
                (None, true) => blocks.last_mut().unwrap().1.push(line.to_owned()),
                _ => {}
            }
            inside ^= line.starts_with("```");
        }
        Self { name: name.to_owned(), blocks }
    }

    /// The file whose name is in a comment in the first line of a block.
    #[track_caller]
    pub(super) fn file(&self, name: &str) -> String {
        self.block(|first| {
            first.split_once(' ').is_some_and(|(mark, rest)| rest == name && matches!(mark, "#" | "--"))
        })
    }

    /// The block that begins with this line.
    #[track_caller]
    pub(super) fn part(&self, first_line: &str) -> String {
        self.block(|first| first == first_line)
    }

    #[track_caller]
    fn block(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut found =
            self.blocks.iter().filter(|(_, lines)| lines.first().is_some_and(|line| is_wanted(line)));
        let (Some((_, lines)), None) = (found.next(), found.next()) else {
            panic!("not one such block in {}", self.name)
        };
        lines.join("\n") + "\n"
    }

    /// Runs the commands with these addresses in place of the ports of the page. What they print is as the page shows it, where
    /// `...` stands for any text.
    #[track_caller]
    pub(super) fn try_it(&self, addresses: &[(u16, SocketAddr)]) {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(".curlrc"), "max-time = 10\n").unwrap();
        let mut shell = Shell::start(folder.path(), &[("CURL_HOME", &folder.path().display().to_string())]);
        let own = |text: &str| {
            addresses.iter().fold(text.to_owned(), |text, (port, address)| {
                text.replace(&format!("127.0.0.1:{port}"), &address.to_string())
            })
        };
        let consoles: Vec<_> = self.blocks.iter().filter(|(kind, _)| kind == "console").collect();
        assert!(!consoles.is_empty(), "{} has no commands", self.name);
        for (_, lines) in consoles {
            let mut rest = &lines[..];
            while let Some((command, after)) = rest.split_first() {
                let shown = after.iter().take_while(|line| !line.starts_with("$ ")).count();
                let (shown, next) = after.split_at(shown);
                let command = own(command.strip_prefix("$ ").expect("a block begins with a command"));
                let mut run = || {
                    shell.run(&command).into_iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
                };
                let mut printed = run();
                if command.contains("/metrics") {
                    // Counts are exposed a moment later than a request is answered.
                    within(deadline(), || {
                        let done = prints(shown, &printed);
                        printed = if done { std::mem::take(&mut printed) } else { run() };
                        done.then_some(())
                    });
                }
                assert!(
                    prints(shown, &printed),
                    "{}: {command}\n--- the page\n{}\n--- printed\n{}",
                    self.name,
                    shown.join("\n"),
                    printed.join("\n")
                );
                rest = next;
            }
        }
    }
}
