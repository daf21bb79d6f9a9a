//! Requests over TLS 1.3, at a fixed rate or as fast as they are answered: how long each takes.
//!
//!     cargo run --profile dist --example tls-load -- 127.0.0.1:8443 KIND RATE CONNECTIONS SECONDS < REQUESTS
//!
//! KIND is `full` (a connection with a full handshake for each request), `resumed` (the same, but with a ticket of the
//! connection before) or `kept` (a request takes the next of the connections, which are opened beforehand). RATE 0: as fast
//! as they are answered. Standard input is a list of requests, each ending in an empty line, that are sent in turn.
//!
//! Each connection has a thread of its own, which waits until a request is due. A request counts from when it was due, and
//! from the wake-up if the thread slept until then: that it woke up late is not the gateway's doing. Its time ends with its
//! answer. Prints one line of names and numbers: answers that were 200 and others, resumed and full handshakes, percentiles
//! in microseconds.
//!
//! The client costs as little as it can, for it shares its core with the upstream: it does not verify certificates, and all
//! gateways are offered the same key exchange.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // it reads clocks, and a test tool may end in a panic

mod answers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group::X25519};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, HandshakeKind, SignatureScheme, StreamOwned};

/// Longer than any gateway should need: what takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);

type Stream = StreamOwned<ClientConnection, TcpStream>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Full,
    Resumed,
    Kept,
}

/// What all threads go by.
struct Plan<'a> {
    address: SocketAddr,
    kind: Kind,
    rate: f64,
    seconds: Duration,
    requests: Vec<&'a [u8]>,
    /// Nothing is due before all connections are there.
    ready: Barrier,
    begin: OnceLock<Instant>,
    turn: AtomicU32,
}

/// What came of the requests.
#[derive(Default)]
struct Found {
    times: Vec<Duration>,
    other: usize,
    resumed: usize,
    full: usize,
}

/// Takes any certificate and believes any signature.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// How a thread opens connections. Each has tickets of its own, for a ticket is used once.
fn config(kind: Kind) -> Arc<ClientConfig> {
    let mut provider = default_provider();
    provider.kx_groups = vec![X25519];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone));
    let mut config = builder.with_no_client_auth();
    config.resumption = match kind {
        Kind::Resumed => Resumption::in_memory_sessions(8),
        Kind::Full | Kind::Kept => Resumption::disabled(),
    };
    Arc::new(config)
}

/// A connection that has shaken hands.
fn connect(address: SocketAddr, config: &Arc<ClientConfig>, found: &mut Found) -> Stream {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("api.example.com").unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).expect("a handshake");
    }
    match client.handshake_kind() {
        Some(HandshakeKind::Resumed) => found.resumed += 1,
        _ => found.full += 1,
    }
    StreamOwned::new(client, socket)
}

/// Sends a request and reads its answer: whether it is 200.
fn ask(stream: &mut Stream, request: &[u8]) -> bool {
    stream.write_all(request).expect("room for a request");
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).expect("an answer");
        assert!(read > 0, "the gateway closed a connection");
        answer.extend_from_slice(&piece[..read]);
        if answers::head(&answer).is_some_and(|(length, end)| answer.len() >= end + length) {
            return answer.starts_with(b"HTTP/1.1 200");
        }
    }
}

impl Plan<'_> {
    /// The number of the next request and when it is due, which is now or was before. None at the end.
    fn next(&self) -> Option<(usize, Instant)> {
        let begin = *self.begin.get_or_init(Instant::now);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if self.rate == 0.0 {
            let now = Instant::now();
            return (now < begin + self.seconds).then_some((turn as usize, now));
        }
        let after = Duration::from_secs_f64(f64::from(turn) / self.rate);
        if after >= self.seconds {
            return None;
        }
        match (begin + after).checked_duration_since(Instant::now()) {
            Some(early) => {
                std::thread::sleep(early);
                Some((turn as usize, Instant::now()))
            }
            None => Some((turn as usize, begin + after)),
        }
    }

    /// What one connection after another, or one that is kept, does until the end.
    fn work(&self) -> Found {
        let (config, mut found) = (config(self.kind), Found::default());
        // The first random numbers take their source some 50 ms to begin with: not a part of the first handshake.
        drop(X25519.start().expect("a key"));
        let mut kept = (self.kind == Kind::Kept).then(|| connect(self.address, &config, &mut found));
        self.ready.wait();
        while let Some((turn, due)) = self.next() {
            let request = self.requests[turn % self.requests.len()];
            let ok = if let Some(stream) = &mut kept {
                let ok = ask(stream, request);
                found.times.push(due.elapsed());
                ok
            } else {
                let mut stream = connect(self.address, &config, &mut found);
                let ok = ask(&mut stream, request);
                found.times.push(due.elapsed());
                // The gateway closes first, as these requests tell it to. Some do so without the alert that TLS asks for.
                let _ = stream.read(&mut [0]);
                ok
            };
            found.other += usize::from(!ok);
        }
        found
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, kind, rate, connections, seconds] = &arguments[..] else {
        panic!("what is needed: ADDRESS KIND RATE CONNECTIONS SECONDS");
    };
    let kind = match kind.as_str() {
        "full" => Kind::Full,
        "resumed" => Kind::Resumed,
        "kept" => Kind::Kept,
        _ => panic!("KIND is full, resumed or kept"),
    };
    let connections: usize = connections.parse().unwrap();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let plan = Plan {
        address: address.parse().unwrap(),
        kind,
        rate: rate.parse().unwrap(),
        seconds: Duration::from_secs_f64(seconds.parse().unwrap()),
        requests: text.split_inclusive("\r\n\r\n").map(str::as_bytes).collect(),
        ready: Barrier::new(connections),
        begin: OnceLock::new(),
        turn: AtomicU32::new(0),
    };
    let mut all = Found::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(|| plan.work())).collect();
        for thread in threads {
            let found = thread.join().unwrap();
            all.times.extend(found.times);
            all.other += found.other;
            all.resumed += found.resumed;
            all.full += found.full;
        }
    });
    let Found { times, other, resumed, full } = all;
    let done = times.len();
    println!("done {done} other {other} resumed {resumed} full {full} {}", answers::percentiles(times));
}
