//! HTTP/2 connections of clients (RFC 9113): hyper speaks it, what is here bounds it.
//!
//! `frames` finds the frames in the bytes, `watch` has their budgets, `io` stands between hyper and the socket.

mod frames;
mod head;
mod io;
mod watch;

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use self::io::Io;
use super::connection::Connection;
use super::inbound::Inbound;
use super::stream::ClientStream;
use crate::pipeline;

/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// What a client may send of one request, and of all together, before it was read.
const WINDOWS: (u32, u32) = (64 << 10, 1 << 20);
/// What is kept of an answer that the client gives no window for.
const UNSENT: usize = 128 << 10;
/// How long a connection is silent before its client is asked whether it lives, and how long it has to say so.
const ALIVE: (Duration, Duration) = (Duration::from_secs(45), Duration::from_secs(20));
/// How long a connection without requests stays after its client was told that it ends.
const PARTING: Duration = Duration::from_secs(2);

/// Serves a connection to its end. `prefix` is what was read of it already.
pub(super) async fn serve(connection: &Rc<Connection>, stream: ClientStream, prefix: Bytes) {
    let max_head = u32::try_from(connection.worker.view().snapshot.config.max_head).unwrap_or(u32::MAX);
    let begun = Rc::new(Cell::new(0));
    let io = TokioIo::new(Io::new(stream, Rc::clone(connection), prefix, Rc::clone(&begun)));
    let service = service_fn(|request| {
        begun.set(begun.get() + 1);
        let connection = Rc::clone(connection);
        // Boxed: hyper moves what it is given, and moves it on into a task.
        Box::pin(async move {
            let mut request = request.map(Inbound::from);
            match head::tidy(&mut request, connection.worker.client().max_headers) {
                Ok(()) => {
                    let (head, body) = request.into_parts();
                    Ok::<_, Infallible>(pipeline::serve(&connection, head.into(), body).await.into_http())
                }
                Err(error) => Ok(pipeline::refuse(&connection, error).into_http()),
            }
        })
    });
    let mut serving = pin!(
        http2::Builder::new(LocalExecutor(Rc::clone(connection)))
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(max_head)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_send_buf_size(UNSENT)
            .keep_alive_interval(ALIVE.0)
            .keep_alive_timeout(ALIVE.1)
            // They are counted by `watch`, which forgets: over the life of a connection any number adds up.
            .max_local_error_reset_streams(None)
            .serve_connection(io, service)
    );
    let mut parting = Parting::default();
    poll_fn(|context| {
        connection.deadline.watch(context);
        // Read first: a request that has arrived is served before the connection ends. How it ends is the client's
        // business: the errors are mistakes, resets and deadlines, which it was told of where it still listened.
        if serving.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if parting.begins(connection) {
            serving.as_mut().graceful_shutdown();
            if serving.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
        }
        parting.poll(connection)
    })
    .await;
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

/// Runs the requests of an HTTP/2 connection on the thread that serves it.
#[derive(Clone)]
struct LocalExecutor(Rc<Connection>);

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        let connection = Rc::clone(&self.0);
        tokio::task::spawn_local(async move {
            // The exchange takes it over when it begins, which is in the first poll. Its body then says how long
            // the client may leave the answer where it is; hyper itself would wait for ever.
            let deadlines = &connection.worker.deadlines;
            let deadline = deadlines.lend();
            connection.next_stream.replace(Some(Rc::clone(&deadline)));
            {
                let mut future = pin!(future);
                poll_fn(|context: &mut Context<'_>| {
                    deadline.watch(context);
                    match future.as_mut().poll(context) {
                        // The stream is reset when the future is dropped.
                        Poll::Pending if deadline.socket_passed() => Poll::Ready(()),
                        polled => polled,
                    }
                })
                .await;
            }
            deadlines.take_back(deadline);
        });
    }
}
