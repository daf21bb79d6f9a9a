//! Measures what large batches, many rules and many patterns cost: `cargo run --release --example large -- SOCKET [RULES]`,
//! with the Unix socket of a Redis that holds nothing else.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures, and fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluicegate_counters_redis::{Address, Clock, Deployment, Settings};
use sluicegate_limiter::Time;
use sluicegate_rules::{Batch, Op, Precondition, Rule, Write};
use sluicegate_rules_redis::RedisRules;

fn puts(ids: std::ops::Range<usize>, note: &str, pattern: bool) -> Batch {
    let put = |n: usize| {
        let key = if pattern { format!("merchant-{n}-*") } else { format!("customer-{n}") };
        let rule = Rule {
            id: format!("rule-{n:08}"),
            limit: "per-key".into(),
            key,
            rate: Some("500/min".into()),
            note: note.into(),
            ..Rule::default()
        };
        Write { op: Op::Put { rule, pattern }, precondition: Precondition::None }
    };
    Batch { actor: "operator".into(), at: 1, dry_run: false, changes: ids.map(put).collect() }
}

fn deletes(ids: std::ops::Range<usize>) -> Batch {
    let delete = |n| {
        let op = Op::Delete { id: format!("rule-{n:08}") };
        Write { op, precondition: Precondition::None }
    };
    Batch { changes: ids.map(delete).collect(), ..Batch::default() }
}

/// The longest time that another client waits for an answer meanwhile.
struct Bystander {
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Bystander {
    fn start(url: &str) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (until, mut connection) =
            (Arc::clone(&ended), redis::Client::open(url).unwrap().get_connection().unwrap());
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Relaxed) {
                let begun = Instant::now();
                redis::cmd("PING").exec(&mut connection).unwrap();
                longest = longest.max(begun.elapsed());
                std::thread::sleep(Duration::from_micros(200));
            }
            longest
        });
        Self { ended, thread }
    }

    fn longest(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// The seconds that the server has computed for.
fn computed(url: &str) -> f64 {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let info: String = redis::cmd("INFO").arg("cpu").query(&mut connection).unwrap();
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    ["used_cpu_user:", "used_cpu_sys:"].map(|name| of(name).parse::<f64>().unwrap()).iter().sum()
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let socket = PathBuf::from(arguments.next().expect("name the socket"));
    let rules: usize = arguments.next().map_or(1_000_000, |rules| rules.parse().unwrap());
    let url = format!("unix://{}", socket.display());
    let settings = Settings {
        servers: Deployment::Single(Address::Unix(socket)),
        username: None,
        password: None,
        database: 0,
        tls: None,
        timeout: Duration::from_millis(50),
        prefix: "large".into(),
        gateways: 1,
        is_home: false,
        state_folder: std::env::temp_dir(),
    };
    let clock = Clock::new(Instant::now(), Time::from_nanos(0));
    let store = RedisRules::open(settings, clock, Duration::from_secs(30), |_| ());
    store.version().await.unwrap();
    for count in [100, 1_000, 5_000, 20_000, 100_000] {
        for (what, batch) in [
            ("created", puts(0..count, "", false)),
            ("replaced", puts(0..count, "another", false)),
            ("left as they are", puts(0..count, "another", false)),
            ("deleted", deletes(0..count)),
        ] {
            let busy = computed(&url);
            let (bystander, begun) = (Bystander::start(&url), Instant::now());
            store.write(batch).await.unwrap();
            let (took, longest) = (begun.elapsed(), bystander.longest());
            let busy = computed(&url) - busy;
            println!(
                "{count:>6} {what:<16} in {took:>8.1?}, of the server's processor {busy:.3} s; others wait {longest:>8.1?}"
            );
        }
    }
    let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    let mut used = || {
        let info: String = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse::<usize>().unwrap()
    };
    let before = used();
    for from in (0..rules).step_by(5_000) {
        store.write(puts(from..(from + 5_000).min(rules), "", false)).await.unwrap();
    }
    println!("{rules} rules: {} bytes each", (used() - before) / rules);
    let spread = |n: usize| n.wrapping_mul(2_654_435_761) % rules;
    let mut times = Vec::new();
    for n in 0..10_000 {
        let keys = [format!("customer-{}", spread(n)), format!("api_key:customer-{n}")];
        let begun = Instant::now();
        assert_eq!(store.exact("per-key", &keys).await.unwrap().len(), 1);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("exact: p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    let begun = Instant::now();
    let page = store.list(None, None, Some("rule-00500000"), 1_000).await.unwrap();
    println!("a page of {}: {:?}", page.len(), begun.elapsed());
    for count in [1_000, 10_000, 100_000] {
        for from in (0..count).step_by(5_000) {
            store.write(puts(rules + from..rules + (from + 5_000).min(count), "", true)).await.unwrap();
        }
        let (bystander, begun) = (Bystander::start(&url), Instant::now());
        let found = store.patterns().await.unwrap().1.len();
        let took = begun.elapsed();
        println!("{found:>6} patterns read in {took:>8.1?}; others wait {:>8.1?}", bystander.longest());
    }
}
