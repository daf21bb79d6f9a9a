//! Serves a connection of a client: handshakes, then HTTP/1.1 or HTTP/2, as ALPN or the first bytes say.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use sluicegate_wire::h2::frame::PREFACE;

use super::handshake::{accept_proxied, accept_tls, admit_address};
use super::listeners::Server;
use super::{h1, h2};
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_downstream::h1::Socket;
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_downstream::{ClientStream, Connection, LazyTcpStream, ListenerState};

/// Bytes of the first read.
const PREFIX: usize = 4 << 10;

/// Serves a connection from its first byte to its end.
///
/// The future has the size of what an idle HTTP/1.1 connection needs: what is rare, short or larger is boxed.
#[allow(clippy::manual_async_fn, reason = "an `async fn` holds its arguments twice")]
pub(super) fn serve(
    server: Rc<Server>,
    mut connection: Connection,
    state: Arc<ListenerState>,
    mut socket: LazyTcpStream,
) -> impl Future<Output = ()> {
    async move {
        if state.proxy_protocol && !boxed_future(|| accept_proxied(&mut connection, &mut socket)).await {
            return;
        }
        if !admit_address(&mut connection, &state, &server.services.view().snapshot) {
            return;
        }
        let accepted = match &state.tls {
            None => Some(ClientStream::Plain(socket)),
            Some(tls) => boxed_future(|| accept_tls(&server.handshakes, &mut connection, tls, socket)).await,
        };
        let Some(mut stream) = accepted else { return };
        drop(state); // the connection may outlive a reload
        // With TLS, ALPN determines the protocol (RFC 9113 §3.2).
        let agreed = connection.tls.as_ref().map(|tls| tls.h2);
        let Some(prefix) = read_prefix(&connection, &mut stream, agreed.is_some()).await else { return };
        connection.shared = agreed.unwrap_or_else(|| prefix.starts_with(PREFACE));
        let connection = Rc::new(connection);
        match connection.shared {
            true => boxed_future(|| h2::serve(&server.services, &connection, stream, prefix.freeze())).await,
            false => {
                let socket = Rc::new(Socket::new(connection, stream, prefix));
                h1::serve(&server.services, &socket).await;
            }
        }
    }
}

/// Reads until the first bytes show which protocol the client speaks, or once if that is `agreed`. `None` if the connection
/// ends before.
async fn read_prefix(connection: &Connection, stream: &mut ClientStream, agreed: bool) -> Option<BytesMut> {
    let deadline = &connection.deadline;
    let mut prefix = BytesMut::new();
    loop {
        let read = poll_fn(|cx| connection.worker.buffers.poll_read(stream, cx, PREFIX));
        let read = tokio::select! {
            biased;
            read = read => read.inspect_err(|error| connection.log_close(error)).ok()?,
            () = deadline.until(Deadline::socket_passed) => {
                connection.log_close("the first bytes did not arrive in time");
                return None;
            }
            () = deadline.until(Deadline::take_closing) => {
                connection.log_close("draining");
                return None;
            }
        };
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
