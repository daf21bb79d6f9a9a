//! Servers of one upstream, each of which can be made to fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Gate, Setup, Upstream};

/// What a server does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mood {
    /// It answers 200 with its number.
    Well,
    /// It takes the request and ends the connection.
    Breaks,
    /// It answers 503.
    Busy,
    /// It answers requests and is not well when it is asked at /healthz.
    Unwell,
}

/// A server with a mood. What asks for /slow waits for its gate.
pub struct Server {
    pub upstream: Upstream,
    pub gate: Gate,
    mood: Arc<AtomicU8>,
}

impl Server {
    pub fn start(number: usize) -> Self {
        let mood = Arc::new(AtomicU8::new(Mood::Well as u8));
        let (gate, felt) = (Gate::default(), Arc::clone(&mood));
        let waits = gate.clone();
        let upstream = Upstream::scripted(move |exchange| {
            let mood = felt.load(Ordering::SeqCst);
            let asked = exchange.seen.target.starts_with("/healthz");
            if exchange.seen.target == "/slow" {
                waits.wait();
            }
            if mood == Mood::Breaks as u8 {
                let _ = exchange.body();
                exchange.close();
            } else if mood == Mood::Busy as u8 || (asked && mood == Mood::Unwell as u8) {
                exchange.answer(503, &[], b"busy");
            } else {
                exchange.answer(200, &[], number.to_string().as_bytes());
            }
        });
        Self { upstream, gate, mood }
    }

    /// So many, with the setup of a gateway that knows them as `{0}`, `{1}` …
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

    pub fn feel(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// How many requests it got that were not questions about its health.
    pub fn requests(&self) -> usize {
        self.upstream.seen().iter().filter(|seen| !seen.target.starts_with("/healthz")).count()
    }

    /// How often it was asked how it is.
    pub fn questions(&self) -> usize {
        self.upstream.seen().len() - self.requests()
    }
}
