//! The bodies of the fuzz targets over their corpus, and over mutations of it that are the same every time. It needs
//! neither libFuzzer nor a nightly compiler; `SLUICEGATE_FUZZ=N` asks for N mutations of each entry.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../fuzz/bodies.rs"]
#[allow(unreachable_pub)]
mod bodies;

use std::path::Path;

/// Mutations of each entry unless told otherwise.
const MUTATIONS: usize = 400;

/// A generator of numbers that is the same every time (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides.max(1)
    }
}

/// Pieces that mean something to one of the parsers.
const PIECES: [&str; 44] = [
    "/",
    "//",
    ".",
    "..",
    "%",
    "%2e",
    "%2f",
    "%25",
    "%252e",
    "%C0%AF",
    "%EF%BC%8F",
    "%C2%AD",
    "%E1%BA%9E",
    ";",
    "..;",
    "?",
    "#",
    "*",
    "~",
    "\\",
    "\"",
    ",",
    "for=",
    "[",
    "]",
    "::1",
    "10.0.0.1",
    ":80",
    "=",
    "&",
    "|",
    "{",
    "}",
    "\n",
    "\n  ",
    "- ",
    ": ",
    "'",
    "&a ",
    "*a",
    "<<: ",
    "${X:-",
    "1/s",
    "\u{feff}",
];

fn mutated(entries: &[Vec<u8>], entry: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut data = entry.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(data.len() + 1);
        match dice.roll(7) {
            0 if at < data.len() => data[at] = dice.roll(256) as u8,
            1 if at < data.len() => data[at] ^= 1 << dice.roll(8),
            2 if at < data.len() => _ = data.drain(at..(at + 1 + dice.roll(8)).min(data.len())),
            3 => {
                let piece = PIECES[dice.roll(PIECES.len())].bytes();
                data.splice(at..at, piece);
            }
            4 => {
                let end = (at + 1 + dice.roll(16)).min(data.len());
                let copy = data[at.min(end)..end].to_vec();
                let to = dice.roll(data.len() + 1);
                data.splice(to..to, copy);
            }
            5 => {
                let other = &entries[dice.roll(entries.len())];
                data.truncate(at);
                data.extend_from_slice(&other[dice.roll(other.len() + 1)..]);
            }
            _ => data.insert(at, dice.roll(256) as u8),
        }
    }
    data.truncate(16 << 10);
    data
}

fn replay(target: &str, least: usize, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let entries: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(entries.len() >= least, "the corpus of {target} has {} entries", entries.len());
    let mutations = std::env::var("SLUICEGATE_FUZZ").map_or(MUTATIONS, |count| count.parse().unwrap());
    for (entry, file) in entries.iter().zip(&files) {
        let tried = |data: &[u8]| {
            if std::panic::catch_unwind(|| run(data)).is_err() {
                panic!("{target}: {:?}, from {}", String::from_utf8_lossy(data), file.display());
            }
        };
        tried(entry);
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ entry.len() as u64);
        for _ in 0..mutations {
            tried(&mutated(&entries, entry, &mut dice));
        }
    }
}

#[test]
fn configurations() {
    replay("configuration", 10, bodies::configuration);
}

#[test]
fn keys() {
    replay("keys", 12, bodies::keys);
}

#[test]
fn paths() {
    replay("paths", 30, bodies::paths);
}

#[test]
fn forwarded_addresses() {
    replay("forwarded", 20, bodies::forwarded);
}
