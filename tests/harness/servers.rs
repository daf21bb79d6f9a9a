//! Servers of one upstream, each of which can be made to fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Gate, Setup, Upstream};

/// How a server answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Behavior {
    /// 200 with its number.
    Answers,
    /// Reads the request and closes the connection.
    Disconnects,
    /// 503.
    Overloaded,
    /// 503 to health checks (/healthz), 200 to other requests.
    Unhealthy,
}

/// A server whose behavior can be changed. Requests for /slow wait for its gate.
pub struct Server {
    pub upstream: Upstream,
    pub gate: Gate,
    behavior: Arc<AtomicU8>,
}

impl Server {
    pub fn start(number: usize) -> Self {
        let behavior = Arc::new(AtomicU8::new(Behavior::Answers as u8));
        let (gate, current) = (Gate::default(), Arc::clone(&behavior));
        let waits = gate.clone();
        let upstream = Upstream::scripted(move |exchange| {
            let behavior = current.load(Ordering::SeqCst);
            let health_check = exchange.seen.target.starts_with("/healthz");
            if exchange.seen.target == "/slow" {
                waits.wait();
            }
            if behavior == Behavior::Disconnects as u8 {
                let _ = exchange.body();
                exchange.close();
            } else if behavior == Behavior::Overloaded as u8
                || (health_check && behavior == Behavior::Unhealthy as u8)
            {
                exchange.answer(503, &[], b"busy");
            } else {
                exchange.answer(200, &[], number.to_string().as_bytes());
            }
        });
        Self { upstream, gate, behavior }
    }

    /// Starts several servers, and the setup of a gateway in whose file they are `{0}`, `{1}` and so on.
    pub fn several(count: usize) -> (Vec<Self>, Setup) {
        let all: Vec<Self> = (0..count).map(Self::start).collect();
        let setup = all
            .iter()
            .enumerate()
            .fold(Setup::default(), |setup, (at, server)| setup.value(&at.to_string(), server.address()));
        (all, setup)
    }

    pub fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    pub fn behave(&self, behavior: Behavior) {
        self.behavior.store(behavior as u8, Ordering::SeqCst);
    }

    /// How many requests it got, without health checks.
    pub fn requests(&self) -> usize {
        self.upstream.seen().iter().filter(|seen| !seen.target.starts_with("/healthz")).count()
    }

    /// How many health checks it got.
    pub fn health_checks(&self) -> usize {
        self.upstream.seen().len() - self.requests()
    }
}
