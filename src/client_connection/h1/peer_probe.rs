//! Finds out whether a client is still there without reading from its socket.

use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::Interest;

use crate::client_connection::ClientStream;

/// The state of a client, as its socket shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// It is connected.
    Open,
    /// It has closed its side.
    HalfClosed,
    /// It has reset the connection.
    Gone,
}

/// What the socket says about the client beyond the bytes that were not read yet. `half_closed` if the end was read.
pub(crate) fn probe(stream: &mut ClientStream, half_closed: bool, context: &mut Context<'_>) -> PeerState {
    let Ok(socket) = stream.socket_mut().watched() else { return PeerState::Gone };
    if !matches!(socket.take_error(), Ok(None)) {
        return PeerState::Gone;
    }
    let ready = pin!(socket.ready(Interest::READABLE)).poll(context);
    let closed = matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed());
    if closed || half_closed { PeerState::HalfClosed } else { PeerState::Open }
}
