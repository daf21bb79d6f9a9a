//! The recipes of the cookbook, run from their pages: every command, and what it prints.
//!
//! The first `yaml` block of a page is its gateway.yaml; a later one is a file, if its first line is a comment with its name,
//! or replaces sections of gateway.yaml, which `check` must accept. A `text` block is a file, too. The commands of `console` blocks are run by one shell,
//! against the API of docs/cookbook/api.yaml. In what they print, `...` stands for any text, and for any lines. `UPDATE=1`
//! writes what differs into the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};
use serde_json::Value;

use crate::harness::folder::text;
use crate::harness::{Client, Folder, RedisServer, ReservedPort, Shell, Upstream, program, until, within};

/// A test for each page.
macro_rules! recipes {
    ($($name:ident)*) => {
        const RECIPES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { try_recipe(stringify!($name)); })*
    };
}

recipes! {
    behind_a_proxy blue_green cors critical_first daily_quota graphql grpc language_models login_protection maintenance
    migrate_counters mtls nat oidc partner plans regions retry_storms scraper several_gateways soft_launch tenants uploads
    webhooks websocket
}

const SECTIONS: [&str; 4] = ["## Try it", "## On bad days", "## For your own case", "## Watch it"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cookbook")
}

/// A fenced block: what it contains, and its lines.
struct Block {
    kind: String,
    lines: Range<usize>,
}

fn blocks(lines: &[String]) -> Vec<Block> {
    let fences: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("```")).collect();
    let block = |pair: &[usize]| Block { kind: lines[pair[0]][3..].to_owned(), lines: pair[0] + 1..pair[1] };
    fences.chunks(2).map(block).collect()
}

/// Whether this is printed where a page shows that.
pub(crate) fn prints(shown: &[String], printed: &[String]) -> bool {
    let Some((first, shown)) = shown.split_first() else { return printed.is_empty() };
    if first == "..." {
        return (0..=printed.len()).any(|from| prints(shown, &printed[from..]));
    }
    let Some((line, printed)) = printed.split_first() else { return false };
    let parts: Vec<String> = first.split("...").map(regex::escape).collect();
    Regex::new(&format!("^{}$", parts.join(".*"))).unwrap().is_match(line) && prints(shown, printed)
}

/// The top-level sections of a gateway.yaml, by key.
fn sections(yaml: &str) -> BTreeMap<String, String> {
    let (mut all, mut key) = (BTreeMap::new(), String::new());
    for line in yaml.lines() {
        if let Some((word, _)) = line.split_once(':').filter(|_| !line.starts_with([' ', '#', '-'])) {
            key = word.to_owned();
        }
        *all.entry(key.clone()).or_insert_with(String::new) += &format!("{line}\n");
    }
    all
}

/// Whether a command only reads, so that it can be repeated until it prints what is shown: logs are written, and counts are
/// exposed, a moment later than a request is answered.
fn only_reads(command: &str) -> bool {
    [
        "grep ",
        "tail ",
        "sluicegate explain ",
        "sluicegate top ",
        "sluicegate queue list",
        "curl -s 127.0.0.1:909",
    ]
    .iter()
    .any(|start| command.starts_with(start))
}

/// The server of their own that readers need on port 9003: it reads uploads, and accepts WebSocket connections.
fn own_server() -> Upstream {
    Upstream::scripted(|exchange| {
        if exchange.seen.target != "/chat" {
            return exchange.answer(200, &[], b"stored");
        }
        exchange
            .write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
        exchange.silence();
    })
}

/// A page that is being tried in a folder of its own.
struct Trial {
    /// Before its folder, so that it ends first.
    shell: Shell,
    folder: Folder,
    /// Ports of the page, and those that take their place.
    ports: BTreeMap<String, u16>,
    _reserved: Vec<ReservedPort>,
    _redis: Vec<RedisServer>,
    _own: Option<Upstream>,
    /// The admin APIs of running gateways.
    admins: Vec<SocketAddr>,
}

impl Trial {
    fn start(page: &str) -> Self {
        let place = Folder::with(&[(".curlrc", "max-time = 10\n")]);
        let (mut ports, mut reserved, mut redis) = (BTreeMap::new(), Vec::new(), Vec::new());
        let api = fs::read_to_string(folder().join("api.yaml")).unwrap();
        for found in Regex::new("redis://127.0.0.1:([0-9]+)").unwrap().captures_iter(page) {
            ports.entry(found[1].to_owned()).or_insert_with(|| {
                redis.push(RedisServer::start());
                redis.last().unwrap().address.port()
            });
        }
        for found in port().captures_iter(&format!("{page}{api}")) {
            ports.entry(found[2].to_owned()).or_insert_with(|| {
                reserved.push(ReservedPort::new());
                reserved.last().unwrap().address.port()
            });
        }
        let own = page.contains(":9003").then(own_server);
        ports.extend(own.as_ref().map(|server| ("9003".to_owned(), server.address.port())));
        fs::create_dir(place.path("bin")).unwrap();
        std::os::unix::fs::symlink(program().get_program(), place.path("bin/sluicegate")).unwrap();
        let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
        let home = place.path("").display().to_string();
        let shell = Shell::start(&place.path(""), &[("PATH", &path), ("CURL_HOME", &home)]);
        let mut trial = Self {
            folder: place,
            shell,
            ports,
            _reserved: reserved,
            _redis: redis,
            _own: own,
            admins: Vec::new(),
        };
        trial.write("api.yaml", &api);
        trial.run("sluicegate run --config api.yaml > api-process.log 2>&1 &");
        trial
    }

    /// A text of the page with the ports of this trial.
    fn here(&self, text: &str) -> String {
        port()
            .replace_all(text, |found: &Captures<'_>| format!("{}{}", &found[1], self.ports[&found[2]]))
            .into_owned()
    }

    /// The other way round.
    fn there(&self, text: &str) -> String {
        let text = text.replace(&format!("{}/", self.folder.path("").display()), "");
        self.ports
            .iter()
            .fold(text, |text, (page, own)| text.replace(&format!(":{own}"), &format!(":{page}")))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path(name), self.here(text)).unwrap();
    }

    /// gateway.yaml, and the files that it names.
    fn watched(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let main = fs::read_to_string(self.folder.path("gateway.yaml")).unwrap_or_default();
        let named = Regex::new(r"[a-z-]+\.(yaml|txt|pem)").unwrap();
        let names = named.find_iter(&main).map(|name| name.as_str()).chain(["gateway.yaml"]);
        let paths: BTreeSet<PathBuf> = names.map(|name| self.folder.path(name)).collect();
        paths.into_iter().filter_map(|path| fs::read(&path).ok().map(|bytes| (path, bytes))).collect()
    }

    /// What gateways have loaded.
    fn loaded(&self) -> Vec<Value> {
        let running = self.admins.iter().filter(|admin| TcpStream::connect(admin).is_ok());
        let status =
            running.map(|admin| Client::connect(*admin).ask("GET", "/status", &[("host", "localhost")]));
        status
            .map(|status| status.json())
            .map(|status| {
                ["generation", "last_reload_error", "consumers", "lists"].map(|name| status[name].clone())
            })
            .map(Value::from_iter)
            .collect()
    }

    /// Waits until the gateway that writes this log serves.
    fn serving(&mut self, log: &str) {
        let addresses = Regex::new(r"(listening|admin) on (?:http://)?([0-9.]+:[0-9]+)").unwrap();
        let log = self.folder.path(log);
        let found = within(crate::harness::deadline(), || {
            let text = fs::read_to_string(&log).ok()?;
            let found: Vec<(bool, SocketAddr)> = addresses
                .captures_iter(&text)
                .map(|found| (&found[1] == "admin", found[2].parse().unwrap()))
                .collect();
            let all = found.iter().all(|(_, address)| TcpStream::connect(address).is_ok());
            (text.contains("listening on") && all).then_some(found)
        });
        let found = found.unwrap_or_else(|| panic!("{}", fs::read_to_string(&log).unwrap()));
        self.admins.extend(found.into_iter().filter(|(admin, _)| *admin).map(|(_, address)| address));
    }

    /// What a command prints. Waits until gateways that it starts serve, and until files that it changes are in force.
    fn run(&mut self, command: &str) -> Vec<String> {
        let log = Regex::new(r"^.*sluicegate run.* > (\S+) 2>&1 &$").unwrap();
        let (files, loaded) = (self.watched(), self.loaded());
        let printed = self.shell.run(&self.here(command));
        if let Some(log) = log.captures(command) {
            self.serving(&log[1]);
        } else if !loaded.is_empty() && self.watched() != files {
            until("a changed file is in force", || (self.loaded() != loaded).then_some(()));
        }
        printed.iter().map(|line| self.there(line)).collect()
    }

    /// The same; a command that only reads is repeated until it prints what is shown.
    fn run_until(&mut self, command: &str, shown: &[String]) -> Vec<String> {
        let mut printed = self.run(command);
        if only_reads(command) && std::env::var_os("UPDATE").is_none() {
            within(crate::harness::deadline(), || {
                let done = prints(shown, &printed).then_some(());
                if done.is_none() {
                    printed = self.run(command);
                }
                done
            });
        }
        printed
    }

    /// What `check` says about a gateway.yaml.
    fn check(&self, yaml: &str) -> String {
        self.write("checked.yaml", yaml);
        text(&self.folder.run(&["check", "checked.yaml"]))
    }
}

fn is_file_name(text: &str) -> bool {
    Regex::new(r"^[a-z-]+\.(yaml|txt|sh)$").unwrap().is_match(text)
}

/// A port of the pages, behind an address or on its own.
fn port() -> Regex {
    Regex::new(r"([: ])(80[0-9]{2}|8443|90[0-9]{2}|6379|6380)\b").unwrap()
}

/// The files of a page: its gateway.yaml, those with names, and sections that take the place of those in gateway.yaml.
struct Files {
    main: String,
    named: Vec<(String, String)>,
    sections: Vec<String>,
}

impl Files {
    fn of(lines: &[String]) -> Self {
        let (mut main, mut named, mut sections) = (None, Vec::new(), Vec::new());
        for block in blocks(lines).into_iter().filter(|block| block.kind != "console") {
            let text = lines[block.lines].join("\n") + "\n";
            let name = text.strip_prefix("# ").and_then(|text| text.lines().next());
            match (block.kind.as_str(), name.filter(|name| is_file_name(name))) {
                ("yaml" | "text", Some(name)) => named.push((name.to_owned(), text)),
                ("yaml", None) if main.is_none() => main = Some(text),
                ("yaml", None) => sections.push(text),
                (kind, _) => panic!("a block of `{kind}`: it would not be tried"),
            }
        }
        Self { main: main.expect("a recipe has a gateway.yaml"), named, sections }
    }

    /// What `check` has against gateway.yaml, also with the sections.
    fn complaints(&self, trial: &Trial) -> String {
        let parts = std::iter::once("").chain(self.sections.iter().map(String::as_str));
        let reports = parts.map(|part| {
            let mut whole = sections(&self.main);
            whole.extend(sections(part));
            trial.check(&whole.into_values().collect::<String>())
        });
        reports.filter(|report| !report.ends_with("checked.yaml: 0 errors, 0 warnings\n")).collect()
    }
}

/// The page with what its commands print now, and how that differs.
fn walk(lines: &[String]) -> (String, String) {
    let (mut updated, mut done, mut differences) = (String::new(), 0, String::new());
    let mut trial = Trial::start(&lines.join("\n"));
    let files = Files::of(lines);
    trial.write("gateway.yaml", &files.main);
    files.named.iter().for_each(|(name, text)| trial.write(name, text));
    for block in blocks(lines).into_iter().filter(|block| block.kind == "console") {
        let commands: Vec<usize> = block.lines.clone().filter(|at| lines[*at].starts_with("$ ")).collect();
        assert_eq!(commands.first(), Some(&block.lines.start), "a block begins with a command");
        for (turn, at) in commands.iter().enumerate() {
            let shown = &lines[at + 1..commands.get(turn + 1).copied().unwrap_or(block.lines.end)];
            let first = trial.admins.is_empty();
            let printed = trial.run_until(&lines[*at][2..], shown);
            if first && !trial.admins.is_empty() {
                differences += &files.complaints(&trial); // its files are as the gateway has them
            }
            let same = prints(shown, &printed);
            let now = [&lines[done..=*at], if same { shown } else { &printed }].concat();
            updated += &(now.join("\n") + "\n");
            done = at + 1 + shown.len();
            if !same {
                let (command, shown, printed) = (&lines[*at], shown.join("\n"), printed.join("\n"));
                differences += &format!("{command}\n--- the page\n{shown}\n--- printed\n{printed}\n");
            }
        }
    }
    assert!(!trial.admins.is_empty(), "a recipe starts its gateway, with an admin API");
    updated += &(lines[done..].join("\n") + "\n");
    (updated, differences)
}

/// A machine that is busy for seconds between two commands gives a limit time that a reader would not; so a page is tried
/// again if it differs, up to three times.
fn try_recipe(name: &str) {
    let file = folder().join(name.replace('_', "-")).with_extension("md");
    let page = fs::read_to_string(&file).unwrap();
    let lines: Vec<String> = page.lines().map(str::to_owned).collect();
    assert!((40..=110).contains(&lines.len()), "{} has {} lines", file.display(), lines.len());
    let missing: Vec<_> = SECTIONS.iter().filter(|title| !lines.iter().any(|line| line == *title)).collect();
    assert!(missing.is_empty(), "{} has no {missing:?}", file.display());
    let (updated, mut differences) = walk(&lines);
    if std::env::var_os("UPDATE").is_some() {
        return fs::write(file, updated).unwrap();
    }
    for _ in 0..2 {
        if !differences.is_empty() {
            differences = walk(&lines).1;
        }
    }
    assert!(differences.is_empty(), "{}\n{differences}\nUPDATE=1 writes what is printed.", file.display());
}

/// Every page is tried, and the index names it.
#[test]
fn every_recipe_is_tried_and_in_the_index() {
    let index = fs::read_to_string(folder().join("README.md")).unwrap();
    let entries =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = entries
        .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
        .filter(|name| name != "README")
        .collect();
    let mut tried: Vec<String> = RECIPES.iter().map(|name| name.replace('_', "-")).collect();
    pages.sort();
    tried.sort();
    assert_eq!(pages, tried);
    let missing: Vec<_> = pages.iter().filter(|page| !index.contains(&format!("]({page}.md)"))).collect();
    assert!(missing.is_empty(), "not in docs/cookbook/README.md: {missing:?}");
}
