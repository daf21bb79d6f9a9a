//! The first phases of a connection: the PROXY header and the TLS handshake.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;

use super::pacer::Pacer;
use crate::snapshot::Snapshot;
use sluicegate_base::tls::{ServerTls, TlsSession};
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_downstream::{ClientStream, Connection, Full, LazyTcpStream, ListenerState};
use sluicegate_observe::metrics::{Handshake, Refusal};
use sluicegate_wire::proxy_protocol::{self, Progress, SHORTEST};

/// The most concurrent TLS handshakes of one worker. Each takes memory before anything is known about the client. Beyond that, the
/// oldest one is aborted: the gateway is prompt, so its client is slow.
const HANDSHAKES: usize = 2_048;

/// The time limit for these phases after the listener has closed.
const CLOSING: Duration = Duration::from_secs(1);

/// The limits for discarding input after a TLS alert: the time, and the number of bytes.
const DISCARD: (Duration, u64) = (Duration::from_secs(2), 1 << 20);

/// The TLS handshakes of a worker.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// Those in progress, oldest first.
    pending: RefCell<VecDeque<Weak<PendingHandshake>>>,
    /// Spreads their computations.
    pub(crate) pacer: Pacer,
}

/// A TLS handshake that is in progress, and the deadlines of its connection.
struct PendingHandshake(Rc<Deadline>);

impl Handshakes {
    /// Registers a handshake, which counts until the result is dropped. If there are too many, aborts the oldest one.
    fn begin(&self, deadline: &Rc<Deadline>) -> Rc<PendingHandshake> {
        let one = Rc::new(PendingHandshake(Rc::clone(deadline)));
        let mut all = self.pending.borrow_mut();
        if all.len() >= HANDSHAKES {
            all.retain(|other| other.strong_count() > 0);
            if all.len() >= HANDSHAKES
                && let Some(oldest) = all.pop_front().and_then(|oldest| oldest.upgrade())
            {
                oldest.0.expire_early();
            }
        }
        all.push_back(Rc::downgrade(&one));
        one
    }
}

/// Reads the PROXY header. Returns false if the connection is refused, which is counted.
pub(super) async fn accept_proxied(connection: &mut Connection, socket: &mut LazyTcpStream) -> bool {
    match proxy_header(connection, socket).await {
        Ok(peer) => {
            if let Some(peer) = peer {
                connection.set_peer(peer);
            }
            true
        }
        Err(reason) => {
            connection.listener.count_refusal(Refusal::ProxyHeader);
            connection.log_close(reason);
            false
        }
    }
}

/// Counts the connection among those of the client's address. Returns false if these are too many; the refusal is counted.
pub(super) fn admit_address(
    connection: &mut Connection,
    state: &Arc<ListenerState>,
    snapshot: &Snapshot,
) -> bool {
    let config = &snapshot.config;
    match state.acquire(connection.peer.ip(), &config.client_ip, &config.resources.lists) {
        Ok(place) => {
            connection.place = place;
            true
        }
        Err(Full) => {
            connection.listener.count_refusal(Refusal::Address);
            connection.log_close("the client's address is at its connection limit");
            false
        }
    }
}

/// Performs the TLS handshake. `None` if it failed, which is counted.
pub(super) async fn accept_tls(
    handshakes: &Handshakes,
    connection: &mut Connection,
    tls: &Arc<ServerTls>,
    socket: LazyTcpStream,
) -> Option<ClientStream> {
    match tls_handshake(handshakes, connection, tls, socket).await {
        Ok((stream, session)) => {
            let outcome = if session.resumed { Handshake::Resumed } else { Handshake::Full };
            connection.listener.count_handshake(outcome);
            connection.tls = Some(Box::new(session));
            Some(stream)
        }
        Err((outcome, socket)) => {
            connection.listener.count_handshake(outcome);
            if let Some(socket) = socket {
                linger(connection, socket).await;
            }
            None
        }
    }
}

/// Closes our side and discards what the client is still sending, within limits: closing a socket with unread data resets the
/// connection, and the client would not see the alert. With TLS 1.3, a client without the required certificate has sent its
/// request already.
async fn linger(connection: &Connection, mut socket: LazyTcpStream) {
    connection.deadline.set_socket(Some(connection.worker.deadlines.after(DISCARD.0)));
    let closing = async {
        let _ = socket.shutdown().await;
        tokio::io::copy(&mut socket.take(DISCARD.1), &mut tokio::io::sink()).await
    };
    let _ = before_deadline(connection, closing).await;
}

/// Reads the PROXY header and returns the address in it; `None` if it has none.
///
/// # Errors
/// If the connection does not begin with a PROXY header, with the reason for the log.
async fn proxy_header(
    connection: &Connection,
    socket: &mut LazyTcpStream,
) -> Result<Option<SocketAddr>, &'static str> {
    let mut header = vec![0; SHORTEST];
    let mut read = 0;
    loop {
        let wanted = socket.read_exact(&mut header[read..]);
        before_deadline(connection, wanted)
            .await
            .ok_or("the PROXY header did not arrive in time")?
            .map_err(|_| "the connection ended within the PROXY header")?;
        read = header.len();
        match proxy_protocol::decode(&header) {
            Progress::NeedMore(more) => header.resize(read + more, 0),
            Progress::Done(source) => return Ok(source),
            Progress::Malformed => return Err("the connection does not begin with a valid PROXY header"),
        }
    }
}

/// Performs the TLS handshake. If it fails with an alert, the error includes the socket.
async fn tls_handshake(
    handshakes: &Handshakes,
    connection: &Connection,
    tls: &Arc<ServerTls>,
    socket: LazyTcpStream,
) -> Result<(ClientStream, TlsSession), (Handshake, Option<LazyTcpStream>)> {
    let worker = &connection.worker;
    connection.deadline.set_socket(Some(worker.deadlines.after(tls.timeout)));
    let _pending = handshakes.begin(&connection.deadline);
    let mut hello = LazyConfigAcceptor::new(Acceptor::default(), socket);
    let accepting = async {
        let hello = match (&mut hello).await {
            Ok(hello) => hello,
            Err(error) => return Err((error, hello.take_io())),
        };
        handshakes.pacer.wait().await; // `into_stream` computes the keys and the signature
        if connection.deadline.socket_passed() {
            std::future::pending::<()>().await; // not worth the computation: the deadline ends it
        }
        let accepted = hello.into_stream(Arc::clone(&tls.config)).into_fallible().await;
        accepted.map_err(|(error, socket)| (error, Some(socket)))
    };
    match before_deadline(connection, accepting).await {
        Some(Ok(stream)) => {
            connection.deadline.set_socket(Some(worker.deadlines.after(worker.client().head)));
            let session = tls.session(stream.get_ref().1);
            Ok((ClientStream::Tls(Box::new(stream)), session))
        }
        Some(Err((error, socket))) => {
            connection.log_close(format_args!("the TLS handshake failed: {error}"));
            // Errors of rustls have this kind; others are errors of the socket.
            let has_alert = error.kind() == ErrorKind::InvalidData;
            Err((Handshake::Failed, socket.filter(|_| has_alert)))
        }
        None if connection.deadline.expired_early() => {
            connection.log_close("too many TLS handshakes are under way, and this one was the oldest");
            Err((Handshake::Shed, None))
        }
        None => {
            connection.log_close("the TLS handshake did not end in time");
            Err((Handshake::TimedOut, None))
        }
    }
}

/// Waits for `future`, at most until the deadline of the connection.
async fn before_deadline<F: Future>(connection: &Connection, future: F) -> Option<F::Output> {
    let deadline = &connection.deadline;
    let mut future = pin!(future);
    tokio::select! {
        biased;
        output = &mut future => return Some(output),
        () = deadline.until(Deadline::is_closing) => {
            deadline.set_socket(Some(connection.worker.deadlines.after(CLOSING)));
        }
        () = deadline.until(Deadline::socket_passed) => return None,
    }
    tokio::select! {
        biased;
        output = future => Some(output),
        () = deadline.until(Deadline::socket_passed) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_downstream::worker_state::Deadlines;

    #[test]
    fn the_oldest_handshake_is_aborted_for_a_new_one() {
        let (handshakes, deadlines) = (Handshakes::default(), Deadlines::default());
        let deadline = || deadlines.register(1);
        let finished: Vec<_> = (0..HANDSHAKES).map(|_| handshakes.begin(&deadline())).collect();
        drop(finished);
        let oldest = deadline();
        let mut waiting = vec![handshakes.begin(&oldest)];
        waiting.extend((1..HANDSHAKES).map(|_| handshakes.begin(&deadline())));
        assert!(!oldest.expired_early());
        waiting.push(handshakes.begin(&deadline()));
        assert!(oldest.expired_early() && oldest.socket_passed());
        assert!(!waiting[1].0.expired_early());
        assert_eq!(handshakes.pending.borrow().len(), HANDSHAKES);
    }
}
