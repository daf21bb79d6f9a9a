//! Sockets that listen: accept, and stop accepting.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::connection::serve;
use super::connection_budget::{Spare, is_of_connection, is_out_of_files};
use super::listeners::Server;
use super::{DETACH_GRACE, ListenSocket, detach};
use crate::client_connection::{Connection, LazyTcpStream, Listener};
use crate::metrics::Refusal;

/// How long accepting pauses when the process is out of file descriptors: accepting at once would spin.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

impl Server {
    /// Serves on a socket.
    pub(crate) fn open(self: &Rc<Self>, opened: ListenSocket) {
        #[allow(
            deprecated,
            reason = "it is unsound where a handle changes while it is watched; a listener's does not"
        )]
        let watched = AsyncFd::with_interest(opened.socket, Interest::READABLE);
        let socket = match watched {
            Ok(socket) => socket,
            Err(error) => return tracing::error!("listener {} cannot be served: {error}", opened.id),
        };
        // A latency matter, no reason to serve nobody. Connections that are accepted have it from their listener.
        let _ = socket2::SockRef::from(&socket).set_tcp_nodelay(true);
        let listener = Rc::new(Listener::new(opened.id, self.next_group()));
        self.find(&listener, &self.services.view().snapshot);
        self.listeners.borrow_mut().push(Rc::clone(&listener));
        tokio::task::spawn_local(accept(Rc::clone(self), listener, socket, opened.own));
    }

    /// Whether the configuration in force has another listener on the port of a socket, and goes on having it.
    fn has_port_of(&self, socket: &TcpListener) -> bool {
        let port = socket.local_addr().map(|address| address.port());
        let same = |other: u16| port.as_ref().is_ok_and(|port| *port == other);
        let snapshot = &self.services.view().snapshot;
        !self.services.process.draining.load(Ordering::Relaxed)
            && snapshot.config.listeners.iter().any(|listener| same(listener.address.port()))
    }

    /// Stops accepting on some listeners and ends their connections: each with its next answer, or when it has been
    /// idle for `grace`. `left` are the ids of those whose sockets somebody else has too, who takes in whoever
    /// waits there. `done` is dropped when all have been told.
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
            // It is looked after no more: this is the last time that it learns what it is now.
            self.find(listener, &self.services.view().snapshot);
        }
        let services = Rc::clone(&self.services);
        tokio::task::spawn_local(async move {
            // What clients had sent before this is read first, and answered.
            tokio::time::sleep(grace).await;
            for listener in closing {
                services.worker.deadlines.close(listener.group);
            }
            drop(done);
        });
    }
}

async fn accept(server: Rc<Server>, listener: Rc<Listener>, socket: AsyncFd<TcpListener>, own: bool) {
    let mut spare = Spare::new();
    let mut troubled = false;
    let _guard = server.critical.guard("accepts connections");
    loop {
        let accepted = tokio::select! {
            accepted = socket.async_io(Interest::READABLE, take_in) => accepted,
            () = listener.closed.notified() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                if std::mem::take(&mut troubled) {
                    tracing::info!("accepting on {} again", listener.id);
                }
                start(&server, &listener, stream, peer);
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                if !std::mem::replace(&mut troubled, true) {
                    tracing::warn!("cannot accept on {}: {error}", listener.id);
                }
                // Without a pause this would spin: whoever waits to be accepted goes on waiting.
                if !is_out_of_files(&error) || !turn_away(&listener, socket.get_ref(), &mut spare) {
                    tokio::time::sleep(OUT_OF_FILES).await;
                    spare.take_back();
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
                let Ok((stream, peer)) = socket.async_io(Interest::READABLE, take_in).await else { return };
                start(&server, &listener, stream, peer);
            }
        };
        let _ = tokio::time::timeout(DETACH_GRACE, completed).await; // whoever comes now comes to another socket
    }
    drain(socket.get_ref(), |stream, peer| start(&server, &listener, stream, peer));
}

/// Takes in all that the kernel has accepted for a socket, which would be reset with it.
pub(crate) fn drain(socket: &TcpListener, mut start: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match take_in(socket) {
            Ok((stream, peer)) => start(stream, peer),
            Err(error) if is_of_connection(&error) => {}
            Err(_) => return,
        }
    }
}

/// Takes in whoever waits first. The connection does not block.
#[cfg(target_os = "linux")]
fn take_in(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    use rustix::io::retry_on_intr;
    use rustix::net::{SocketFlags, acceptfrom_with};

    let (stream, peer) =
        retry_on_intr(|| acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC))?;
    let peer = peer.ok_or(rustix::io::Errno::CONNABORTED)?;
    Ok((stream.into(), SocketAddr::try_from(peer)?))
}

/// Takes in whoever waits first. The connection does not block.
#[cfg(not(target_os = "linux"))]
fn take_in(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = socket.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, peer))
}

/// Closes one of the connections that wait, for there are no file descriptors to serve it. Whether that was done.
fn turn_away(listener: &Listener, socket: &TcpListener, spare: &mut Spare) -> bool {
    if !spare.give_up() {
        return false;
    }
    let accepted = take_in(socket);
    let turned_away = accepted.is_ok();
    drop(accepted);
    spare.take_back();
    if turned_away {
        listener.count_refusal(Refusal::OutOfFiles);
    }
    turned_away
}

/// Serves a connection, if there is a place for it.
fn start(server: &Rc<Server>, listener: &Rc<Listener>, stream: TcpStream, peer: SocketAddr) {
    server.services.view(); // a new connection finds the listener as the configuration in force has it
    let Some(state) = listener.state() else { return };
    let refuse = |why, reason: &str| {
        listener.count_refusal(why);
        tracing::debug!(%peer, listener = %listener.id, reason, "client connection refused");
    };
    let Some(in_gateway) = server.budget.place() else {
        return refuse(Refusal::Gateway, "the gateway has as many connections as it may");
    };
    let Some(in_listener) = listener.place(state.most) else {
        return refuse(Refusal::Listener, "the listener has as many connections as it may");
    };
    if !cfg!(target_os = "linux") {
        let _ = stream.set_nodelay(true); // what a listener hands on is the system's own affair
    }
    let connection = Connection::new(&server.services.worker, listener, peer, [in_gateway, in_listener]);
    tokio::task::spawn_local(serve(Rc::clone(server), connection, state, LazyTcpStream::New(stream)));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    /// A connection that is accepted need not be told what its listener was told.
    #[test]
    fn connections_have_from_their_listener_that_nothing_is_held_back() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&listener).set_tcp_nodelay(true).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
