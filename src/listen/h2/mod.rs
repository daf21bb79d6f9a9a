//! HTTP/2 connections of clients (RFC 9113): the library `h2` speaks it, what is here bounds it.
//!
//! `frames` finds the frames in the bytes, `watch` has their budgets, `io` stands between the library and the socket.
//! The requests of a connection are served in its own task, by `answer`: they end with it.

mod alive;
mod answer;
mod body;
mod frames;
mod head;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "not joined to a connection yet"))]
mod hpack;
mod io;
mod watch;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use h2::Reason;
use h2::server::{self, Handshake};

use self::alive::Alive;
use self::io::Io;
use super::connection::Connection;
use super::stream::ClientStream;

pub use self::body::Http2Body;

/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// What a client may send of one request, and of all together, before it was read.
const WINDOWS: (u32, u32) = (64 << 10, 1 << 20);
/// What a frame may carry.
const FRAME: u32 = 16 << 10;
/// What is kept of an answer that the client gives no window for.
const UNSENT: usize = 128 << 10;
/// How long a connection without requests stays after its client was told that it ends.
const PARTING: Duration = Duration::from_secs(2);

/// Serves a connection to its end. `prefix` is what was read of it already.
pub(super) async fn serve(connection: &Rc<Connection>, stream: ClientStream, prefix: Bytes) {
    let max_head = u32::try_from(connection.worker.view().snapshot.config.max_head).unwrap_or(u32::MAX);
    let begun = Rc::new(Cell::new(0));
    let heard = Rc::new(Cell::new(connection.worker.deadlines.now()));
    let io = Io::new(stream, Rc::clone(connection), prefix, Rc::clone(&begun), Rc::clone(&heard));
    let handshake = server::Builder::new()
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(max_head)
        .max_frame_size(FRAME)
        .initial_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_send_buffer_size(UNSENT)
        // They are counted by `watch`, which forgets: over the life of a connection any number adds up.
        .max_local_error_reset_streams(None)
        .handshake(io);
    let mut link = Link::Greeting(handshake);
    let mut requests = FuturesUnordered::new();
    let mut parting = Parting::default();
    poll_fn(|context| {
        connection.deadline.watch(context);
        while let Poll::Ready(Some(())) = requests.poll_next_unpin(context) {}
        loop {
            // Read first: a request that has arrived is served before the connection ends. How it ends is the client's
            // business: the errors are mistakes, resets and deadlines, which it was told of where it still listened.
            let polled = match &mut link {
                Link::Greeting(handshake) => match Pin::new(handshake).poll(context) {
                    Poll::Ready(Ok(mut library)) => {
                        let alive = Alive::new(library.ping_pong(), Rc::clone(&heard), connection);
                        if parting.begun {
                            library.graceful_shutdown();
                        }
                        link = Link::Open { library, alive };
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => Poll::Pending,
                },
                Link::Open { library, alive } => {
                    if alive.is_over(context, connection) {
                        library.abrupt_shutdown(Reason::NO_ERROR);
                    }
                    library.poll_accept(context)
                }
            };
            match polled {
                Poll::Ready(Some(Ok((request, reply)))) => {
                    begun.set(begun.get() + 1);
                    // Boxed: the set moves what it is given, and this is large.
                    requests.push(Box::pin(answer::run(Rc::clone(connection), request, reply)));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(())) = requests.poll_next_unpin(context) {}
        if parting.begins(connection) {
            if let Link::Open { library, .. } = &mut link {
                library.graceful_shutdown();
            }
            context.waker().wake_by_ref();
        }
        parting.poll(connection)
    })
    .await;
}

/// The library's side of a connection.
#[allow(clippy::large_enum_variant, reason = "there is one a connection, in its own box")]
enum Link {
    /// Neither side has spoken yet.
    Greeting(Handshake<Io, Bytes>),
    /// Both have.
    Open { library: server::Connection<Io, Bytes>, alive: Alive },
}

/// The end of a connection: GOAWAY, then what is under way, then a moment for the client to close it.
#[derive(Default)]
struct Parting {
    begun: bool,
    /// When the connection is closed, if no request comes.
    ends_at: Option<u64>,
}

impl Parting {
    /// Whether the client is to be told now: it was idle for too long, or the listener closes.
    fn begins(&mut self, connection: &Connection) -> bool {
        let idle = connection.is_idle() && connection.deadline.socket_passed();
        let begins = !self.begun && (connection.deadline.take_closing() || idle);
        self.begun |= begins;
        begins
    }

    fn poll(&mut self, connection: &Connection) -> Poll<()> {
        if !self.begun {
            return Poll::Pending;
        }
        let deadlines = &connection.worker.deadlines;
        match self.ends_at {
            _ if !connection.is_idle() => self.ends_at = None,
            Some(at) if deadlines.now() >= at => return Poll::Ready(()),
            Some(_) => {}
            None => {
                let at = deadlines.after(PARTING);
                self.ends_at = Some(at);
                connection.deadline.set_socket(Some(at));
            }
        }
        Poll::Pending
    }
}
