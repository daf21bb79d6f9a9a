//! A connection that another protocol was switched to (RFC 9110 §7.8): bytes both ways, until both sides have ended.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};

use super::write::send_switch;
use crate::client_connection::h1::{Socket, timeouts};
use crate::request::{Response, Tunnel};

/// One end of a tunnel.
enum Side<'a> {
    Client(&'a Socket),
    Server(&'a mut Tunnel),
}

/// One direction.
#[derive(Default)]
struct Way {
    /// What was read and not written yet.
    held: Bytes,
    /// Something was written that may not be on its way yet.
    unflushed: bool,
    /// The reader has ended.
    ended: bool,
    /// The writer was told.
    closed: bool,
}

/// Tells the client that the protocol is switched, and carries bytes from then on. What the client sent before it was
/// told is sent after.
pub(super) async fn run(socket: &Socket, response: Response) {
    let Some(mut tunnel) = response.body.into_tunnel() else { return };
    if send_switch(socket, response.status, &response.headers).await.is_err() {
        return;
    }
    let connection = &socket.connection;
    let within = |span| connection.deadline.set_socket(Some(connection.worker.deadlines.after(span)));
    let idle = tunnel.idle();
    within(idle);
    let (mut up, mut down) = (Way::default(), Way::default());
    let (mut client, mut server) = (Side::Client(socket), Side::Server(&mut tunnel));
    poll_fn(|context| {
        connection.deadline.watch(context);
        let carried = up.carry(context, &mut client, &mut server);
        let carried = carried.and_then(|up| Ok(up | down.carry(context, &mut server, &mut client)?));
        match carried {
            Err(_) => Poll::Ready(()),
            _ if up.closed && down.closed => Poll::Ready(()),
            // Whoever has said that it sends nothing more may have gone altogether.
            Ok(true) => {
                within(if up.closed || down.closed { idle.min(timeouts::HALF_TUNNEL) } else { idle });
                Poll::Pending
            }
            Ok(false) if connection.deadline.socket_passed() => Poll::Ready(()),
            Ok(false) => Poll::Pending,
        }
    })
    .await;
}

impl Way {
    /// Carries what there is. Whether anything moved.
    fn carry(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Side<'_>,
        to: &mut Side<'_>,
    ) -> io::Result<bool> {
        let mut moved = false;
        while !self.closed {
            while !self.held.is_empty() {
                match to.poll_write(context, &self.held)? {
                    Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(written) => self.held.advance(written),
                    Poll::Pending => return Ok(moved),
                }
                self.unflushed = true;
                moved = true;
            }
            if self.ended {
                if to.poll_shutdown(context)?.is_pending() {
                    return Ok(moved);
                }
                self.closed = true;
                return Ok(true);
            }
            match from.poll_read(context)? {
                Poll::Ready(read) if read.is_empty() => self.ended = true,
                Poll::Ready(read) => self.held = read,
                Poll::Pending => {
                    if self.unflushed && to.poll_flush(context)?.is_ready() {
                        self.unflushed = false;
                    }
                    return Ok(moved);
                }
            }
        }
        Ok(moved)
    }
}

impl Side<'_> {
    fn poll_read(&mut self, context: &mut Context<'_>) -> io::Result<Poll<Bytes>> {
        let polled = match self {
            Self::Client(socket) => socket.poll_read(context).map_ok(bytes::BytesMut::freeze),
            Self::Server(tunnel) => tunnel.poll_read(context),
        };
        turned(polled)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> io::Result<Poll<usize>> {
        turned(match self {
            Self::Client(socket) => socket.poll_write(context, bytes),
            Self::Server(tunnel) => tunnel.poll_write(context, bytes),
        })
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> io::Result<Poll<()>> {
        turned(match self {
            Self::Client(socket) => socket.poll_flush(context),
            Self::Server(tunnel) => tunnel.poll_flush(context),
        })
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> io::Result<Poll<()>> {
        turned(match self {
            Self::Client(socket) => socket.poll_shutdown(context),
            Self::Server(tunnel) => tunnel.poll_shutdown(context),
        })
    }
}

fn turned<T>(polled: Poll<io::Result<T>>) -> io::Result<Poll<T>> {
    match polled {
        Poll::Ready(Ok(value)) => Ok(Poll::Ready(value)),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(Poll::Pending),
    }
}
