//! How many tests with Redis servers run at once, whichever program runs the tests: under `cargo test` they are threads
//! of one process, under cargo-nextest each is a process. A permit is therefore a lock on a file.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Tests with Redis servers that run at the same time.
const REDIS: usize = 8;
/// Those among them that measure time (`timed::`), which others would disturb.
const TIMED: usize = 2;

thread_local! {
    static HELD: RefCell<Weak<Permit>> = const { RefCell::new(Weak::new()) };
}

/// Held by a test as long as one of its Redis servers runs.
pub struct Permit {
    _lock: File,
}

impl Permit {
    /// The permit of the test on this thread. Blocks until one is free, unless the test holds one already: it may start
    /// any number of servers.
    pub fn acquire() -> Arc<Self> {
        HELD.with_borrow_mut(|held| {
            held.upgrade().unwrap_or_else(|| {
                // A test's thread has the name of the test.
                let timed = std::thread::current().name().is_some_and(|name| name.starts_with("timed::"));
                let (group, permits) = if timed { ("timed", TIMED) } else { ("redis", REDIS) };
                let permit = Arc::new(Self { _lock: lock(group, permits) });
                *held = Arc::downgrade(&permit);
                permit
            })
        })
    }
}

/// A lock on the first of these files that nobody has locked, or on the next one in turn once it is free. The lock ends with
/// the file, also if the process is killed.
fn lock(group: &str, permits: usize) -> File {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("permits");
    std::fs::create_dir_all(&folder).unwrap();
    let mut files: Vec<File> =
        (0..permits).map(|at| File::create(folder.join(format!("{group}-{at}"))).unwrap()).collect();
    let free = files.iter().position(|file| file.try_lock().is_ok());
    // Processes and the threads of each are spread over the files, so that as many tests wait for each of them.
    let at = free.unwrap_or_else(|| {
        let turn = std::process::id() as usize + TURN.fetch_add(1, Ordering::Relaxed);
        files[turn % permits].lock().unwrap();
        turn % permits
    });
    files.swap_remove(at)
}
