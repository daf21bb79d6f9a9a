//! A process that is killed while it accepts and delivers, and copies of a file in use.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, thread};

use sluicegate_queue::{End, State};
use sluicegate_queue_sqlite::QueueFile;

use crate::common::{LATER, LIMIT, NOW, accept, again, id, message, numbers, open, place};

/// The path of the file, for the child.
const FILE: &str = "QUEUE_SQLITE_TEST_KILLED";
/// The number of the first message that the child accepts.
const FIRST: &str = "QUEUE_SQLITE_TEST_FIRST";

/// The child: four threads accept messages and say so, one delivers them and says so.
#[test]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let next = AtomicU64::new(env::var(FIRST).unwrap().parse().unwrap());
    let file = open(Path::new(&path));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    accept(&file, message(number, &format!("c{}", number % 7)));
                    println!("\naccepted {number}");
                }
            });
        }
        scope.spawn(|| deliver(&file, 40_000, |number| println!("\ndelivered {number}")));
    });
}

/// Delivers so many messages, or all that are there if `rounds` is small.
fn deliver(file: &QueueFile, rounds: usize, mut delivered: impl FnMut(u64)) {
    for _ in 0..rounds {
        for claimed in file.claim(LIMIT, NOW, LATER, 3).unwrap().claimed {
            let end = End::Delivered { answer: Vec::new() };
            assert!(file.end(claimed.id, claimed.claim, end, NOW, LATER).unwrap());
            delivered(numbers(std::slice::from_ref(&claimed))[0]);
        }
    }
}

#[test]
fn nothing_that_was_accepted_is_lost_by_a_kill() {
    let (_folder, path) = place();
    let (mut accepted, mut delivered) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..6 {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(FIRST, (1_000_000 * (round + 1)).to_string());
        let mut child = again("crash::child", command, (FILE, &path));
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        for (seen, line) in lines.enumerate() {
            match line.split_once(' ').map(|(word, number)| (word, number.parse::<u64>())) {
                Some(("accepted", Ok(number))) => _ = accepted.insert(number),
                Some(("delivered", Ok(number))) => assert!(delivered.insert(number), "{number} twice"),
                _ => {}
            }
            if seen == 300 * (round as usize + 1) {
                child.0.kill().unwrap(); // the lines that are already written are still read
            }
        }
    }
    assert!(accepted.len() > 500 && delivered.len() > 20, "{} {}", accepted.len(), delivered.len());
    let file = open(&path);
    let mut left = BTreeSet::new();
    loop {
        let claimed = file.claim(LIMIT, NOW, LATER, 1_000).unwrap().claimed;
        if claimed.is_empty() {
            break;
        }
        numbers(&claimed).into_iter().for_each(|number| assert!(left.insert(number), "{number} twice"));
    }
    for number in &accepted {
        let entry = file.get(id(*number)).unwrap().unwrap_or_else(|| panic!("{number} is lost"));
        assert!(entry.state == State::Delivered || left.contains(number), "{number}: {:?}", entry.state);
    }
    for number in &delivered {
        assert_eq!(file.get(id(*number)).unwrap().unwrap().state, State::Delivered, "{number}");
    }
    assert_eq!(file.figures().unwrap()[0].1.length, left.len() as u64);
}

/// An attempt of a process that is gone is made again, and counts.
#[test]
fn attempts_of_a_process_that_died_are_made_again() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    assert_eq!(file.claim(LIMIT, NOW, LATER, 1).unwrap().claimed[0].attempt, 1);
    drop(file);
    let claimed = open(&path).claim(LIMIT, NOW, LATER, 1).unwrap().claimed;
    assert_eq!((numbers(&claimed), claimed[0].attempt), (vec![1], 2));
}

/// As after a power cut: the file and its log as they are on disk at some moment, while it is written.
#[test]
fn a_copy_of_a_file_in_use_has_all_that_was_accepted_before_it() {
    let (folder, path) = place();
    let file = open(&path);
    for number in 1..=400 {
        accept(&file, message(number, "a"));
        if number % 50 != 0 {
            continue;
        }
        let copy = folder.path().join(format!("copy{number}.db"));
        let beside = |path: &Path| Path::new(&format!("{}-wal", path.display())).to_owned();
        fs::copy(&path, &copy).unwrap();
        fs::copy(beside(&path), beside(&copy)).unwrap();
        let found = open(&copy).claim(LIMIT, NOW, LATER, 1_000).unwrap().claimed;
        assert_eq!(numbers(&found), (1..=number).collect::<Vec<_>>());
    }
}
