//! HTTP/2 connections of clients (RFC 9113): one task each, in which all requests of the connection are served. They end
//! with it.
//!
//! [`Session`] of the wire crate is the connection without its socket: frames in, events and frames out. `socket` reads and
//! writes, `stream_tasks` polls the requests, `answer` serves one of them, `keepalive` checks silent connections.

mod answer;
mod keepalive;
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

use self::answer::Asked;
use self::keepalive::Keepalive;
use self::socket::{End, Socket};
use self::stream_tasks::{SLOTS, StreamTasks};
use crate::client_connection::{ClientStream, Connection, Http2Body, RequestBody};
use crate::request::Services;
use crate::respond::LocalError;

const _: () = assert!(STREAMS <= SLOTS, "each stream has a slot");
/// What is read at once before others have their turn.
const READS: usize = 4;
/// How long a connection without requests stays after its client was told that it ends.
const PARTING: Duration = Duration::from_secs(2);

/// Serves a connection to its end. `prefix` is what was read of it already.
pub(super) async fn serve(
    services: &Rc<Services>,
    connection: &Rc<Connection>,
    stream: ClientStream,
    prefix: Bytes,
) {
    let worker = &connection.worker;
    let view = services.view();
    let config = &view.snapshot.config;
    let limits = HeadLimits { bytes: config.max_head, fields: worker.client().max_headers };
    let session = Session::new(limits, Arc::clone(&view.snapshot.flood_limits), worker.clock().uptime());
    let session = Rc::new(RefCell::new(session));
    drop(view); // it may be replaced long before the connection ends
    let mut task = Task {
        services,
        connection,
        session: &session,
        socket: Socket::new(stream, connection, prefix),
        requests: StreamTasks::default(),
        alive: Keepalive::new(connection),
        parting: Parting::default(),
    };
    poll_fn(|context| {
        task.enter(context);
        let polled = task.poll(context);
        match polled {
            Poll::Ready(end) => {
                connection.log_close(end);
                task.socket.poll_end(
                    context,
                    &mut session.borrow_mut(),
                    end,
                    &services.process.metrics.aborts,
                );
            }
            Poll::Pending => task.exit(),
        }
        polled
    })
    .await;
    drop(task);
    session.borrow_mut().close();
}

/// A connection that is served.
struct Task<'c> {
    services: &'c Rc<Services>,
    connection: &'c Rc<Connection>,
    session: &'c Rc<RefCell<Session>>,
    socket: Socket,
    requests: StreamTasks,
    alive: Keepalive,
    parting: Parting,
}

impl Task<'_> {
    fn enter(&mut self, context: &Context<'_>) {
        self.connection.deadline.set_waker(context);
        self.requests.enter(context);
        let mut session = self.session.borrow_mut();
        session.enter(context);
        session.lend_buffer(|| self.connection.worker.buffers.take_write_buffer());
    }

    /// Until it is polled again it holds what lies unsent, and requests.
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

    /// Does what can be done: until nothing more comes, and nothing more can be sent.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let mut reads = 0;
        loop {
            self.requests.poll();
            if self.alive.is_over(&mut self.session.borrow_mut(), self.socket.heard(), self.connection) {
                tracing::debug!(peer = %self.connection.peer, "the client did not answer a keepalive PING");
                return Poll::Ready(End::Told(Reason::NO_ERROR));
            }
            // Read first: a request that has arrived is served before the connection ends. All that comes at once is
            // answered at once; but who does not take answers is not read.
            let was_full = self.session.borrow().is_full();
            if !was_full && reads < READS {
                match self.poll_read(context) {
                    Poll::Ready(Ok(())) => {
                        reads += 1;
                        self.heed_cut();
                        continue;
                    }
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                    Poll::Pending => {}
                }
            }
            if self.parting.begins(self.connection) {
                self.session.borrow_mut().begin_shutdown();
            }
            if self.wake_waiting() {
                continue;
            }
            let flushed = self.socket.poll_flush(context, &mut self.session.borrow_mut());
            if let Poll::Ready(Err(end)) = flushed {
                return Poll::Ready(end);
            }
            let session = self.session.borrow();
            if flushed.is_ready() && session.is_over() {
                return Poll::Ready(End::Done);
            }
            // There is more room, and so more to do, only if some of it was made.
            let has_room = was_full && !session.is_full();
            if has_room || session.has_blocked() {
                drop(session);
                if self.wake_waiting() || has_room {
                    continue;
                }
            }
            if reads == READS {
                context.waker().wake_by_ref();
            }
            return self.parting.poll(self.connection).map(|()| End::Done);
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        let Self { services, connection, session, socket, requests, .. } = self;
        socket.poll_read(context, session, |event| match event {
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
                requests.put(key.slot, Asked { services, connection, session, key, head, is_head, body });
            }
        })
    }

    /// The client has sent too much of something: what is not to be answered any more is broken off.
    fn heed_cut(&mut self) {
        let abort = self.session.borrow_mut().take_abort();
        if let Some((reason, ended)) = abort {
            tracing::debug!(peer = %self.connection.peer, ?reason, "HTTP/2 connection aborted (GOAWAY)");
            self.services.process.metrics.aborts.count(reason);
            ended.into_iter().for_each(|slot| self.requests.end(slot));
        }
    }

    /// Has answers polled that there is room for now; whether there is one.
    fn wake_waiting(&mut self) -> bool {
        let mut any = false;
        self.session.borrow_mut().wake_blocked(|slot| {
            self.requests.wake(slot);
            any = true;
        });
        any
    }
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
                let at = deadlines.after(PARTING);
                self.ends_at = Some(at);
                connection.deadline.set_socket(Some(at));
            }
        }
        Poll::Pending
    }
}
