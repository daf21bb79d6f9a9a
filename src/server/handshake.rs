//! What comes before HTTP: the PROXY header and the handshake of TLS.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::listeners::Server;
use crate::client_connection::{ClientStream, Connection, Full, LazyTcpStream, ListenerState};
use crate::metrics::{Handshake, Refusal};
use crate::tls::{ServerTls, TlsSession};
use crate::worker_state::Deadline;
use sluicegate_wire::proxy_protocol::{self, Progress, SHORTEST};

/// Handshakes at once of one worker. Each takes memory before anything is known of the client; of more, the oldest is
/// given up, which is a client that waits rather than one that waited for us.
const HANDSHAKES: usize = 2_048;

/// How long a connection that has not come to HTTP may go on when its listener closes.
const CLOSING: Duration = Duration::from_secs(1);

/// How long a client is waited for to take the alert that ended its handshake, and how much it may send meanwhile.
const LINGER: (Duration, usize) = (Duration::from_secs(2), 1 << 20);

/// The handshakes of a worker that are not finished, oldest first; finished ones are gone from memory.
#[derive(Default)]
pub(crate) struct Handshakes(RefCell<VecDeque<Weak<UnderWay>>>);

/// A handshake that is not finished.
struct UnderWay(Rc<Deadline>);

impl Handshakes {
    /// Notes one more. It counts until the answer is dropped.
    fn begin(&self, deadline: &Rc<Deadline>) -> Rc<UnderWay> {
        let one = Rc::new(UnderWay(Rc::clone(deadline)));
        let mut all = self.0.borrow_mut();
        if all.len() >= HANDSHAKES {
            all.retain(|other| other.strong_count() > 0);
            if all.len() >= HANDSHAKES
                && let Some(oldest) = all.pop_front().and_then(|oldest| oldest.upgrade())
            {
                oldest.0.give_up();
            }
        }
        all.push_back(Rc::downgrade(&one));
        one
    }
}

/// Brings a connection as far as HTTP: who the client is, and what its bytes come through. `None` if it does not come
/// that far; then it is counted why.
pub(super) async fn handshake(
    server: &Server,
    connection: &mut Connection,
    state: &Arc<ListenerState>,
    mut socket: LazyTcpStream,
) -> Option<ClientStream> {
    let refused = |connection: &Connection, why| connection.listener.count_refusal(why);
    if state.proxy_protocol {
        match proxy_header(connection, &mut socket).await {
            Ok(Some(peer)) => connection.set_peer(peer),
            Ok(None) => {}
            Err(reason) => {
                refused(connection, Refusal::ProxyHeader);
                connection.log_close(reason);
                return None;
            }
        }
    }
    let config = Arc::clone(&server.services.view().snapshot);
    match state.place(connection.peer.ip(), &config.config.client_ip, &config.config.resources.lists) {
        Ok(place) => connection.place = place,
        Err(Full) => {
            refused(connection, Refusal::Address);
            connection.log_close("the client's address has as many connections as it may");
            return None;
        }
    }
    let Some(tls) = &state.tls else { return Some(ClientStream::Plain(socket)) };
    // In a box, which is gone when the handshake is.
    match Box::pin(tls_handshake(&server.handshakes, connection, tls, socket)).await {
        Ok((stream, session)) => {
            let outcome = if session.resumed { Handshake::Resumed } else { Handshake::Full };
            connection.listener.count_handshake(outcome);
            connection.tls = Some(Box::new(session));
            Some(stream)
        }
        Err((outcome, told)) => {
            connection.listener.count_handshake(outcome);
            if let Some(socket) = told {
                Box::pin(linger(connection, socket)).await;
            }
            None
        }
    }
}

/// Closes our side and reads what the client still sends, in bounds: closing with unread data resets the connection, and
/// the client would never see the alert. Over TLS 1.3 a client whose certificate is missing has sent its request already.
async fn linger(connection: &Connection, mut socket: LazyTcpStream) {
    connection.deadline.set_socket(Some(connection.worker.deadlines.after(LINGER.0)));
    let closing = async {
        let _ = socket.shutdown().await;
        let (mut piece, mut left) = ([0; 1 << 10], LINGER.1);
        while let Ok(read @ 1..) = socket.read(&mut piece).await {
            match left.checked_sub(read) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    let _ = in_time(connection, closing).await;
}

/// Where the PROXY header says that the connection comes from. A connection that does not begin with one is not read
/// on: nobody would know whose it is.
///
/// # Errors
/// Why the address is not known.
async fn proxy_header(
    connection: &Connection,
    socket: &mut LazyTcpStream,
) -> Result<Option<SocketAddr>, &'static str> {
    let mut header = vec![0; SHORTEST];
    let mut read = 0;
    loop {
        let wanted = socket.read_exact(&mut header[read..]);
        in_time(connection, wanted)
            .await
            .ok_or("its PROXY header did not arrive in time")?
            .map_err(|_| "it ended before its PROXY header did")?;
        read = header.len();
        match proxy_protocol::decode(&header) {
            Progress::NeedMore(more) => header.resize(read + more, 0),
            Progress::Done(source) => return Ok(source),
            Progress::Malformed => return Err("it does not begin with a PROXY header that can be read"),
        }
    }
}

/// The handshake of TLS. With the outcome of one that failed comes the socket of a client that was told why by an alert.
async fn tls_handshake(
    handshakes: &Handshakes,
    connection: &Connection,
    tls: &Arc<ServerTls>,
    socket: LazyTcpStream,
) -> Result<(ClientStream, TlsSession), (Handshake, Option<LazyTcpStream>)> {
    let worker = &connection.worker;
    connection.deadline.set_socket(Some(worker.deadlines.after(tls.timeout)));
    let _under_way = handshakes.begin(&connection.deadline);
    let accepting = TlsAcceptor::from(Arc::clone(&tls.config)).accept(socket).into_fallible();
    match in_time(connection, accepting).await {
        Some(Ok(stream)) => {
            connection.deadline.set_socket(Some(worker.deadlines.after(worker.client().head)));
            let session = tls.session(stream.get_ref().1);
            Ok((ClientStream::Tls(Box::new(stream)), session))
        }
        Some(Err((error, socket))) => {
            connection.log_close(format_args!("the TLS handshake failed: {error}"));
            // Any other error is the socket's own.
            let told = error.kind() == ErrorKind::InvalidData;
            Err((Handshake::Failed, told.then_some(socket)))
        }
        None if connection.deadline.was_given_up() => {
            connection.log_close("too many TLS handshakes are under way, and this one was the oldest");
            Err((Handshake::Shed, None))
        }
        None => {
            connection.log_close("the TLS handshake did not end in time");
            Err((Handshake::TimedOut, None))
        }
    }
}

/// What `future` comes to, unless the deadline of the connection passes first.
async fn in_time<F: Future>(connection: &Connection, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut hurried = false;
    poll_fn(|context| {
        connection.deadline.watch(context);
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if !hurried && connection.deadline.is_closing() => {
                // Whoever is in the middle of it may finish, but nobody waits for those who say nothing.
                hurried = true;
                connection.deadline.set_socket(Some(connection.worker.deadlines.after(CLOSING)));
                Poll::Pending
            }
            Poll::Pending if connection.deadline.socket_passed() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_state::Deadlines;

    #[test]
    fn the_oldest_handshake_is_given_up_for_a_new_one() {
        let (handshakes, deadlines) = (Handshakes::default(), Deadlines::new());
        let deadline = || deadlines.register(1);
        let finished: Vec<_> = (0..HANDSHAKES).map(|_| handshakes.begin(&deadline())).collect();
        drop(finished);
        let oldest = deadline();
        let mut waiting = vec![handshakes.begin(&oldest)];
        waiting.extend((1..HANDSHAKES).map(|_| handshakes.begin(&deadline())));
        assert!(!oldest.was_given_up());
        waiting.push(handshakes.begin(&deadline()));
        assert!(oldest.was_given_up() && oldest.socket_passed());
        assert!(!waiting[1].0.was_given_up());
        assert_eq!(handshakes.0.borrow().len(), HANDSHAKES);
    }
}
