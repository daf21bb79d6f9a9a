//! Many callers, and many messages.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use sluicegate_queue::{Bounds, State};
use sluicegate_queue_sqlite::QueueFile;

use crate::common::{LATER, LIMIT, NOW, accept, id, message, open, place};

#[test]
fn those_who_wait_share_a_commit() {
    let (_folder, path) = place();
    let file = open(&path);
    let before = file.commits();
    let start = Barrier::new(32);
    thread::scope(|scope| {
        for caller in 0..32 {
            let (file, start) = (&file, &start);
            scope.spawn(move || {
                start.wait();
                (0..50).for_each(|n| _ = accept(file, message(caller * 50 + n, "a")));
            });
        }
    });
    let commits = file.commits() - before;
    assert!(commits < 800, "{commits} commits for 1,600 messages");
    assert_eq!(file.claim(LIMIT, NOW, LATER, 10_000).unwrap().claimed.len(), 1_600);
}

/// Two threads never get the same message.
#[test]
fn a_message_is_taken_once() {
    let (_folder, path) = place();
    let file = open(&path);
    (0..500).for_each(|n| _ = accept(&file, message(n, &format!("c{}", n % 9))));
    let claimed: Vec<u128> = thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    loop {
                        let claimed = file.claim(LIMIT, NOW, LATER, 7).unwrap().claimed;
                        if claimed.is_empty() {
                            return mine;
                        }
                        mine.extend(claimed.iter().map(|claimed| u128::from_be_bytes(claimed.id.0)));
                    }
                })
            })
            .collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = claimed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..500).collect::<Vec<u128>>());
}

/// A hundred thousand messages of as many consumers: opening the file after a crash, and each call, take no longer for it.
#[test]
fn a_long_queue_is_opened_and_used_quickly() {
    const MANY: u64 = 100_000;
    let (_folder, path) = place();
    fill(&open(&path), MANY);
    // As after a crash.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE meta SET value = 0 WHERE name = 'clean'", ())
        .unwrap();
    let begun = Instant::now();
    let file = open(&path);
    let opened = begun.elapsed();
    let rounds = 200;
    let begun = Instant::now();
    for round in 0..rounds {
        assert_eq!(file.claim(LIMIT, NOW, LATER, 1).unwrap().claimed.len(), 1);
        accept_many(&file, MANY + round);
    }
    assert_eq!(file.get(id(MANY / 2)).unwrap().unwrap().state, State::Waiting);
    let each = begun.elapsed() / u32::try_from(2 * rounds).unwrap();
    assert!(opened < Duration::from_secs(2), "opened in {opened:?}");
    assert!(each < Duration::from_millis(50), "{each:?} a call");
}

fn accept_many(file: &QueueFile, number: u64) {
    let bounds = Bounds { max_length: 10_000_000, max_bytes: 1 << 40 };
    file.accept(message(number, &format!("c{number}")), bounds).unwrap().unwrap();
}

fn fill(file: &QueueFile, many: u64) {
    thread::scope(|scope| {
        for caller in 0..64 {
            scope.spawn(move || (caller..many).step_by(64).for_each(|number| accept_many(file, number)));
        }
    });
}
