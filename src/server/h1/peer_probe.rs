//! What can be seen of a client that nothing is read from.

use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::Interest;

use crate::server::stream::ClientStream;

/// What a client is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStage {
    /// Its answer has not begun.
    Waiting {
        /// It speaks HTTP/1.0, which has no interim answers.
        old: bool,
    },
    /// More of its answer is to come.
    Answering,
}

/// What can be seen of a client without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// It is there.
    Open,
    /// It sends nothing more.
    Finished,
    /// It has reset the connection.
    Gone,
}

/// What the socket says of the client, behind what it sent and nobody has read yet. `finished` if the end was read.
pub(super) fn probe(stream: &mut ClientStream, finished: bool, context: &mut Context<'_>) -> PeerState {
    let Ok(socket) = stream.socket_mut().watched() else { return PeerState::Gone };
    if !matches!(socket.take_error(), Ok(None)) {
        return PeerState::Gone;
    }
    let ready = pin!(socket.ready(Interest::READABLE)).poll(context);
    let closed = matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed());
    if closed || finished { PeerState::Finished } else { PeerState::Open }
}
