//! Load: requests over many persistent connections, and the outcome of each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::head;
use super::{Gateway, deadline};

/// A load on some gateways, to be started.
#[derive(Clone)]
pub struct Load {
    gateways: Vec<SocketAddr>,
    connections: usize,
    pause: Duration,
    spread: Option<(Duration, Duration)>,
    anew: bool,
    target: String,
    keys: Vec<String>,
    headers: Vec<(String, String)>,
}

/// One request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which gateway it went to.
    pub gateway: usize,
    /// When it was sent, from the beginning of the load.
    pub at: Duration,
    /// 0 if there was no answer.
    pub status: u16,
    pub took: Duration,
}

/// A load that goes on until it is stopped.
pub struct Running {
    begun: Instant,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    samples: Mutex<Vec<Sample>>,
    sent: AtomicUsize,
    most: usize,
    over: AtomicBool,
}

impl Load {
    /// Requests for `/` over as many connections, spread evenly.
    pub fn on(gateways: &[Gateway], connections: usize) -> Self {
        Self {
            gateways: gateways.iter().map(|gateway| gateway.edge).collect(),
            connections,
            pause: Duration::ZERO,
            spread: None,
            anew: false,
            target: "/".into(),
            keys: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// The same on one address.
    pub fn at(address: SocketAddr, connections: usize) -> Self {
        Self { gateways: vec![address], ..Self::on(&[], connections) }
    }

    /// The API keys of the requests, in turn.
    pub fn keys(mut self, keys: &[impl ToString]) -> Self {
        self.keys = keys.iter().map(ToString::to_string).collect();
        self
    }

    /// What is asked for.
    pub fn target(mut self, target: &str) -> Self {
        self.target = target.to_owned();
        self
    }

    /// One more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The pause of each connection between an answer and the next request.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The connections start one after the other, evenly spread over the time `over`, `from` after the beginning.
    pub fn spread(mut self, from: Duration, over: Duration) -> Self {
        self.spread = Some((from, over));
        self
    }

    /// A connection for each request.
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// Sends `count` requests and waits for all answers.
    pub fn send(self, count: usize) -> Vec<Sample> {
        self.run(count).wait()
    }

    /// Sends requests until it is stopped.
    pub fn start(self) -> Running {
        self.run(usize::MAX)
    }

    fn run(self, most: usize) -> Running {
        let state = Arc::new(State {
            samples: Mutex::default(),
            sent: AtomicUsize::new(0),
            most,
            over: AtomicBool::new(false),
        });
        let (begun, shared) = (Instant::now(), Arc::clone(&state));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let load = Arc::new(self);
                let connections: Vec<_> = (0..load.connections)
                    .map(|index| {
                        tokio::spawn(connection(Arc::clone(&load), Arc::clone(&shared), index, begun))
                    })
                    .collect();
                for connection in connections {
                    connection.await.unwrap();
                }
            });
        });
        Running { begun, state, thread: Some(thread) }
    }

    /// The bytes of a request.
    fn request(&self, turn: usize) -> Vec<u8> {
        let mut headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if !self.keys.is_empty() {
            headers.push(("x-api-key", &self.keys[turn % self.keys.len()]));
        }
        head("GET", &self.target, &headers)
    }
}

/// One connection, replaced when it breaks.
async fn connection(load: Arc<Load>, state: Arc<State>, index: usize, begun: Instant) {
    let gateway = index % load.gateways.len();
    let (mut stream, mut buffer) = (None, Vec::new());
    // The interval between requests, or between attempts to connect.
    let (index, all) = (index as u32, load.connections as u32);
    let start = load.spread.map_or(begun, |(from, over)| begun + from + over * index / all);
    let mut pace = tokio::time::interval_at(start.into(), load.pause.max(Duration::from_millis(1)));
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    if load.spread.is_some() {
        pace.tick().await;
    }
    while !state.over.load(Ordering::Relaxed) {
        let turn = state.sent.fetch_add(1, Ordering::Relaxed);
        if turn >= state.most {
            return;
        }
        if stream.is_none() {
            buffer.clear();
            stream = TcpStream::connect(load.gateways[gateway]).await.ok();
            stream.iter().for_each(|stream| stream.set_nodelay(true).unwrap());
        }
        let (at, watch) = (begun.elapsed(), Instant::now());
        let status = match &mut stream {
            Some(stream) => {
                tokio::time::timeout(deadline(), ask(stream, &mut buffer, &load.request(turn))).await
            }
            None => Ok(None),
        };
        let (status, last) = status.ok().flatten().unwrap_or((0, true));
        let sample = Sample { gateway, at, status, took: watch.elapsed() };
        state.samples.lock().unwrap().push(sample);
        if last || load.anew {
            stream = None;
        }
        if status == 0 || !load.pause.is_zero() {
            pace.tick().await;
        }
    }
}

/// Sends a request and reads the answer, which has a Content-Length. Returns its status, and whether it closes the
/// connection.
async fn ask(stream: &mut TcpStream, buffer: &mut Vec<u8>, request: &[u8]) -> Option<(u16, bool)> {
    stream.write_all(request).await.ok()?;
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let whole = end + 4 + length.map_or(Some(0), |length| length.trim().parse().ok())?;
            if buffer.len() >= whole {
                buffer.drain(..whole);
                let last = head.lines().any(|line| line == "connection: close");
                return Some((head.get(9..12)?.parse().ok()?, last));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

impl Running {
    /// The time on the clock of the samples.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How many requests were answered so far.
    pub fn answered(&self) -> usize {
        self.state.samples.lock().unwrap().len()
    }

    /// Stops it when the requests in flight are answered.
    pub fn stop(self) -> Vec<Sample> {
        self.state.over.store(true, Ordering::Relaxed);
        self.wait()
    }

    fn wait(mut self) -> Vec<Sample> {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.state.samples.lock().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed); // stops it if the test panics
    }
}

/// How many were answered with this status.
pub fn count(samples: &[Sample], status: u16) -> usize {
    samples.iter().filter(|sample| sample.status == status).count()
}

/// How many were admitted. Asserts that all others were refused: no 5xx, and none without an answer.
#[track_caller]
pub fn admitted(samples: &[Sample]) -> usize {
    let odd: Vec<_> = samples.iter().filter(|sample| !matches!(sample.status, 200 | 429)).collect();
    assert!(odd.is_empty(), "{} of {} are neither 200 nor 429: {:?}", odd.len(), samples.len(), odd[0]);
    count(samples, 200)
}

/// The longest time that one of these requests took.
#[track_caller]
pub fn slowest(samples: &[Sample]) -> Duration {
    samples.iter().map(|sample| sample.took).max().expect("there are samples")
}
