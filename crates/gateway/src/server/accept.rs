//! Accepts connections, and stops accepting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::sync::mpsc;

use super::connection::serve;
use super::connection_budget::{SpareFile, is_of_connection, is_out_of_files};
use super::listeners::Server;
use super::{DETACH_GRACE, ListenSocket, detach};
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_downstream::{Connection, LazyTcpStream, Listener};
use sluicegate_observe::metrics::Refusal;

/// The pause after an error of accept. Without it, the loop would spin.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The address of clients on a Unix socket, which have none: they are on this machine.
const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The most connections that are accepted before other tasks run.
const BATCH: usize = 32;

impl Server {
    /// Starts to accept on a socket.
    pub(crate) fn open(self: &Rc<Self>, opened: ListenSocket) {
        #[allow(
            deprecated,
            reason = "it is unsound if a file descriptor changes while it is registered; that of a listener does not"
        )]
        let watched = AsyncFd::with_interest(opened.socket, Interest::READABLE);
        let socket = match watched {
            Ok(socket) => socket,
            Err(error) => return tracing::error!("cannot serve the listener {}: {error}", opened.id),
        };
        // Accepted connections inherit the option. A failure costs latency only.
        let _ = socket2::SockRef::from(&socket).set_tcp_nodelay(true);
        let listener = Rc::new(Listener::new(opened.id, self.next_group()));
        self.find(&listener, &self.services.view().snapshot);
        self.listeners.borrow_mut().push(Rc::clone(&listener));
        sluicegate_base::boxed_future::spawn_local(accept(Rc::clone(self), listener, socket, opened.own));
    }

    /// Whether the present configuration has a listener on the port of a socket, and the gateway is not draining.
    fn has_port_of(&self, socket: &TcpListener) -> bool {
        let Ok(port) = socket.local_addr().map(|address| address.port()) else { return false };
        let snapshot = &self.services.view().snapshot;
        !self.services.process.draining.load(Ordering::Relaxed)
            && snapshot.config.listeners.iter().any(|listener| listener.address.port() == Some(port))
    }

    /// Stops accepting on some listeners and closes their connections: each after its next response, or after `grace` if it is
    /// idle. `left` are the ids of listeners whose sockets another process continues to accept on. `done` is dropped after
    /// `grace`.
    pub(crate) fn close(
        self: &Rc<Self>,
        which: impl Fn(&Listener) -> bool,
        left: &[String],
        grace: Duration,
        done: Option<mpsc::Sender<()>>,
    ) {
        let closing: Vec<Rc<Listener>> =
            self.listeners.borrow_mut().extract_if(.., |listener| which(listener)).collect();
        for listener in &closing {
            listener.left.set(left.contains(&listener.id));
            listener.ending.set(true);
            listener.closed.notify_one();
            // The last update: reloads do not reach closed listeners.
            self.find(listener, &self.services.view().snapshot);
        }
        let services = Rc::clone(&self.services);
        sluicegate_base::boxed_future::spawn_local(async move {
            // Requests that clients have sent before are read and answered first.
            tokio::time::sleep(grace).await;
            for listener in closing {
                services.worker.deadlines.close(listener.group);
            }
            drop(done);
        });
    }
}

async fn accept(server: Rc<Server>, listener: Rc<Listener>, socket: AsyncFd<TcpListener>, own: bool) {
    let mut spare = SpareFile::new();
    let mut is_failing = false;
    let _guard = server.critical.guard("accepts connections");
    loop {
        let accepted = tokio::select! {
            ready = socket.readable() => ready.and_then(|ready| {
                accept_batch(ready, |stream, peer| {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("accepting on {} again", listener.id);
                    }
                    start(&server, &listener, stream, peer);
                })
            }),
            () = listener.closed.notified() => break,
        };
        match accepted {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => {}
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!("cannot accept on {}: {error}", listener.id);
                }
                // The connection stays in the queue of the kernel, so without a pause this would spin.
                if is_out_of_files(&error) && reject_one(&listener, socket.get_ref(), &mut spare) {
                    tokio::task::yield_now().await; // others may close files
                } else {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    spare.reopen();
                }
            }
        }
    }
    if listener.left.get() {
        return;
    }
    if own && server.has_port_of(socket.get_ref()) && detach(socket.get_ref()) {
        let completed = async {
            loop {
                let Ok((stream, peer)) = socket.async_io(Interest::READABLE, accept_one).await else {
                    return;
                };
                start(&server, &listener, stream, peer);
            }
        };
        let _ = tokio::time::timeout(DETACH_GRACE, completed).await; // new connections arrive on another socket
    }
    drain(socket.get_ref(), |stream, peer| start(&server, &listener, stream, peer));
}

/// Accepts connections until none is left, at most [`BATCH`]. Returns whether some may be left.
///
/// # Errors
/// Those of the socket; what concerns only one connection is passed over.
fn accept_batch(
    mut ready: AsyncFdReadyGuard<'_, TcpListener>,
    mut start: impl FnMut(TcpStream, SocketAddr),
) -> io::Result<bool> {
    for _ in 0..BATCH {
        match ready.try_io(|socket| accept_one(socket.get_ref())) {
            Ok(Ok((stream, peer))) => start(stream, peer),
            Ok(Err(error)) if is_of_connection(&error) => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => return Ok(false),
        }
    }
    Ok(true)
}

/// Accepts all connections in the queue of a socket. They would be reset when it is closed.
pub(crate) fn drain(socket: &TcpListener, mut start: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match accept_one(socket) {
            Ok((stream, peer)) => start(stream, peer),
            Err(error) if is_of_connection(&error) => {}
            Err(_) => return,
        }
    }
}

/// Accepts one connection as a non-blocking socket.
#[cfg(target_os = "linux")]
fn accept_one(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    use rustix::io::retry_on_intr;
    use rustix::net::{AddressFamily, SocketFlags, acceptfrom_with};

    let (stream, peer) =
        retry_on_intr(|| acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC))?;
    let peer = peer.ok_or(rustix::io::Errno::CONNABORTED)?;
    let peer = match peer.address_family() {
        AddressFamily::UNIX => HERE,
        _ => SocketAddr::try_from(peer)?,
    };
    Ok((stream.into(), peer))
}

/// Accepts one connection as a non-blocking socket.
#[cfg(not(target_os = "linux"))]
fn accept_one(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = socket2::SockRef::from(socket).accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream.into(), peer.as_socket().unwrap_or(HERE)))
}

/// Accepts and closes one connection, because there are no file descriptors to serve it. Returns whether that was possible.
fn reject_one(listener: &Listener, socket: &TcpListener, spare: &mut SpareFile) -> bool {
    if !spare.close() {
        return false;
    }
    let accepted = accept_one(socket);
    let rejected = accepted.is_ok();
    drop(accepted);
    spare.reopen();
    if rejected {
        listener.count_refusal(Refusal::OutOfFiles);
    }
    rejected
}

/// Serves a connection, unless a connection limit is reached.
fn start(server: &Rc<Server>, listener: &Rc<Listener>, stream: TcpStream, peer: SocketAddr) {
    server.services.view(); // applies a reload to the listener
    let Some(state) = listener.state() else { return };
    let refuse = |why, reason: &str| {
        listener.count_refusal(why);
        tracing::debug!(%peer, listener = %listener.id, reason, "client connection refused");
    };
    let Some(in_gateway) = server.budget.acquire() else {
        return refuse(Refusal::Gateway, "the gateway is at its connection limit");
    };
    let Some(in_listener) = listener.acquire(state.most) else {
        return refuse(Refusal::Listener, "the listener is at its connection limit");
    };
    if !cfg!(target_os = "linux") {
        let _ = stream.set_nodelay(true); // may not be inherited from the listening socket
    }
    let connection = Connection::new(&server.services.worker, listener, peer, [in_gateway, in_listener]);
    let server = Rc::clone(server);
    // In a box of its own, because tokio copies what it spawns several times.
    let serving = boxed_future(|| serve(server, connection, state, LazyTcpStream::new(stream)));
    tokio::task::spawn_local(serving);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn accepted_connections_inherit_tcp_nodelay() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&listener).set_tcp_nodelay(true).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
