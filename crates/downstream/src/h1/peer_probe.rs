//! Determines whether a client is still connected without reading from its socket.

use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::Interest;

use crate::ClientStream;

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

/// The state of the client, also if bytes before the end of the input were not read yet. `half_closed` if the end was read.
pub(crate) fn probe(stream: &mut ClientStream, half_closed: bool, cx: &mut Context<'_>) -> PeerState {
    let Ok(socket) = stream.socket_mut().registered() else { return PeerState::Gone };
    if !matches!(socket.take_error(), Ok(None)) {
        return PeerState::Gone;
    }
    let ready = pin!(socket.ready(Interest::READABLE)).poll(cx);
    let closed = matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed());
    if closed || half_closed { PeerState::HalfClosed } else { PeerState::Open }
}
