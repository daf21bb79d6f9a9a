//! A connection of a client, as requests and upstreams use it.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use http::StatusCode;
use sluicegate_wire::Headers;
use sluicegate_wire::number::write_decimal;

use super::listener::Listener;
use super::listener_state::{AddressGuard, CountGuard};
use crate::worker_state::{Deadline, WorkerState};
use sluicegate_base::tls::TlsSession;

/// A connection of a client.
pub struct Connection {
    /// The clock, deadlines and buffers of the worker thread.
    pub worker: Rc<WorkerState>,
    /// The listener that accepted it.
    pub listener: Rc<Listener>,
    /// The address of the peer, or the one that a PROXY header gave.
    pub peer: SocketAddr,
    /// The address of the peer as text, for headers to upstreams.
    pub peer_text: Box<[u8]>,
    /// The deadlines of the connection.
    pub deadline: Rc<Deadline>,
    /// Whether the protocol is HTTP/2, so that several requests share the connection.
    pub shared: bool,
    /// The TLS session, if the listener uses TLS.
    pub tls: Option<Box<TlsSession>>,
    /// Counts it among the connections of its client address, if these are limited.
    pub place: Option<AddressGuard>,
    /// Count it among the connections of the listener and of the gateway.
    _counted: [CountGuard; 2],
    /// Requests in progress.
    exchanges: Cell<usize>,
    /// Whether its request waits in a queue: of a leaky bucket, or of an upstream.
    pub queued: Cell<bool>,
    /// Interim responses of the upstream to the request that is being polled. The protocol sends them after the poll.
    interims: RefCell<Vec<Interim>>,
}

/// The status and the headers of an interim response (RFC 9110 §15.2).
pub type Interim = (StatusCode, Headers);

/// The most interim responses between two polls. More are dropped.
const INTERIMS: usize = 16;

impl Connection {
    /// A connection from `peer` from which nothing was read yet.
    pub fn new(
        worker: &Rc<WorkerState>,
        listener: &Rc<Listener>,
        peer: SocketAddr,
        counted: [CountGuard; 2],
    ) -> Self {
        let deadline = worker.deadlines.register(listener.group);
        deadline.set_socket(Some(worker.deadlines.after(worker.client().head)));
        Self {
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
            interims: RefCell::default(),
        }
    }

    /// The index of its listener in the snapshot in force; `usize::MAX` if that does not have the listener.
    pub fn listener_index(&self) -> usize {
        self.listener.index()
    }

    /// The scheme of the URLs that are requested on it.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Sets the address of the peer to the one that a PROXY header gave.
    pub fn set_peer(&mut self, peer: SocketAddr) {
        self.peer = peer;
        self.peer_text = text(peer);
    }

    /// The IP address of the peer; an IPv4-mapped address as IPv4.
    pub fn peer_ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// A request begins. From now on its own deadlines apply.
    pub fn begin(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.deadline.set_socket(None);
    }

    /// A request has ended. After the last one, the idle timeout applies.
    pub fn end(&self) {
        self.exchanges.set(self.exchanges.get() - 1);
        if self.exchanges.get() == 0 {
            self.deadline.set_socket(Some(self.worker.deadlines.after(self.worker.client().idle)));
        }
    }

    /// Queues an interim response to the request that is being polled.
    pub fn pass_on(&self, interim: Interim) {
        let mut interims = self.interims.borrow_mut();
        if interims.len() < INTERIMS {
            interims.push(interim);
        }
    }

    /// Takes the interim responses to the request that was just polled.
    pub fn take_interims(&self) -> Option<Vec<Interim>> {
        let mut interims = self.interims.borrow_mut();
        (!interims.is_empty()).then(|| std::mem::take(&mut *interims))
    }

    /// Logs why the connection ends.
    #[cold]
    pub fn log_close(&self, reason: impl Display) {
        tracing::debug!(peer = %self.peer, listener = %self.listener.id, %reason, "client connection closed");
    }

    /// Whether no request is in progress.
    pub fn is_idle(&self) -> bool {
        self.exchanges.get() == 0
    }
}

/// An address as text, without the port. IPv4 is written without the formatter, because every connection needs it.
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
