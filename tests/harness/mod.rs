//! The parts of end-to-end tests: the real program, scripted upstreams, and clients that send any bytes. Every wait has
//! a deadline, and tests poll for a condition instead of sleeping.

#![allow(missing_docs, dead_code, unreachable_pub, unused_imports, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests read clocks

mod admin;
pub mod authority;
pub mod browser;
pub mod client;
mod cluster;
pub mod faults;
pub mod fleet;
pub mod folder;
mod gateway;
pub mod grpc;
pub mod h2;
pub mod h2_upstream;
pub mod issuer;
pub mod load;
mod message;
mod permits;
mod ports;
pub mod prometheus;
pub mod redis;
pub mod relay;
mod servers;
mod shell;
pub mod steady;
mod time;
pub mod tls;
mod upstream;

use std::sync::{Arc, Condvar, Mutex};

pub use client::Client;
pub use cluster::{Cluster, Sentinels};
pub use fleet::Fleet;
pub use folder::Folder;
pub use gateway::{Gateway, Setup, TOKEN, program};
pub use load::Load;
pub use message::{Reader, Response};
pub use ports::ReservedPort;
pub use redis::RedisServer;
pub use servers::{Behavior, Server};
pub use shell::Shell;
pub use time::{Stopwatch, deadline, eventually, measure, patience, sleep, until, within};
pub use upstream::{Exchange, Seen, Upstream};

/// The file of a gateway that forwards all requests to one upstream.
pub const FORWARD_ALL: &str = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                               routes: [{name: api, match: {path: /*}, upstream: api}]\n";

/// The path of libfaketime, which changes the clocks of a program that preloads it.
#[track_caller]
pub fn faketime() -> String {
    let folders = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    found.expect("libfaketime is missing: install the package libfaketime").display().to_string()
}

/// Blocks threads until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Blocks until it is open, at most for twice the deadline, so that the test fails first.
    pub fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(open, deadline() * 2, |open| !*open).unwrap());
    }
}

/// An upstream that answers immediately, except requests for `/slow`, which wait for the gate.
pub fn gated_upstream() -> (Upstream, Gate) {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        if exchange.seen.target == "/slow" {
            waits.wait();
        }
        exchange.answer(200, &[], b"done");
    });
    (upstream, gate)
}

/// Runs `work` on `threads` threads that start together, and returns their results in order.
pub fn in_parallel<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let (work, barrier) = (&work, &barrier);
        let all: Vec<_> = (0..threads)
            .map(|index| {
                scope.spawn(move || {
                    barrier.wait();
                    work(index)
                })
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
