//! A connection of a client, as its requests and their upstreams see it.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use http::StatusCode;
use sluicegate_wire::Headers;
use sluicegate_wire::number::write_decimal;

use super::listener::Listener;
use super::listener_state::{AddressGuard, CountGuard};
use crate::tls::TlsSession;
use crate::worker_state::{Deadline, WorkerState};

/// A connection of a client.
pub struct Connection {
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
    pub(crate) place: Option<AddressGuard>,
    /// Its places among those of the listener and of the gateway.
    _counted: [CountGuard; 2],
    exchanges: Cell<usize>,
    /// Its request waits for its turn in a leaky bucket.
    pub(crate) queued: Cell<bool>,
    /// Over HTTP/2 the deadlines of the request that begins next.
    pub(crate) next_stream: RefCell<Option<Rc<Deadline>>>,
    /// Interim answers of upstreams to the request that is being polled, until whoever polls it sends them on.
    interims: RefCell<Vec<Interim>>,
}

/// An answer before the answer (RFC 9110 §15.2): its status and its fields.
pub(crate) type Interim = (StatusCode, Headers);

/// Interim answers that are sent on at once; more are left out.
const INTERIMS: usize = 16;

impl Connection {
    /// A connection from `peer` that has said nothing yet.
    pub(crate) fn new(
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
            next_stream: RefCell::new(None),
            interims: RefCell::default(),
        }
    }

    /// The index of its listener in the snapshot in force; `usize::MAX` if that does not have the listener.
    pub fn listener_index(&self) -> usize {
        self.listener.index()
    }

    /// The scheme of its URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Takes the word of whoever passes its bytes on for where it comes from.
    pub(crate) fn set_peer(&mut self, peer: SocketAddr) {
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
    pub(crate) fn take_interims(&self) -> Option<Vec<Interim>> {
        let mut interims = self.interims.borrow_mut();
        (!interims.is_empty()).then(|| std::mem::take(&mut *interims))
    }

    /// Logs why the connection ends.
    #[cold]
    pub(crate) fn log_close(&self, reason: impl Display) {
        tracing::debug!(peer = %self.peer, listener = %self.listener.id, %reason, "client connection closed");
    }

    /// Whether no request is served.
    pub(crate) fn is_idle(&self) -> bool {
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
