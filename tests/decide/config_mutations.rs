//! Mutated files of tests/config: a character, a line or a value is removed, doubled, moved or taken from another
//! file. Each gateway.yaml is either read or reported, without delay; so are files of consumers and lists.
//!
//! The mutations are the same every time. `SLUICEGATE_MUTATIONS=N` asks for N of gateway.yaml instead of a few hundred, and
//! for a tenth of that of the other files.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::harness::{Stopwatch, patience};
use sluicegate_gateway::resources::{Loaded, parse};

/// Mutations of gateway.yaml unless told otherwise.
const MUTATIONS: usize = 400;

/// A generator of numbers that is the same every time (xorshift64*).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides.max(1)
    }

    fn piece(&mut self) -> &'static str {
        PIECES[self.roll(PIECES.len())]
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.roll(all.len())]
    }
}

/// Values and pieces that mean something to YAML or to a value of the file.
const PIECES: [&str; 62] = [
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\n  ",
    "- ",
    ": ",
    ":",
    ",",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "#",
    "&a ",
    "*a",
    "<<: *a",
    "|",
    ">-",
    "? ",
    "!!binary ",
    "---\n",
    "%YAML 1.2\n",
    "${X}",
    "${X:-1}",
    "${",
    "$${",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "ž",
    "-1",
    "0",
    "1.5",
    "1e99",
    "18446744073709551616",
    "0x1F",
    "1M",
    ".inf",
    "true",
    "null",
    "~",
    "1/s",
    "0/0s",
    "1M/month",
    "1/366d",
    "1.5s",
    "99999999d",
    "10 MB",
    "10.0.0.0/33",
    "::1/129",
    "[::]:0",
    "/users/{id}",
    "/users/:id",
    "/**",
    "header:",
    "a | | b",
    "Europe/Berlin",
    "100%",
];

fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![Path::new("tests/config").join(folder)];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extensions.contains(&extension) => all.push(path),
                _ => {}
            }
        }
    }
    all.sort();
    all
}

/// The byte at which one of the characters begins, or behind the last.
fn border(text: &str, dice: &mut Dice) -> usize {
    let mut at = dice.roll(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn mutated(text: &str, others: &[String], dice: &mut Dice) -> String {
    let mut text = text.to_owned();
    for _ in 0..*dice.of(&[1, 1, 1, 2, 4]) {
        let at = border(&text, dice);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (line, to) = (dice.roll(lines.len()), dice.roll(lines.len() + 1));
        let lost = || lines.iter().enumerate().filter(|(index, _)| *index != line).map(|(_, line)| *line);
        match dice.roll(9) {
            0 => text.insert_str(at, dice.piece()),
            1 => {
                text = text[..at].to_owned()
                    + text[at..].split_at(text[at..].chars().next().map_or(0, char::len_utf8)).1
            }
            2 => text = lost().collect(),
            3 if !lines.is_empty() => {
                let mut moved = lines.clone();
                moved.insert(to, lines[line]);
                text = moved.concat();
            }
            4 if !lines.is_empty() => {
                let depth = if dice.roll(2) == 0 { "  " } else { "\t" };
                let mut moved: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
                moved[line].insert_str(0, depth);
                text = moved.concat();
            }
            5 => {
                let other: Vec<&str> = dice.of(others).split_inclusive('\n').collect();
                let mut moved = lines.clone();
                moved.insert(to, if other.is_empty() { "" } else { *dice.of(&other) });
                text = moved.concat();
            }
            // The value behind a colon becomes another.
            6 | 7 => {
                let behind = text[at..].find(": ").map_or(text.len(), |colon| at + colon + 2);
                let end = text[behind..].find([',', '}', ']', '\n']).map_or(text.len(), |end| behind + end);
                text.replace_range(behind..end, dice.piece());
            }
            _ => text.truncate(at),
        }
    }
    text
}

/// What a text is read as, if it is safe to read: a file that is named is read, and some have no end.
fn read(text: String, name: &str, folder: &Path) -> Option<Loaded> {
    if text.contains("/dev/") || text.contains("/proc/") {
        return None;
    }
    let (begun, shown) = (Stopwatch::start(), text.clone());
    let read = catch_unwind(AssertUnwindSafe(|| parse(text, name, folder)));
    let Ok(loaded) = read else { panic!("a panic at\n{shown}") };
    assert!(begun.elapsed() < patience(5), "{:?} for\n{shown}", begun.elapsed());
    assert_eq!(
        loaded.config.is_none(),
        loaded.rendered.contains(": error: "),
        "{}\nof\n{shown}",
        loaded.rendered
    );
    assert_eq!(loaded.config.is_none(), !loaded.report.errors.is_empty(), "{shown}");
    let lines = shown.lines().count() as u64 + 1;
    for problem in loaded.report.errors.iter().chain(&loaded.report.warnings) {
        assert!(problem.at.line <= lines, "{problem:?} in {lines} lines of\n{shown}");
    }
    Some(loaded)
}

fn mutations() -> usize {
    std::env::var("SLUICEGATE_MUTATIONS").map_or(MUTATIONS, |count| count.parse().unwrap())
}

#[test]
fn every_mutated_file_is_read_or_reported() {
    let all: Vec<PathBuf> =
        ["good", "bad", "doubtful"].iter().flat_map(|folder| files(folder, &["yaml"])).collect();
    let texts: Vec<String> = all.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let well_formed = files("good", &["yaml"]).len();
    let (mut good, mut bad) = (0, 0);
    for number in 0..mutations() {
        let mut dice = Dice::new(number as u64);
        // Good files more often: most mistakes of others end at their own.
        let at = if dice.roll(2) == 0 { dice.roll(texts.len()) } else { dice.roll(well_formed) };
        let text = mutated(&texts[at], &texts, &mut dice);
        let Some(loaded) = read(text, "gateway.yaml", all[at].parent().unwrap()) else { continue };
        *(if loaded.config.is_some() { &mut good } else { &mut bad }) += 1;
    }
    println!("{good} were read, {bad} were reported");
    assert!(good > mutations() / 50 && bad > mutations() / 10, "{good} good, {bad} bad");
}

/// Consumers and lists that are named by a good gateway.yaml.
#[test]
fn every_mutated_file_of_consumers_or_lists_is_read_or_reported() {
    let folder = tempfile::tempdir().unwrap();
    let text = "listen: [127.0.0.1:0]\nauth: {api_key: {consumers: consumers.yaml}}\nlists: {all: {file: list.txt}}\n\
                deny: all\nroutes: [{respond: {status: 200}}]\n";
    let sources = |what: &str, extension: &str| -> Vec<String> {
        let all = files("good", &[extension]).into_iter().chain(files("bad", &[extension]));
        let own = all.filter(|file| file.parent().unwrap().ends_with(what));
        own.map(|file| fs::read_to_string(file).unwrap()).collect()
    };
    let (consumers, lists) = (sources("consumers", "yaml"), sources("lists", "txt"));
    assert!(consumers.len() > 4 && !lists.is_empty(), "{} and {}", consumers.len(), lists.len());
    for number in 0..mutations() / 10 {
        let mut dice = Dice::new(number as u64);
        for (name, texts) in [("consumers.yaml", &consumers), ("list.txt", &lists)] {
            let text = mutated(dice.of(texts).as_str(), texts, &mut dice);
            fs::write(folder.path().join(name), text).unwrap();
        }
        read(text.to_owned(), "gateway.yaml", folder.path());
    }
}
