//! A scripted HTTP/1.1 server behind the gateway.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::message::{Head, Reader};
use super::{ReservedPort, patience, until};

/// A server with a thread for each connection.
pub struct Upstream {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    /// Connections that the gateway has not closed.
    open: AtomicUsize,
    written: AtomicUsize,
    over: AtomicBool,
}

/// A request as the upstream got it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which connection it came on, from 0.
    pub connection: usize,
    /// Which request of its connection it was, from 0.
    pub turn: usize,
    pub method: String,
    pub target: String,
    pub head: Head,
    /// The part of the body that was read.
    pub body: Vec<u8>,
}

/// A request that is to be answered.
pub struct Exchange<'a> {
    pub seen: Seen,
    reader: &'a mut Reader,
    state: &'a State,
    at: usize,
    unread: bool,
    open: bool,
}

impl Upstream {
    /// Answers 200 with `body` to all requests.
    pub fn answering(body: &'static str) -> Self {
        Self::scripted(move |exchange| exchange.answer(200, &[], body.as_bytes()))
    }

    /// Answers 200 with the body of the request, and closes the connection if the body is incomplete.
    pub fn echoing() -> Self {
        Self::scripted(|exchange| match exchange.body() {
            Ok(body) => exchange.answer(200, &[], &body),
            Err(_) => exchange.close(),
        })
    }

    /// Runs `script` for every request.
    pub fn scripted(script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Self {
        let listener = ReservedPort::new().listen();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let upstream = Self { address, state: Arc::clone(&state) };
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if state.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (state, script) = (Arc::clone(&state), Arc::clone(&script));
                let connection = state.connections.fetch_add(1, Ordering::SeqCst);
                state.open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve(stream, connection, &state, &*script);
                    state.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        upstream
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// The latest request.
    #[track_caller]
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("the upstream has seen a request")
    }

    /// Waits until there were `count` requests.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Seen> {
        until(&format!("{count} requests upstream"), || Some(self.seen()).filter(|seen| seen.len() >= count))
    }

    /// How many connections the gateway has made.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How many of them are open.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Bytes that were written by `write`, of all answers.
    pub fn written(&self) -> usize {
        self.state.written.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread, which then ends
    }
}

fn serve(stream: TcpStream, connection: usize, state: &State, script: &dyn Fn(&mut Exchange<'_>)) {
    let mut reader = Reader::new(stream);
    reader.stream.set_read_timeout(Some(patience(60))).unwrap(); // a kept connection may idle
    for turn in 0.. {
        let Ok(Some(head)) = reader.head() else { return };
        let mut words = head.first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let seen = Seen { connection, turn, method, target, head, body: Vec::new() };
        let at = {
            let mut all = state.seen.lock().unwrap();
            all.push(seen.clone());
            all.len() - 1
        };
        let mut exchange = Exchange { seen, reader: &mut reader, state, at, unread: true, open: true };
        script(&mut exchange);
        if !exchange.open || exchange.body().is_err() {
            return;
        }
    }
}

impl Exchange<'_> {
    /// Reads the request's body.
    pub fn body(&mut self) -> io::Result<Vec<u8>> {
        if std::mem::take(&mut self.unread) {
            let (body, trailers) = self.reader.body(&self.seen.head, false)?;
            self.seen.body.clone_from(&body);
            self.seen.head.headers.extend(trailers);
            self.state.seen.lock().unwrap()[self.at] = self.seen.clone();
        }
        Ok(self.seen.body.clone())
    }

    /// Writes raw bytes. Returns whether the gateway accepted them.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let done = self.reader.stream.write_all(bytes.as_ref()).is_ok();
        self.open &= done;
        self.state.written.fetch_add(bytes.as_ref().len(), Ordering::SeqCst);
        done
    }

    /// Reads the body and answers with a body of known length.
    pub fn answer(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        if self.body().is_err() {
            return self.close();
        }
        let mut head = format!("HTTP/1.1 {status} Word\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            head += &format!("content-length: {}\r\n", body.len());
        }
        self.write([head.as_bytes(), b"\r\n", body].concat());
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.open = false;
        let _ = self.reader.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Closes the connection with a reset.
    pub fn reset(&mut self) {
        self.open = false;
        let _ = socket2::SockRef::from(&self.reader.stream).set_linger(Some(Duration::ZERO));
    }

    /// Sends nothing until the gateway closes the connection.
    pub fn silence(&mut self) {
        self.open = false;
        while let Ok(Some(_)) = self.reader.head() {}
    }

    /// Sleeps, to test the handling of slow servers.
    pub fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Reads at most `most` raw bytes. Returns their number, 0 at the end of the connection.
    pub fn read_some(&mut self, most: usize) -> usize {
        self.reader.some(most).map_or(0, |bytes| bytes.len())
    }

    /// Serves another protocol until the gateway closes the connection: `reply` removes a message from the received bytes
    /// and returns the answer.
    pub fn echo(&mut self, reply: impl Fn(&[u8]) -> Option<(usize, Vec<u8>)>) {
        self.open = false;
        let mut come = Vec::new();
        while let Ok(more) = self.reader.some(1 << 16) {
            if more.is_empty() {
                return;
            }
            come.extend(more);
            while let Some((length, answer)) = reply(&come) {
                come.drain(..length);
                self.write(answer);
            }
        }
    }
}
