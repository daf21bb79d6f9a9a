//! A connection: tell HTTP/1 from HTTP/2, serve, end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use super::deadline::Deadline;
use super::io::{HEAD, IDLE, Phase};
use super::stream::ClientStream;
use super::{h1, h2};
use crate::observe::Metrics;
use crate::pipeline::Origin;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The first bytes of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What is read before the protocol is told: most heads are shorter.
const PREFIX: usize = 1 << 10;
/// The index of a listener that the configuration in force does not have. No route asks for it.
const REMOVED: usize = usize::MAX;

/// A listener as one worker serves it.
pub struct Listener {
    /// What tells it from others, whatever it is called.
    pub id: String,
    /// Its index in the snapshot in force, or [`REMOVED`].
    index: Cell<usize>,
    pub(super) group: u64,
    pub(super) closed: Notify,
    /// Whether its connections end with their next answer.
    pub(super) ending: Cell<bool>,
    /// Whether its socket lives on elsewhere when it is closed here.
    pub(super) left: Cell<bool>,
    connections: RefCell<Arc<AtomicI64>>,
}

/// A connection of a client.
pub struct Connection {
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    /// Where it came in.
    pub listener: Rc<Listener>,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The address of the peer as upstreams are told.
    pub peer_text: HeaderValue,
    /// Its deadlines.
    pub deadline: Rc<Deadline>,
    /// Whether it speaks HTTP/2, so that requests share it.
    pub shared: bool,
    /// Where it is counted.
    counted: Arc<AtomicI64>,
    pub(super) phase: Cell<Phase>,
    exchanges: Cell<usize>,
    /// Bodies that are being read.
    bodies: Cell<usize>,
}

impl Listener {
    /// A listener that is not looked up yet.
    pub(super) fn new(id: String, group: u64) -> Self {
        Self {
            id,
            index: Cell::new(REMOVED),
            group,
            closed: Notify::new(),
            ending: Cell::new(false),
            left: Cell::new(false),
            connections: RefCell::default(),
        }
    }

    /// Takes its index and its name from the snapshot that is now in force.
    pub fn find_in(&self, snapshot: &Snapshot, metrics: &Metrics) {
        let found =
            snapshot.config.listeners.iter().enumerate().find(|(_, listener)| listener.id() == self.id);
        self.index.set(found.map_or(REMOVED, |(index, _)| index));
        if let Some((_, listener)) = found {
            self.connections.replace(metrics.connections(&listener.name));
        }
    }
}

/// Serves a connection from its first byte to its end.
pub(super) async fn serve(mut connection: Connection, mut stream: ClientStream) {
    let Some(prefix) = read_prefix(&connection, &mut stream).await else { return };
    connection.shared = prefix.starts_with(PREFACE);
    let connection = Rc::new(connection);
    if connection.shared {
        h2::serve(&connection, stream, prefix).await;
    } else {
        h1::serve(&connection, stream, prefix).await;
    }
}

/// What came before it was clear which protocol is spoken; `None` if nothing did.
async fn read_prefix(connection: &Connection, stream: &mut ClientStream) -> Option<Bytes> {
    let mut prefix = BytesMut::with_capacity(PREFIX);
    loop {
        let read = {
            let mut read = pin!(stream.read_buf(&mut prefix));
            poll_fn(|context| {
                connection.deadline.watch(context);
                match read.as_mut().poll(context) {
                    Poll::Ready(read) => Poll::Ready(read.ok()),
                    Poll::Pending if connection.deadline.socket_passed() => Poll::Ready(None),
                    Poll::Pending if connection.deadline.take_closing() => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        };
        if read? == 0 {
            return None;
        }
        if prefix.len() >= PREFACE.len() || !PREFACE.starts_with(&prefix) {
            return Some(prefix.freeze());
        }
    }
}

impl Connection {
    /// A connection from `peer` that has said nothing yet.
    pub(super) fn new(worker: &Rc<Worker>, listener: &Rc<Listener>, peer: SocketAddr) -> Self {
        let deadline = worker.deadlines.register(listener.group);
        deadline.set_socket(Some(worker.deadlines.after(HEAD)));
        let counted = Arc::clone(&listener.connections.borrow());
        counted.fetch_add(1, Ordering::Relaxed);
        Self {
            worker: Rc::clone(worker),
            listener: Rc::clone(listener),
            peer,
            peer_text: worker.scratch.value(|out| out.display(&peer.ip().to_canonical())),
            deadline,
            shared: false,
            counted,
            phase: Cell::new(Phase::Idle),
            exchanges: Cell::new(0),
            bodies: Cell::new(0),
        }
    }

    /// Where its requests come from.
    pub fn origin(&self) -> Origin {
        Origin { listener: self.listener.index.get(), peer: self.peer.ip() }
    }

    /// The address of the peer.
    pub fn peer_ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// An exchange begins: from here on its own deadlines count.
    pub(crate) fn begin(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.phase.set(Phase::Exchange);
        self.deadline.set_socket(None);
    }

    /// An exchange has ended.
    pub(crate) fn end(&self) {
        self.exchanges.set(self.exchanges.get() - 1);
        if self.exchanges.get() == 0 {
            self.enter(Phase::Idle, IDLE);
        }
    }

    /// The body of a request is being read, perhaps beyond the end of its exchange: what comes is no new request.
    pub(crate) fn body_begins(&self) {
        self.bodies.set(self.bodies.get() + 1);
    }

    /// That body is read no more.
    pub(crate) fn body_ends(&self) {
        self.bodies.set(self.bodies.get() - 1);
    }

    pub(super) fn reads_body(&self) -> bool {
        self.bodies.get() > 0
    }

    pub(super) fn enter(&self, phase: Phase, within: Duration) {
        self.phase.set(phase);
        self.deadline.set_socket(Some(self.worker.deadlines.after(within)));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counted.fetch_sub(1, Ordering::Relaxed);
    }
}
