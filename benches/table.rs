//! What a decision costs, beside governor's keyed limiter in the same run: `cargo bench --profile dist --bench table`.
//!
//! `-- --large` adds fifty million keys (some 5 GB), `-- --check` fails if a bound is broken, `-- --flood` measures new
//! keys that find no room instead, on one thread and on several, `-- --leases` the leased tokens of one key. Ours is
//! asked as a request asks: a fingerprint, which the pipeline has made of the key, and a time that is read once for
//! 32 decisions. governor hashes its number itself and reads its own clock.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)] // it reads clocks

use std::hint::black_box;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use governor::{DefaultKeyedRateLimiter, RateLimiter};
use indicatif::ProgressBar;
use sluicegate_counters::CountedLimit;
use sluicegate_gateway::limit::{Ask, Counters, Limit, LimitParts, decide};
use sluicegate_gateway::resources;
use sluicegate_leases::{ErrorBudget, Grant, Lease, Terms, WorkerTokens};
use sluicegate_limiter::{Quota, Rate, Span, Time, TokenBucket};
use sluicegate_route::keys::{Fingerprint, KeySecret};

/// As in `main.rs`, so that memory is what it is there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 5;
/// Decisions between two looks at the clock.
const BATCH: u64 = 32;
/// A debt of a request lasts longer than the run, and nobody is refused: every key stays, every decision charges. What
/// the whole burst takes to come back fits a word of nanoseconds, here as for governor.
const RULES: &str = "
listen: [127.0.0.1:8080]
limits: {per-key: {key: ip, rate: 1000000/366d, burst: 500000000, max_keys: 100000000}}
routes: [{name: all, match: {path: /*}, respond: {status: 200}, limits: [per-key]}]
";

/// A limit that is full when few keys have asked, and that refuses what shares its overflow bucket.
const FLOODED: &str = "
listen: [127.0.0.1:8080]
limits: {per-key: {key: ip, rate: 1/366d, max_keys: 65536}}
routes: [{name: all, match: {path: /*}, respond: {status: 200}, limits: [per-key]}]
";

/// The two that are compared.
#[derive(Clone)]
enum Limiter {
    Ours(Arc<CountedLimit>),
    Governor(Arc<DefaultKeyedRateLimiter<u64>>),
}

/// Numbers that look random, and are the same in every run (splitmix64).
fn scattered(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn now() -> Time {
    Time::from_nanos(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap())
}

/// How long this thread has run. The kernel brings it up to date every few milliseconds.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn limit(rules: &str) -> (Arc<CountedLimit>, usize) {
    let config = resources::parse(rules.into(), "gateway.yaml", Path::new(".")).config.unwrap();
    let config = config.config.limits[0].clone();
    let counters = Arc::new(Counters::new(&config.quota, config.max_keys));
    let (max_keys, secret) = (config.max_keys, &KeySecret::default());
    let parts = LimitParts { counters, bans: None, index: 0, ipv6_prefix: 64, secret, key_prefix: "" };
    (Limit::new(config, parts).counted, max_keys)
}

/// Nanoseconds of the processor, and of the clock on the wall, for one decision on a key that finds no room, with so many
/// threads. Where threads wait for each other the first goes up, or the second does not go down.
fn flood(threads: u64) -> (f64, f64) {
    const DECISIONS: u64 = 1 << 21;
    let ((limit, max_keys), at) = (limit(FLOODED), now());
    let ask = |n: u64| {
        decide(black_box(&[Ask::new(&limit, Fingerprint::from_hash(scattered(n)), 1, at)]), true).admitted
    };
    let full = max_keys as u64 + 1; // and the overflow bucket has nothing left
    assert_eq!((0..full).filter(|n| ask(*n)).count() as u64, full);
    let begun = Instant::now();
    let ran = std::thread::scope(|scope| {
        let one = |thread: u64| {
            let before = processor_time();
            let admitted = (0..DECISIONS).filter(|n| ask((thread + 1) << 40 | n)).count();
            assert_eq!(admitted, 0, "a decision that admits is another one");
            processor_time() - before
        };
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum::<Duration>()
    });
    let each = |time: Duration| time.as_nanos() as f64 / (threads * DECISIONS) as f64;
    (each(ran), each(begun.elapsed()))
}

/// The time by the wall that one thread of so many needs for a request of the same leased key.
fn leases(threads: u64) -> f64 {
    const REQUESTS: u64 = 1 << 24;
    let (lease, now, soon) = (Lease::new(now()), now(), Span::from_secs(3_600));
    let tokens = threads * REQUESTS * 2;
    let grant = Grant {
        tokens,
        sent: now,
        received: now,
        window: None,
        before: tokens,
        remaining: 0,
        reset: soon,
        receipt: Default::default(),
    };
    let rate = Rate::new(1_000_000_000, Span::SECOND).unwrap();
    let quota = Quota::TokenBucket(TokenBucket::new(rate, 1_000_000_000).unwrap(), rate, 1_000_000_000);
    lease.granted(&grant, &Terms::new(&quota, ErrorBudget::USUAL, false));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let own = WorkerTokens::default();
                let take =
                    |_: &u64| own.take(black_box(&lease), black_box(now), 1, || 16 * (threads > 1) as u64);
                assert_eq!((0..REQUESTS).filter(|n| take(n).is_some()).count() as u64, REQUESTS);
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / REQUESTS as f64
}

impl Limiter {
    fn ours() -> Self {
        Self::Ours(limit(RULES).0)
    }

    fn governor() -> Self {
        let burst = NonZeroU32::new(500_000_000).unwrap();
        let quota =
            governor::Quota::with_period(Duration::from_micros(31_622_400)).unwrap().allow_burst(burst);
        Self::Governor(Arc::new(RateLimiter::dashmap(quota)))
    }

    /// So many decisions on keys that `next` chooses; all of them admit.
    fn decisions(&self, count: u64, mut next: impl FnMut(u64) -> u64) {
        let mut admitted = 0;
        match self {
            Self::Ours(limit) => {
                let mut at = now();
                for n in 0..count {
                    if n % BATCH == 0 {
                        at = now();
                    }
                    let asks = [Ask::new(limit, Fingerprint::from_hash(next(n)), 1, at)];
                    let decision = decide(black_box(&asks), true);
                    admitted += u64::from(black_box(&decision).admitted);
                }
            }
            Self::Governor(limiter) => {
                for n in 0..count {
                    admitted += u64::from(black_box(limiter.check_key(&next(n))).is_ok());
                }
            }
        }
        assert_eq!(admitted, count, "a decision that is not admitted is another one");
    }

    /// Adds all keys; the bytes that each of them takes.
    fn fill(&self, keys: u64, progress: &ProgressBar) -> f64 {
        let before = resident_bytes();
        self.decisions(keys, |n| {
            if n % 65_536 == 0 {
                progress.set_position(n);
            }
            scattered(n)
        });
        resident_bytes().saturating_sub(before) as f64 / keys as f64
    }

    /// Nanoseconds of one decision on `threads` threads: of the processor on any of `keys` keys, or of the clock on
    /// the wall where all ask for one key, or each thread for one of its own.
    fn measure(&self, threads: u64, keys: u64, decisions: u64, round: u64, apart: bool) -> f64 {
        let barrier = Barrier::new(threads as usize);
        let one = |thread: u64| {
            barrier.wait();
            let (begun, ran) = (Instant::now(), processor_time());
            let seed = (round * 16 + thread) << 32;
            let first = if apart { thread } else { 0 };
            self.decisions(decisions, |n| scattered(first + (scattered(seed + n) >> 4) % keys));
            if keys == 1 { begun.elapsed() } else { processor_time() - ran }
        };
        let each = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
            all.into_iter().map(|thread| thread.join().unwrap().as_nanos() as f64).collect::<Vec<_>>()
        });
        each.iter().sum::<f64>() / (threads * decisions) as f64
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// One size: a line of the table. What bounds it breaks.
fn compare(keys: u64) -> Vec<String> {
    let progress = ProgressBar::new(keys).with_message("fill");
    let contenders = [Limiter::ours(), Limiter::governor()];
    let bytes = [0, 1].map(|at| contenders[at].fill(keys, &progress));
    let decisions = if keys > 10_000_000 { 2_000_000 } else { 4_000_000 };
    progress.set_length(ROUNDS as u64);
    let mut times = [const { Vec::new() }; 4];
    let mut apart = Vec::new();
    for round in 0..ROUNDS {
        progress.set_position(round as u64);
        for at in [0, 1] {
            for (column, threads) in [(at, 1), (at + 2, 2)] {
                times[column].push(contenders[at].measure(threads, keys, decisions, round as u64, false));
            }
        }
        if keys == 1 {
            apart.push(contenders[0].measure(2, keys, decisions, round as u64, true));
        }
    }
    progress.finish_and_clear();
    let [ours, governor, ours_two, governor_two] = times.map(median);
    let size = if keys == 1 { "1, by the wall".into() } else { keys.to_string() };
    let memory = |bytes: f64| if keys < 1_000_000 { "–".into() } else { format!("{bytes:.1}") };
    println!(
        "| {size} | {ours:.1} | {governor:.1} | {:.2} | {ours_two:.1} | {governor_two:.1} | {} | {} |",
        ours / governor,
        memory(bytes[0]),
        memory(bytes[1])
    );
    if keys == 1 {
        eprintln!(
            "table: two threads of ours on a key each: {:.1} ns, what this machine allows",
            median(apart)
        );
    }
    let mut broken = Vec::new();
    let mut bound = |what: &str, is: f64, most: f64| {
        if is > most {
            broken.push(format!("{keys} keys: {what} is {is:.2}, and {most:.2} at most"));
        }
    };
    match keys {
        1 => bound("two threads against one", ours_two / ours, 1.5),
        1_000_000 => {
            bound("the time against governor's", ours / governor, 60.0 / 284.0);
            bound("the bytes of a key", bytes[0], 32.0);
        }
        50_000_000 => {
            bound("the time against governor's", ours / governor, 130.0 / 504.0);
            bound("the bytes of a key", bytes[0], 24.0);
        }
        _ => {}
    }
    broken
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if let Some(at) = arguments.iter().position(|argument| argument == "--keys") {
        let broken = compare(arguments[at + 1].parse().unwrap());
        broken.iter().for_each(|line| eprintln!("table: {line}"));
        return ExitCode::from(u8::from(has("--check") && !broken.is_empty()));
    }
    if has("--flood") {
        println!("| threads | processor, ns | wall, ns |\n|--:|--:|--:|");
        for threads in [1, 2, 4] {
            let (processor, wall) = flood(threads);
            println!("| {threads} | {processor:.1} | {wall:.1} |");
        }
        return ExitCode::SUCCESS;
    }
    if has("--leases") {
        println!("| threads | wall, ns |\n|--:|--:|");
        for threads in [1, 2] {
            println!("| {threads} | {:.1} |", (0..ROUNDS).map(|_| leases(threads)).fold(f64::MAX, f64::min));
        }
        return ExitCode::SUCCESS;
    }
    println!(
        "| keys | ours, ns | governor, ns | ratio | 2 threads: ours | governor | bytes a key | governor |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut sizes = vec!["1", "1000", "1000000"];
    if has("--large") {
        sizes.push("50000000");
    }
    // Each in a process of its own: memory that another has given back is not counted.
    let mut failed = false;
    for size in sizes {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--keys", size]).args(has("--check").then_some("--check"));
        failed |= !child.status().unwrap().success();
    }
    ExitCode::from(u8::from(failed))
}
