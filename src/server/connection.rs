//! A connection: tell HTTP/1 from HTTP/2, serve, end.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::task::Poll;

use bytes::BytesMut;
use http::StatusCode;
use tokio::sync::Notify;

use super::handshake::handshake;
use super::listener_state::{AddressGuard, CountGuard, ListenerState};
use super::listeners::Server;
use super::stream::ClientStream;
use super::tcp_stream::LazyTcpStream;
use super::{h1, h2};
use crate::boxed_future::boxed_future;
use crate::metrics::{Handshake, ListenerMetrics, Metrics, Refusal};
use crate::request::Services;
use crate::snapshot::Snapshot;
use crate::tls::TlsSession;
use crate::worker_state::{Deadline, WorkerState};
use sluicegate_wire::Headers;
use sluicegate_wire::h2::frame::PREFACE;
use sluicegate_wire::number::write_decimal;

/// What there is room for in the first read.
const PREFIX: usize = 4 << 10;
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
    metrics: RefCell<Arc<ListenerMetrics>>,
    /// How connections find it; the last that the configuration had, once that has it no more.
    state: RefCell<Option<Arc<ListenerState>>>,
}

/// A connection of a client.
pub struct Connection {
    /// The server that accepted it.
    pub(super) server: Rc<Server>,
    /// What serves its requests.
    pub services: Rc<Services>,
    /// The clock, deadlines and buffers of its thread.
    pub worker: Rc<WorkerState>,
    /// Where it came in.
    pub listener: Rc<Listener>,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The address of the peer as upstreams are told.
    pub peer_text: Box<[u8]>,
    /// Its deadlines.
    pub deadline: Rc<Deadline>,
    /// Whether it speaks HTTP/2, so that requests share it.
    pub shared: bool,
    /// What the handshake has told, where TLS is spoken.
    pub tls: Option<Box<TlsSession>>,
    /// Its place among those of its address, where these are counted.
    pub(super) place: Option<AddressGuard>,
    /// Its places among those of the listener and of the gateway.
    _counted: [CountGuard; 2],
    exchanges: Cell<usize>,
    /// Its request waits for its turn in a leaky bucket.
    pub(crate) queued: Cell<bool>,
    /// Over HTTP/2 the deadlines of the request that begins next.
    pub(super) next_stream: RefCell<Option<Rc<Deadline>>>,
    /// Interim answers of upstreams to the request that is being polled, until whoever polls it sends them on.
    interims: RefCell<Vec<Interim>>,
}

/// An answer before the answer (RFC 9110 §15.2): its status and its fields.
pub(crate) type Interim = (StatusCode, Headers);

/// Interim answers that are sent on at once; more are left out.
const INTERIMS: usize = 16;

impl Listener {
    /// A listener that is not looked up yet.
    pub(super) fn new(id: String, group: u64) -> Self {
        Self {
            id,
            index: Cell::new(REMOVED),
            group,
            closed: Notify::new(),
            connections: RefCell::default(),
            metrics: RefCell::default(),
            state: RefCell::default(),
            ending: Cell::new(false),
            left: Cell::new(false),
        }
    }

    /// Takes its index and its name from the snapshot that is now in force.
    pub fn find_in(&self, snapshot: &Snapshot, metrics: &Metrics, worker: usize) {
        let found =
            snapshot.config.listeners.iter().enumerate().find(|(_, listener)| listener.id() == self.id);
        self.index.set(found.map_or(REMOVED, |(index, _)| index));
        if let Some((index, listener)) = found {
            self.connections.replace(metrics.connections(&listener.name));
            self.metrics.replace(metrics.listener(&listener.name, worker));
            self.state.replace(Some(Arc::clone(&snapshot.listener_states[index])));
        }
    }

    /// How new connections find it.
    pub(super) fn state(&self) -> Option<Arc<ListenerState>> {
        self.state.borrow().clone()
    }

    /// A place among its connections; `None` if there are `most` already.
    pub(super) fn place(&self, most: i64) -> Option<CountGuard> {
        CountGuard::one(&self.connections.borrow(), most)
    }

    /// Counts a connection that is not served.
    pub(super) fn count_refusal(&self, why: Refusal) {
        self.metrics.borrow().refused(why);
    }

    /// Counts a handshake.
    pub(super) fn count_handshake(&self, outcome: Handshake) {
        self.metrics.borrow().handshake(outcome);
    }
}

/// Serves a connection from its first byte to its end.
pub(super) async fn serve(mut connection: Connection, state: Arc<ListenerState>, socket: LazyTcpStream) {
    let Some(mut stream) = handshake(&mut connection, &state, socket).await else { return };
    drop(state); // a connection may outlive it by far
    // Where TLS is spoken, the handshake has told the protocol (RFC 9113 §3.2), and nothing else is listened for.
    let agreed = connection.tls.as_ref().map(|tls| tls.h2);
    let Some(prefix) = read_prefix(&connection, &mut stream, agreed.is_some()).await else { return };
    connection.shared = agreed.unwrap_or_else(|| prefix.starts_with(PREFACE));
    let connection = Rc::new(connection);
    // They are of very different sizes, and a task has that of the largest.
    let serving = match connection.shared {
        true => boxed_future(|| h2::serve(&connection, stream, prefix.freeze())),
        false => boxed_future(|| h1::serve(&connection, stream, prefix)),
    };
    serving.await;
}

/// What came before it was clear which protocol is spoken, or first if that is `agreed`; `None` if nothing did.
async fn read_prefix(connection: &Connection, stream: &mut ClientStream, agreed: bool) -> Option<BytesMut> {
    let mut prefix = BytesMut::new();
    loop {
        let read = poll_fn(|context| {
            connection.deadline.watch(context);
            match connection.worker.buffers.poll_read(stream, context, PREFIX) {
                Poll::Ready(read) => Poll::Ready(read.inspect_err(|error| connection.log_close(error)).ok()),
                Poll::Pending if connection.deadline.socket_passed() => {
                    connection.log_close("the first bytes did not arrive in time");
                    Poll::Ready(None)
                }
                Poll::Pending if connection.deadline.take_closing() => {
                    connection.log_close("draining");
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        match prefix.is_empty() {
            _ if read.is_empty() => {
                connection.log_close("the client closed it before its first request");
                return None;
            }
            true => prefix = read,
            false => prefix.extend_from_slice(&read),
        }
        if agreed || prefix.len() >= PREFACE.len() || !PREFACE.starts_with(&prefix) {
            return Some(prefix);
        }
    }
}

impl Connection {
    /// A connection from `peer` that has said nothing yet.
    pub(super) fn new(
        server: &Rc<Server>,
        listener: &Rc<Listener>,
        peer: SocketAddr,
        counted: [CountGuard; 2],
    ) -> Self {
        let (services, worker) = (&server.services, &server.services.worker);
        let deadline = worker.deadlines.register(listener.group);
        deadline.set_socket(Some(worker.deadlines.after(worker.client().head)));
        Self {
            server: Rc::clone(server),
            services: Rc::clone(services),
            worker: Rc::clone(worker),
            listener: Rc::clone(listener),
            peer,
            peer_text: text(peer),
            deadline,
            shared: false,
            tls: None,
            place: None,
            _counted: counted,
            exchanges: Cell::new(0),
            queued: Cell::new(false),
            next_stream: RefCell::new(None),
            interims: RefCell::default(),
        }
    }

    /// The index of its listener in the snapshot in force; `usize::MAX` if that does not have the listener.
    pub fn listener_index(&self) -> usize {
        self.listener.index.get()
    }

    /// The scheme of its URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Takes the word of whoever passes its bytes on for where it comes from.
    pub(super) fn set_peer(&mut self, peer: SocketAddr) {
        self.peer = peer;
        self.peer_text = text(peer);
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
            self.deadline.set_socket(Some(self.worker.deadlines.after(self.worker.client().idle)));
        }
    }

    /// Has the client sent an interim answer to the request that is being polled, if it may have it.
    pub(crate) fn pass_on(&self, interim: Interim) {
        let mut interims = self.interims.borrow_mut();
        if interims.len() < INTERIMS {
            interims.push(interim);
        }
    }

    /// Takes the interim answers to the request that was polled just now.
    pub(super) fn take_interims(&self) -> Option<Vec<Interim>> {
        let mut interims = self.interims.borrow_mut();
        (!interims.is_empty()).then(|| std::mem::take(&mut *interims))
    }

    /// Logs why the connection ends.
    #[cold]
    pub(super) fn log_close(&self, reason: impl Display) {
        tracing::debug!(peer = %self.peer, listener = %self.listener.id, %reason, "client connection closed");
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

/// An address as upstreams are told. Those of IPv4 are written by hand: each connection has one.
fn text(peer: SocketAddr) -> Box<[u8]> {
    let IpAddr::V4(address) = peer.ip().to_canonical() else {
        return peer.ip().to_string().into_bytes().into();
    };
    let mut text = Vec::with_capacity("255.255.255.255".len());
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push(b'.');
        }
        write_decimal(&mut text, octet.into());
    }
    text.into()
}
