//! The tour of the README, run against the program: every command, and what it prints. `UPDATE=1` writes the
//! differences into the README; read it as a newcomer would.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::harness::{Client, Folder, ReservedPort, program, until};
use regex::Regex;
use serde_json::Value;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const GATEWAY: &str = include_str!("../../gateway.yaml");

/// A command of the tour, and the lines behind it that are what it prints.
struct Step {
    command: String,
    printed: std::ops::Range<usize>,
}

/// The commands in the `console` blocks of the tour.
fn steps(lines: &[&str]) -> Vec<Step> {
    let begin = lines.iter().position(|line| *line == "## A tour of ten minutes").unwrap();
    let (mut steps, mut inside) = (Vec::<Step>::new(), false);
    for (at, line) in lines.iter().enumerate().skip(begin + 1) {
        match (*line, line.strip_prefix("$ ")) {
            (line, _) if line.starts_with("## ") => break,
            ("```console", _) => inside = true,
            ("```", _) => inside = false,
            (_, Some(command)) if inside => {
                steps.push(Step { command: command.to_owned(), printed: at + 1..at + 1 });
            }
            (_, None) if inside => steps.last_mut().unwrap().printed.end = at + 1,
            _ => {}
        }
    }
    steps
}

/// A line without what is another each time.
fn masked(line: &str) -> String {
    let masks = [
        (r"^\S+Z  INFO", "TIME  INFO"),
        (r"^date: .*", "date: DATE"),
        (r"^x-request-id: \w+", "x-request-id: ID"),
        (r#""request_id":"\w+""#, r#""request_id":"ID""#),
        (r#""reset": [0-9.]+"#, r#""reset": SECONDS"#),
        // Seconds until there is a token, of which one or two may have passed; the length of the answer that names them.
        (r"^x-ratelimit-reset: [12]$", "x-ratelimit-reset: 2 OR LESS"),
        (r"^x-ratelimit-reset: (1[89]|20)$", "x-ratelimit-reset: 20 OR LESS"),
        (r";t=[12]$", ";t=2 OR LESS"),
        (r"retry-after: [12]$", "retry-after: 2 OR LESS"),
        (r"try again in (1 second|2 seconds)", "try again in 2 SECONDS OR LESS"),
        (r#""retry_after":[12]\b"#, r#""retry_after":2 OR LESS"#),
        (r"^content-length: 27[01]$", "content-length: 271 OR LESS"),
    ];
    masks.iter().fold(line.trim_end().to_owned(), |line, (pattern, mask)| {
        Regex::new(pattern).unwrap().replace(&line, *mask).into_owned()
    })
}

/// The demo, on addresses of its own.
struct Demo {
    folder: Folder,
    ports: [(ReservedPort, &'static str); 3],
    gateway: Option<Child>,
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(gateway) = &mut self.gateway {
            gateway.kill().unwrap();
            gateway.wait().unwrap();
        }
    }
}

impl Demo {
    fn new() -> Self {
        let ports = [":8080", ":8081", ":9090"].map(|port| (ReservedPort::new(), port));
        let demo =
            Self { folder: Folder::with(&[(".curlrc", "silent\nshow-error\n")]), ports, gateway: None };
        std::fs::write(demo.folder.path("gateway.yaml"), demo.here(GATEWAY)).unwrap();
        std::fs::create_dir_all(demo.folder.path("target/release")).unwrap();
        let program = program().get_program().to_owned();
        std::os::unix::fs::symlink(program, demo.folder.path("target/release/sluicegate")).unwrap();
        demo.shell("git init -q && git add gateway.yaml");
        demo
    }

    /// A text of the README with the addresses and files of this demo.
    fn here(&self, text: &str) -> String {
        let text = text.replace("/tmp/", &format!("{}/", self.folder.path("").display()));
        self.ports
            .iter()
            .fold(text, |text, (own, port)| text.replace(port, &format!(":{}", own.address.port())))
    }

    /// The other way round.
    fn there(&self, text: &str) -> String {
        self.ports.iter().fold(text.to_owned(), |text, (own, port)| {
            text.replace(&format!(":{}", own.address.port()), port)
        })
    }

    fn shell(&self, command: &str) -> String {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{{ {command}\n}} 2>&1")]).current_dir(self.folder.path(""));
        let output = shell.env("CURL_HOME", self.folder.path("")).env_remove("GIT_DIR").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn admin(&self, target: &str) -> Value {
        let admin: SocketAddr = self.ports[2].0.address;
        Client::connect(admin).ask("GET", target, &[("host", "localhost")]).json()
    }

    /// What is in force, and what is wrong with the file.
    fn state(&self) -> (Value, Value) {
        let status = self.admin("/status");
        (status["generation"].clone(), status["last_reload_error"].clone())
    }

    fn start(&mut self, lines: usize) -> String {
        let log = self.folder.path("log");
        let mut command = program();
        command.current_dir(self.folder.path("")).env_remove("SLUICEGATE_ADMIN_TOKEN").stdout(Stdio::null());
        self.gateway = Some(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
        until("the gateway serves", || {
            let text = std::fs::read_to_string(&log).unwrap();
            (text.lines().count() >= lines).then_some(text)
        })
    }

    /// What a command prints. A changed file is waited for, which is in force before a reader has typed anything.
    fn run(&mut self, step: &Step) -> String {
        if step.command == "cargo run --release" {
            return self.start(step.printed.len().max(1));
        }
        if step.command.contains("$(seq 20)") && step.command.contains("curl") {
            // A reader leaves the bucket the time to fill.
            until("the bucket is full", || {
                let key = self.admin("/limits/per-client/keys/127.0.0.1");
                (key["remaining"] == key["capacity"]).then_some(())
            });
        }
        let read = || std::fs::read_to_string(self.folder.path("gateway.yaml")).unwrap();
        let (file, state) = (read(), self.state());
        let printed = self.shell(&self.here(&step.command));
        if read() != file {
            until("the file is looked at", || (self.state() != state).then_some(()));
        }
        printed
    }
}

/// The README with what the tour prints now, and where that differs.
fn walk(lines: &[&str]) -> (String, String) {
    let steps = steps(lines);
    assert!(steps.len() > 15, "the tour has {} commands", steps.len());
    let mut demo = Demo::new();
    let (mut updated, mut done, mut differences) = (String::new(), 0, String::new());
    let masked = |text: &[&str]| text.iter().map(|line| masked(line)).collect::<Vec<_>>();
    for step in &steps {
        let printed = demo.run(step);
        let printed = demo.there(&printed);
        let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let shown = &lines[step.printed.clone()];
        let same = masked(shown) == masked(&printed);
        let now = [&lines[done..step.printed.start], if same { shown } else { &printed }].concat();
        now.iter().for_each(|line| updated += &format!("{line}\n"));
        if !same {
            let (shown, printed) = (shown.join("\n"), printed.join("\n"));
            let command = &step.command;
            differences += &format!("$ {command}\n--- the README shows\n{shown}\n--- it prints\n{printed}\n");
        }
        done = step.printed.end;
    }
    lines[done..].iter().for_each(|line| updated += &format!("{line}\n"));
    (updated, differences)
}

/// A machine that is busy for seconds between two commands gives a bucket time that a reader would not; so the tour is
/// walked again if it differs, up to five times.
#[test]
fn the_tour_prints_what_it_shows() {
    let readme = std::fs::read_to_string(README).unwrap();
    let lines: Vec<&str> = readme.lines().collect();
    let (mut updated, mut differences) = walk(&lines);
    for _ in 0..4 {
        if !differences.is_empty() {
            (updated, differences) = walk(&lines);
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(README, updated).unwrap();
    } else if !differences.is_empty() {
        panic!("{differences}\nUPDATE=1 cargo test --test edge tour:: writes it into the README");
    }
}
