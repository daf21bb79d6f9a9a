//! Many threads write at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use sluicegate_rules_sqlite::{FailureKind, Precondition, RuleFile, WriteError};

use crate::common::{batch, in_time, new_file, put, put_if, rule};

const THREADS: u64 = 200;

fn all_at_once(file: &Arc<RuleFile>, work: impl Fn(&RuleFile, u64) + Send + Sync + 'static) {
    let (file, work) = (Arc::clone(file), Arc::new(work));
    in_time(move || {
        let start = Arc::new(Barrier::new(THREADS as usize));
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (file, work, start) = (Arc::clone(&file), Arc::clone(&work), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    work(&file, n);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn read_modify_write_loses_no_update() {
    let (_folder, file) = new_file();
    let file = Arc::new(file);
    let counter = |burst| sluicegate_rules::Rule { burst: Some(burst), ..rule("counter", "k1", "") };
    file.write(batch([put(counter(0))])).unwrap();
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&attempts);
    all_at_once(&file, move |file, _| {
        let mut current = file.get("counter").unwrap().unwrap();
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            let next = counter(current.rule.burst.unwrap() + 1);
            match file.write(batch([put_if(next, Precondition::Version(vec![current.version]))])) {
                Ok(_) => break,
                Err(WriteError::Failed(failures)) => match &failures[0].kind {
                    FailureKind::PreconditionFailed(Some(now)) => current = (**now).clone(),
                    other => panic!("{other:?}"),
                },
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(file.get("counter").unwrap().unwrap().rule.burst, Some(THREADS));
    assert_eq!(file.version().unwrap().version, THREADS + 1);
    let (attempts, commits) = (attempts.load(Ordering::Relaxed), file.commits() - 1);
    println!("{attempts} attempts in {commits} commits");
    assert!(commits <= THREADS, "who fails commits nothing: {commits} commits of {attempts} attempts");
}

#[test]
fn those_who_come_together_share_a_commit() {
    let (_folder, file) = new_file();
    let file = Arc::new(file);
    all_at_once(&file, |file, n| {
        for round in 0..5 {
            let id = format!("{n}-{round}");
            let version = file.write(batch([put(rule(&id, "k1", ""))])).unwrap().version;
            assert_eq!(file.get(&id).unwrap().unwrap().version, version, "who was answered can read it");
        }
    });
    let head = file.version().unwrap();
    assert_eq!((head.version, file.count().unwrap()), (5 * THREADS, 5 * THREADS));
    println!("{} batches in {} commits", head.version, file.commits());
    // How many come together is up to the machine.
    assert!(file.commits() < head.version * 9 / 10, "{} commits of {} batches", file.commits(), head.version);
}
