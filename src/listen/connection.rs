//! A connection: tell HTTP/1 from HTTP/2, serve, end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use http::HeaderValue;
use tokio::sync::Notify;

use super::deadline::Deadline;
use super::stream::ClientStream;
use super::{h1, h2};
use crate::observe::Metrics;
use crate::pipeline::Origin;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The first bytes of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// From the connection to its first byte, and from the first byte of a head to its last.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// Between two requests of a connection.
pub(super) const IDLE: Duration = Duration::from_secs(75);
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
    exchanges: Cell<usize>,
    /// Its request waits for its turn in a leaky bucket.
    pub(crate) queued: Cell<bool>,
    /// Over HTTP/2 the deadlines of the request that begins next.
    pub(super) next_stream: RefCell<Option<Rc<Deadline>>>,
}

impl Listener {
    /// A listener that is not looked up yet.
    pub(super) fn new(id: String, group: u64) -> Self {
        Self { id, index: Cell::new(REMOVED), group, closed: Notify::new(), connections: RefCell::default() }
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
        h2::serve(&connection, stream, prefix.freeze()).await;
    } else {
        h1::serve(&connection, stream, prefix).await;
    }
}

/// What came before it was clear which protocol is spoken; `None` if nothing did.
async fn read_prefix(connection: &Connection, stream: &mut ClientStream) -> Option<BytesMut> {
    let mut prefix = BytesMut::new();
    loop {
        let read = poll_fn(|context| {
            connection.deadline.watch(context);
            match connection.worker.buffers.poll_read(stream, context) {
                Poll::Ready(read) => Poll::Ready(read.ok()),
                Poll::Pending if connection.deadline.socket_passed() => Poll::Ready(None),
                Poll::Pending if connection.deadline.take_closing() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        match prefix.is_empty() {
            _ if read.is_empty() => return None,
            true => prefix = read,
            false => prefix.extend_from_slice(&read),
        }
        if prefix.len() >= PREFACE.len() || !PREFACE.starts_with(&prefix) {
            return Some(prefix);
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
            exchanges: Cell::new(0),
            queued: Cell::new(false),
            next_stream: RefCell::new(None),
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
        self.deadline.set_socket(None);
    }

    /// An exchange has ended.
    pub(crate) fn end(&self) {
        self.exchanges.set(self.exchanges.get() - 1);
        if self.exchanges.get() == 0 {
            self.deadline.set_socket(Some(self.worker.deadlines.after(IDLE)));
        }
    }

    /// Whether no request is served.
    pub(super) fn is_idle(&self) -> bool {
        self.exchanges.get() == 0
    }

    /// The deadlines of a request that begins: the connection's, or its own where requests share a connection.
    pub(crate) fn request_deadline(&self) -> Rc<Deadline> {
        if !self.shared {
            return Rc::clone(&self.deadline);
        }
        let next = self.next_stream.borrow_mut().take();
        next.unwrap_or_else(|| self.worker.deadlines.register(u64::MAX)) // no group: it ends with its connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counted.fetch_sub(1, Ordering::Relaxed);
    }
}
