//! What a million rules cost: `cargo run --release --example million -p sluicegate-rules-sqlite [RULES]`.
#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sluicegate_rules::Rule;
use sluicegate_rules_sqlite::{Batch, Op, Precondition, RuleFile, Write};

const BATCH: u64 = 10_000;
const READS: u64 = 20_000;

fn rule(n: u64, note: &str) -> Rule {
    let [id, key] = [format!("rule-{n:08}"), format!("api_key:customer-{n:08}")];
    Rule {
        id,
        limit: "per-key".into(),
        key,
        rate: Some("500/min".into()),
        note: note.into(),
        ..Rule::default()
    }
}

fn batch(rules: impl Iterator<Item = Rule>) -> Batch {
    let put = |rule| Write { op: Op::Put { rule, pattern: false }, precondition: Precondition::None };
    Batch { actor: "example".into(), changes: rules.map(put).collect(), ..Batch::default() }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    println!("{what:44} {:>10.1?}", begun.elapsed());
    result
}

fn percentiles(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 1000];
    println!("{what:44} p50 {:.1?}  p99 {:.1?}  p99.9 {:.1?}", at(500), at(990), at(999));
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse::<u64>())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("rules.db");
    let file = timed("create", || RuleFile::open(&path))?;
    timed("write all, in batches of 10,000", || {
        (0..count.div_ceil(BATCH)).try_for_each(|n| {
            let rules = (n * BATCH..count.min((n + 1) * BATCH)).map(|n| rule(n, "agreed with the customer"));
            file.write(batch(rules)).map(|_| ())
        })
    })?;
    timed("close", || drop(file));
    println!(
        "{:44} {:>7} MB, {} bytes a rule",
        "size",
        megabytes(&path)?,
        fs::metadata(&path)?.len() / count
    );

    let file = timed("open", || RuleFile::open(&path))?;
    println!("{:44} {:>10}", "rules", timed("count", || file.count())?);
    // Numbers far from each other, in a fixed order.
    let numbers = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) % count;
    for (what, present) in [("exact, one key that has a rule", true), ("exact, one key that has none", false)]
    {
        let mut times = Vec::new();
        for n in 0..READS {
            let rule = rule(numbers(n), "");
            let keys = [if present { rule.key } else { rule.id }];
            let begun = Instant::now();
            let found = file.exact(&rule.limit, &keys)?.len();
            times.push(begun.elapsed());
            assert_eq!(found, usize::from(present));
        }
        percentiles(what, times);
    }
    let mut times = Vec::new();
    for n in 0..500 {
        let change = batch(std::iter::once(rule(numbers(n), "changed")));
        let begun = Instant::now();
        file.write(change)?;
        times.push(begun.elapsed());
    }
    percentiles("write, one rule", times);
    timed("list, a page of 1,000 in the middle", || {
        file.list(None, None, Some(&rule(count / 2, "").id), 1_000)
    })?;
    drop(file);

    rusqlite::Connection::open(&path)?.execute("UPDATE meta SET value = '0' WHERE name = 'clean'", ())?;
    timed("open after a crash", || RuleFile::open(&path))?;
    Ok(())
}

fn megabytes(path: &Path) -> std::io::Result<u64> {
    Ok(fs::metadata(path)?.len() / 1_000_000)
}
