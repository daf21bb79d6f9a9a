//! A connection that was switched to another protocol (RFC 9110 §7.8): relays bytes in both directions until both have ended.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::write::send_switch;
use crate::request::{Response, Tunnel};
use sluicegate_downstream::h1::{Socket, timeouts};
use sluicegate_downstream::worker_state::Deadline;

/// Bytes of one read from the server.
const READ_SIZE: usize = 4 << 10;

/// Sends the response that switches protocols, then relays bytes. Bytes that the client sent before the response are relayed
/// too.
pub(super) async fn run(socket: &Socket, response: Response) {
    let Some(Tunnel { tunnel, context }) = response.body.into_tunnel() else { return };
    if send_switch(socket, response.status, &response.headers).await.is_err() {
        return;
    }
    let sluicegate_upstream::Tunnel { stream, mut received, idle } = tunnel;
    let (mut reader, writer) = tokio::io::split(stream);
    let exchange = context.exchange();
    let buffers = &socket.connection.worker.buffers;
    // After one side has ended, the other one may be gone without a trace.
    let timeout = Cell::new(idle);
    let progress = || socket.set_timeout(timeout.get());
    progress();
    let end = |()| {
        timeout.set(idle.min(timeouts::HALF_TUNNEL));
        progress();
    };
    let up = async {
        let written = |length| {
            exchange.add_tunnelled(length);
            progress();
        };
        relay(async || socket.read().await, writer, written).await.map(end)
    };
    let down = async {
        let read = async || match received.is_empty() {
            true => poll_fn(|cx| buffers.poll_read(&mut reader, cx, READ_SIZE)).await,
            false => Ok(std::mem::take(&mut received)),
        };
        let written = |length| {
            exchange.add_sent(length);
            progress();
        };
        relay(read, socket, written).await.map(end)
    };
    tokio::select! {
        biased;
        _ = async { tokio::try_join!(up, down) } => {}
        () = socket.connection.deadline.until(Deadline::socket_passed) => {}
    }
}

/// Relays bytes in one direction until the reader ends, then shuts the writer down. `written` is called with the length of
/// each write.
async fn relay(
    mut read: impl AsyncFnMut() -> io::Result<BytesMut>,
    mut writer: impl AsyncWrite + Unpin,
    written: impl Fn(usize),
) -> io::Result<()> {
    loop {
        let mut bytes = read().await?;
        if bytes.is_empty() {
            return writer.shutdown().await;
        }
        while !bytes.is_empty() {
            match writer.write_buf(&mut bytes).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                length => written(length),
            }
        }
        writer.flush().await?;
    }
}
