//! The allocation budget of a request, measured on a whole gateway in this process. The budget is in `tests/budget.txt`;
//! `UPDATE=1 cargo test --test budget` rewrites it.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(unsafe_code, reason = "an allocator that counts has to be one")]

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::steady::{Connection, KINDS, Kind, RULES, upstream};
use harness::{ReservedPort, deadline};
use sluicegate_gateway::resources::Source;
use sluicegate_gateway::runtime::{self, Options};
use sluicegate_observe::process_log::ProcessLog;

/// Allocations on all threads except those of the test.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THE_TEST: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

impl Counting {
    fn count() {
        if !OF_THE_TEST.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests of a round. The round with the fewest allocations counts: timers of the gateway allocate too, a few times per
/// second, and a round is short enough to fit between them.
const REQUESTS: u64 = 20;
const ROUNDS: usize = 50;
/// What timers may allocate in that round.
const BACKGROUND: u64 = REQUESTS / 10;

#[test]
fn a_request_allocates_what_it_did() {
    OF_THE_TEST.set(true);
    let (edge, folder) = (ReservedPort::new(), tempfile::TempDir::new().unwrap());
    let upstream = upstream(|| OF_THE_TEST.set(true));
    let rules =
        RULES.replace("{edge}", &edge.address.to_string()).replace("{upstream}", &upstream.to_string());
    let config = folder.path().join("gateway.yaml");
    std::fs::write(&config, rules).unwrap();
    // Runs until the process exits.
    let log = ProcessLog::open().unwrap();
    let options = Options {
        config: Source::File(config),
        workers: Some(1),
        handover: None,
        handover_confirm: Duration::ZERO,
    };
    std::thread::spawn(move || runtime::run(&options, &log).unwrap());
    let mut client = Connection::connect(edge.address, deadline());
    client.ask(Kind { status: "200", ..KINDS[1] }, 1); // the only one that is admitted
    let measured = KINDS.map(|kind| {
        client.ask(kind, 200);
        let mut round = || {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            client.ask(kind, REQUESTS as usize);
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        (0..ROUNDS).map(|_| round()).min().unwrap()
    });
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/budget.txt");
    let kinds = KINDS.into_iter().map(|kind| kind.name).zip(measured);
    if std::env::var_os("UPDATE").is_some() {
        let lines: String =
            kinds.map(|(kind, measured)| format!("{kind} {}\n", measured / REQUESTS)).collect();
        return std::fs::write(&file, lines).unwrap();
    }
    let budgets = std::fs::read_to_string(&file).unwrap();
    for (kind, measured) in kinds {
        let budget =
            budgets.lines().find_map(|line| line.strip_prefix(kind)?.trim().parse::<u64>().ok()).unwrap();
        let expected = budget * REQUESTS;
        assert!(
            (expected..=expected + BACKGROUND).contains(&measured),
            "{REQUESTS} {kind} requests allocate {measured} times, and {expected} are expected; \
             if that is meant: UPDATE=1 cargo test --test budget"
        );
    }
}
