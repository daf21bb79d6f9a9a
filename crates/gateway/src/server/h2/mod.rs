//! HTTP/2 connections of clients (RFC 9113): one task each, which serves all requests of the connection. They end with it.
//!
//! [`Session`] of the wire crate is the connection without its socket: frames in, events and frames out. `socket` reads and
//! writes, `stream_tasks` polls the requests, `answer` serves one of them, `keepalive` checks silent connections. The tasks are
//! polled by hand, because every request passes here and all of them share one session.

mod answer;
mod keepalive;
mod next_request;
mod socket;
mod stream_tasks;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use sluicegate_wire::h2::{Event, HeadLimits, Reason, RequestError, STREAMS, Session};

use self::keepalive::Keepalive;
use self::next_request::StreamRequest;
use self::socket::{End, Socket};
use self::stream_tasks::{SLOTS, StreamTasks};
use crate::request::Services;
use crate::respond::LocalError;
use sluicegate_downstream::{ClientStream, Connection, Http2Body, RequestBody};

const _: () = assert!(STREAMS <= SLOTS, "each stream has a slot");
/// The most reads in one poll, so that other connections get their turn.
const READS: usize = 4;
/// How long a connection without requests stays open after GOAWAY.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Serves a connection to its end. `prefix` has the bytes that were read already.
pub(super) async fn serve(
    services: &Rc<Services>,
    connection: &Rc<Connection>,
    stream: ClientStream,
    prefix: Bytes,
) {
    let worker = &connection.worker;
    let view = services.view();
    let config = &view.snapshot.config;
    let client = worker.client();
    let limits = HeadLimits { bytes: config.max_head, fields: client.max_headers, target: client.max_target };
    let session = Session::new(limits, Arc::clone(&view.snapshot.flood_limits), worker.clock().uptime());
    let session = Rc::new(RefCell::new(session));
    drop(view); // the connection may outlive a reload
    let mut task = Task {
        services,
        connection,
        session: &session,
        socket: Socket::new(stream, connection, prefix),
        requests: StreamTasks::default(),
        keepalive: Keepalive::new(connection),
        shutdown: GracefulShutdown::default(),
    };
    poll_fn(|cx| {
        task.enter(cx);
        let polled = task.poll(cx);
        match polled {
            Poll::Ready(end) => {
                connection.log_close(end);
                task.socket.poll_end(cx, &mut session.borrow_mut(), end, &services.process.metrics.aborts);
            }
            Poll::Pending => task.exit(),
        }
        polled
    })
    .await;
    drop(task);
    session.borrow_mut().close();
}

/// The state of a connection.
struct Task<'c> {
    services: &'c Rc<Services>,
    connection: &'c Rc<Connection>,
    session: &'c Rc<RefCell<Session>>,
    socket: Socket,
    requests: StreamTasks,
    keepalive: Keepalive,
    shutdown: GracefulShutdown,
}

impl Task<'_> {
    fn enter(&mut self, context: &Context<'_>) {
        self.connection.deadline.set_waker(context);
        self.requests.enter(context);
        let mut session = self.session.borrow_mut();
        session.enter(context);
        session.lend_buffer(|| self.connection.worker.buffers.take_write_buffer());
    }

    /// Releases memory until the next poll, except unsent frames and requests.
    fn exit(&mut self) {
        let mut session = self.session.borrow_mut();
        session.exit();
        if let Some(buffer) = session.return_buffer() {
            self.connection.worker.buffers.return_write_buffer(buffer);
        }
        let is_idle = session.shrink();
        drop(session);
        if is_idle {
            self.requests.shrink();
        }
    }

    /// Reads, polls requests and writes until nothing more can be done.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let mut reads = 0;
        loop {
            self.requests.poll();
            let last_read = self.socket.last_read();
            if self.keepalive.has_expired(&mut self.session.borrow_mut(), last_read, self.connection) {
                tracing::debug!(peer = %self.connection.peer, "the client did not answer a keepalive PING");
                return Poll::Ready(End::GoAway(Reason::NO_ERROR));
            }
            // Reads first, so that a request that has arrived is served before the connection ends. A client that does not read
            // responses is not read from.
            let was_full = self.session.borrow().is_full();
            if !was_full && reads < READS {
                match self.poll_read(cx) {
                    Poll::Ready(Ok(())) => {
                        reads += 1;
                        self.handle_abort();
                        continue;
                    }
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                    Poll::Pending => {}
                }
            }
            if self.shutdown.begins(self.connection) {
                self.session.borrow_mut().begin_shutdown();
            }
            if self.wake_blocked() {
                continue;
            }
            let flushed = self.socket.poll_flush(cx, &mut self.session.borrow_mut());
            if let Poll::Ready(Err(end)) = flushed {
                return Poll::Ready(end);
            }
            let session = self.session.borrow();
            if flushed.is_ready() && session.is_over() {
                return Poll::Ready(End::Done);
            }
            // There may be more to do if the flush has made room.
            let has_room = was_full && !session.is_full();
            if has_room || session.has_blocked() {
                drop(session);
                if self.wake_blocked() || has_room {
                    continue;
                }
            }
            if reads == READS {
                cx.waker().wake_by_ref();
            }
            return self.shutdown.poll(self.connection).map(|()| End::Done);
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let Self { services, connection, session, socket, requests, .. } = self;
        socket.poll_read(cx, session, |event| match event {
            Event::Reset(slot) => requests.end(slot),
            Event::Request { key, head, ended, is_head } => {
                let (head, length) = match head {
                    Ok((head, length)) => (Ok(head), length),
                    Err(RequestError::Refused(error)) => (Err(error.into()), None),
                    Err(RequestError::TooLarge | RequestError::Malformed) => {
                        (Err(LocalError::HeadTooLarge), None)
                    }
                };
                let body = match ended || head.is_err() {
                    true => RequestBody::None,
                    false => RequestBody::Http2(Http2Body::new(session, key, length)),
                };
                let services = Rc::clone(services);
                let (connection, session) = (Rc::clone(connection), Rc::clone(session));
                let request = StreamRequest { services, connection, session, key, head, is_head, body };
                requests.put(key.slot, request);
            }
        })
    }

    /// After a flood was detected, stops serving the requests that the session has closed.
    fn handle_abort(&mut self) {
        let abort = self.session.borrow_mut().take_abort();
        if let Some((reason, ended)) = abort {
            tracing::debug!(peer = %self.connection.peer, ?reason, "HTTP/2 connection aborted (GOAWAY)");
            self.services.process.metrics.aborts.count(reason);
            ended.into_iter().for_each(|slot| self.requests.end(slot));
        }
    }

    /// Wakes requests whose responses were blocked and have room now. Returns whether there was one.
    fn wake_blocked(&mut self) -> bool {
        let mut any = false;
        self.session.borrow_mut().wake_blocked(|slot| {
            self.requests.wake(slot);
            any = true;
        });
        any
    }
}

/// The graceful shutdown of a connection: GOAWAY, then the requests in progress, then some time for the client to close it.
#[derive(Default)]
struct GracefulShutdown {
    begun: bool,
    /// When the connection is closed if no request arrives, in the worker's milliseconds.
    ends_at: Option<u64>,
}

impl GracefulShutdown {
    /// Whether the shutdown begins now: the connection was idle for too long, or the listener closes.
    fn begins(&mut self, connection: &Connection) -> bool {
        let idle = connection.is_idle() && connection.deadline.socket_passed();
        let begins = !self.begun && (connection.deadline.take_closing() || idle);
        self.begun |= begins;
        if begins {
            let reason = if idle { "no request arrived within the idle timeout" } else { "draining" };
            tracing::debug!(peer = %connection.peer, reason, "HTTP/2 connection is asked to end (GOAWAY)");
        }
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
                let at = deadlines.after(SHUTDOWN_GRACE);
                self.ends_at = Some(at);
                connection.deadline.set_socket(Some(at));
            }
        }
        Poll::Pending
    }
}
