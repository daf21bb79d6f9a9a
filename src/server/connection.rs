//! Serves a connection: tells HTTP/1.1 from HTTP/2 by its first bytes.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use sluicegate_wire::h2::frame::PREFACE;

use super::handshake::handshake;
use super::listeners::Server;
use super::{h1, h2};
use crate::boxed_future::boxed_future;
use crate::client_connection::{ClientStream, Connection, LazyTcpStream, ListenerState};

/// What there is room for in the first read.
const PREFIX: usize = 4 << 10;

/// Serves a connection from its first byte to its end.
pub(super) async fn serve(
    server: Rc<Server>,
    mut connection: Connection,
    state: Arc<ListenerState>,
    socket: LazyTcpStream,
) {
    let Some(mut stream) = handshake(&server, &mut connection, &state, socket).await else { return };
    drop(state); // a connection may outlive it by far
    // Where TLS is spoken, the handshake has told the protocol (RFC 9113 §3.2), and nothing else is listened for.
    let agreed = connection.tls.as_ref().map(|tls| tls.h2);
    let Some(prefix) = read_prefix(&connection, &mut stream, agreed.is_some()).await else { return };
    connection.shared = agreed.unwrap_or_else(|| prefix.starts_with(PREFACE));
    let connection = Rc::new(connection);
    // They are of very different sizes, and a task has that of the largest.
    let serving = match connection.shared {
        true => boxed_future(|| h2::serve(&server.services, &connection, stream, prefix.freeze())),
        false => boxed_future(|| h1::serve(&server.services, &connection, stream, prefix)),
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
