//! A connection: accept, tell HTTP/1 from HTTP/2, serve, end.

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
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use super::Opened;
use super::deadline::Deadline;
use super::io::{HEAD, IDLE, Io, Phase};
use crate::observe::Metrics;
use crate::pipeline::{self, Origin};
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The first bytes of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What is read before the protocol is told: most heads are shorter.
const PREFIX: usize = 1 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// The index of a listener that the configuration in force does not have. No route asks for it.
const REMOVED: usize = usize::MAX;
/// How long a connection that is to end is still read for what its client sent before.
const SENT_BEFORE: Duration = Duration::from_millis(100);
/// How long accepting pauses when the process is out of file descriptors: accepting at once would spin.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

/// A listener as one worker serves it.
pub struct Listener {
    /// What tells it from others, whatever it is called.
    pub id: String,
    /// Its index in the snapshot in force, or [`REMOVED`].
    index: Cell<usize>,
    group: u64,
    closed: Notify,
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

impl Worker {
    /// Serves on a socket.
    pub(crate) fn open(self: &Rc<Self>, opened: Opened) {
        let socket = match TcpListener::from_std(opened.socket) {
            Ok(socket) => socket,
            Err(error) => return tracing::error!("listener {} cannot be served: {error}", opened.id),
        };
        let listener = Rc::new(Listener {
            index: Cell::new(0),
            group: self.next_group(),
            closed: Notify::new(),
            connections: RefCell::default(),
            id: opened.id,
        });
        listener.find_in(&self.view().snapshot, &self.shared().metrics);
        self.listeners.borrow_mut().push(Rc::clone(&listener));
        tokio::task::spawn_local(accept(Rc::clone(self), listener, socket));
    }

    /// Stops accepting on some listeners and ends their connections when they are idle. `done` is dropped when
    /// they have been told.
    pub(crate) fn close(self: &Rc<Self>, which: impl Fn(&Listener) -> bool, done: Option<mpsc::Sender<()>>) {
        let closing: Vec<Rc<Listener>> =
            self.listeners.borrow_mut().extract_if(.., |listener| which(listener)).collect();
        for listener in &closing {
            listener.closed.notify_one();
            // It is looked after no more: this is the last time that it learns what it is now.
            listener.find_in(&self.view().snapshot, &self.shared().metrics);
        }
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            // What clients had sent before this is read first, and answered.
            tokio::time::sleep(SENT_BEFORE).await;
            for listener in closing {
                worker.deadlines.close(listener.group);
            }
            drop(done);
        });
    }
}

async fn accept(worker: Rc<Worker>, listener: Rc<Listener>, socket: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = listener.closed.notified() => break,
        };
        match accepted {
            Ok((stream, peer)) => start(&worker, &listener, stream, peer),
            Err(error) => {
                tracing::warn!("cannot accept on {}: {error}", listener.id);
                tokio::time::sleep(OUT_OF_FILES).await;
            }
        }
    }
    // Those that the kernel has accepted for this socket would be reset with it.
    if let Ok(socket) = socket.into_std() {
        while let Ok((stream, peer)) = socket.accept() {
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                start(&worker, &listener, stream, peer);
            }
        }
    }
}

fn start(worker: &Rc<Worker>, listener: &Rc<Listener>, stream: TcpStream, peer: SocketAddr) {
    let _ = stream.set_nodelay(true); // a latency matter, no reason to refuse a client
    let deadline = worker.deadlines.register(listener.group);
    deadline.set_socket(Some(worker.deadlines.after(HEAD)));
    let counted = Arc::clone(&listener.connections.borrow());
    counted.fetch_add(1, Ordering::Relaxed);
    let connection = Connection {
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
    };
    tokio::task::spawn_local(serve(connection, stream));
}

/// Polls a connection to its end, and tells it when it is to end.
///
/// How a connection ends is the client's business: the errors are malformed requests, resets and deadlines,
/// which the client was told of where it still listened.
macro_rules! drive {
    ($connection:expr, $serving:expr) => {{
        let mut serving = pin!($serving);
        let _ = poll_fn(|context| {
            $connection.deadline.watch(context);
            // Read first: a request that has arrived is served before the connection ends.
            let polled = serving.as_mut().poll(context);
            if polled.is_pending() && $connection.deadline.take_closing() {
                serving.as_mut().graceful_shutdown();
                return serving.as_mut().poll(context);
            }
            polled
        })
        .await;
    }};
}

async fn serve(mut connection: Connection, mut stream: TcpStream) {
    let Some(prefix) = read_prefix(&connection, &mut stream).await else { return };
    connection.shared = prefix.starts_with(PREFACE);
    let connection = Rc::new(connection);
    let io = TokioIo::new(Io::new(stream, Rc::clone(&connection), prefix));
    let max_head = connection.worker.view().snapshot.config.max_head;
    let service = service_fn(|request| {
        let connection = Rc::clone(&connection);
        async move { pipeline::serve(&connection, request).await }
    });
    if connection.shared {
        let serving = http2::Builder::new(LocalExecutor)
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(max_head as u32)
            .initial_stream_window_size(64 << 10)
            .initial_connection_window_size(1 << 20)
            .serve_connection(io, service);
        drive!(connection, serving);
    } else {
        let serving = http1::Builder::new()
            .max_buf_size(max_head)
            .header_read_timeout(None)
            .writev(false)
            .serve_connection(io, service);
        drive!(connection, serving);
    }
}

/// What came before it was clear which protocol is spoken; `None` if nothing did.
async fn read_prefix(connection: &Connection, stream: &mut TcpStream) -> Option<Bytes> {
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

/// Runs the requests of an HTTP/2 connection on the thread that serves it.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl Connection {
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
