//! Requests at a fixed rate, whatever the gateway does: how long each takes.
//!
//!     cargo run --profile dist --example paced-load -- 127.0.0.1:8080 RATE CONNECTIONS SECONDS [BYTES] < REQUESTS
//!
//! Standard input is a list of requests, each ending in an empty line, that are sent in turn; each on the connection that
//! has been free the longest. Behind each goes a body of BYTES, of which their Content-Length tells. One thread sends when a request is due, another reads the answers. A request that is due while
//! no connection is free waits for one, and its time counts from when it was due: a gateway that stalls is charged for all
//! that it kept waiting, not for one request on each connection. That the sender itself wakes up late is not the gateway's
//! doing and not counted. Prints one line of names and numbers: answers that were 200 and others, percentiles in
//! microseconds, the share of requests that found no free connection.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // it reads clocks, and a test tool may end in a panic

mod answers;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd;

/// Longer than any gateway should need: what takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the sender tells the reader: on which connection a request is under way, and when it was due.
type Sent = (usize, Instant);

/// Reads answers until the sender has ended and all are there. How long each took, and how many were not 200.
fn read(sockets: &[TcpStream], sent: Receiver<Sent>, free: &Sender<usize>) -> (Vec<Duration>, usize) {
    let mut poll = Poll::new().unwrap();
    for (at, socket) in sockets.iter().enumerate() {
        poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(at), Interest::READABLE).unwrap();
    }
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); sockets.len()];
    let mut due: Vec<Option<Instant>> = vec![None; sockets.len()];
    let (mut times, mut others, mut under_way, mut ended) = (Vec::new(), 0, 0_usize, false);
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    while !ended || under_way > 0 {
        // The sender ends with nothing to read, so this looks up now and then.
        poll.poll(&mut events, Some(Duration::from_millis(50))).unwrap();
        let now = Instant::now();
        loop {
            match sent.try_recv() {
                Ok((at, when)) => {
                    due[at] = Some(when);
                    under_way += 1;
                }
                Err(error) => {
                    ended = error == std::sync::mpsc::TryRecvError::Disconnected;
                    break;
                }
            }
        }
        for event in &events {
            let Token(at) = event.token();
            loop {
                match (&sockets[at]).read(&mut buffer) {
                    Ok(0) => panic!("the gateway closed a connection"),
                    Ok(read) => received[at].extend_from_slice(&buffer[..read]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("reading: {error}"),
                }
            }
            if let Some((length, end)) = answers::head(&received[at])
                && received[at].len() >= end + length
            {
                others += usize::from(!received[at].starts_with(b"HTTP/1.1 200"));
                received[at].clear();
                times.push(now.saturating_duration_since(due[at].take().expect("an answer to a request")));
                under_way -= 1;
                let _ = free.send(at);
            }
        }
        let given_up = due.iter().flatten().any(|when| now.saturating_duration_since(*when) > PATIENCE);
        assert!(!given_up, "no answer in {PATIENCE:?}");
    }
    (times, others)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (needed, bytes) = arguments.split_at(arguments.len().min(4));
    let [address, rate, connections, seconds] = needed else {
        panic!("what is needed: ADDRESS RATE CONNECTIONS SECONDS");
    };
    let body = vec![b'x'; bytes.first().map_or(0, |bytes| bytes.parse().unwrap())];
    let address: SocketAddr = address.parse().unwrap();
    let rate: f64 = rate.parse().unwrap();
    let connections: usize = connections.parse().unwrap();
    let requests = (rate * seconds.parse::<f64>().unwrap()) as u32;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let texts: Vec<Vec<u8>> =
        text.split_inclusive("\r\n\r\n").map(|head| [head.as_bytes(), &body].concat()).collect();

    let sockets: Vec<TcpStream> = (0..connections)
        .map(|_| {
            let socket = TcpStream::connect(address).expect("a connection");
            socket.set_nodelay(true).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    let (tell_sent, sent) = channel();
    let (tell_free, free) = channel();
    (0..connections).for_each(|at| tell_free.send(at).unwrap());

    let (times, others, waited) = std::thread::scope(|scope| {
        let (to, freed) = (&sockets, tell_free);
        let reader = scope.spawn(move || read(to, sent, &freed));
        let (begin, mut waited) = (Instant::now(), 0_u32);
        for turn in 0..requests {
            let mut due = begin + Duration::from_secs_f64(f64::from(turn) / rate);
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(early);
                due = Instant::now();
            }
            let at = free.try_recv().unwrap_or_else(|_| {
                waited += 1;
                free.recv_timeout(PATIENCE).expect("a connection that is free again")
            });
            tell_sent.send((at, due)).unwrap();
            (&sockets[at]).write_all(&texts[turn as usize % texts.len()]).expect("room for a request");
        }
        drop(tell_sent);
        let (times, others) = reader.join().unwrap();
        (times, others, waited)
    });
    println!(
        "done {} other {others} waited {:.4} {}",
        times.len(),
        f64::from(waited) / f64::from(requests),
        answers::percentiles(times)
    );
}
