//! Runs a fuzz target over its corpus, and over mutations of it that are the same every time, without libFuzzer.

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

fn mutated(entries: &[Vec<u8>], entry: &[u8], pieces: &[&str], dice: &mut Dice) -> Vec<u8> {
    let mut data = entry.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(data.len() + 1);
        match dice.roll(7) {
            0 if at < data.len() => data[at] = dice.roll(256) as u8,
            1 if at < data.len() => data[at] ^= 1 << dice.roll(8),
            2 if at < data.len() => _ = data.drain(at..(at + 1 + dice.roll(8)).min(data.len())),
            3 => {
                let piece = pieces[dice.roll(pieces.len())].bytes();
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

/// Runs a target over the entries of the folder `corpus`, of which there are at least `least`, and over mutations of each:
/// among others, `pieces` are inserted. `SLUICEGATE_FUZZ=N` asks for N mutations of each entry.
///
/// # Panics
/// The target has panicked; the message has the input.
pub fn replay(corpus: &Path, least: usize, pieces: &[&str], run: fn(&[u8])) {
    let target = corpus.display();
    let mut files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
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
            tried(&mutated(&entries, entry, pieces, &mut dice));
        }
    }
}
