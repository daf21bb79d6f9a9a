//! HTTP/2 connections to a server: a few per worker, each shared by many requests.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::sync::Notify;

use super::ForwardError;
use super::connect::{Address, ServerStream, socket};
use super::error::error_chain;
use super::upload::{Upload, UploadBody};

/// The most concurrent requests on one connection, if the server allows as many.
const STREAMS: usize = 100;
/// The most connections of one worker to one server. Further requests wait on the least loaded one.
const MAX_CONNECTIONS: usize = 16;
/// The receive windows of a stream and of the connection in bytes. The latter is the sum of the former for all streams, so that
/// a client that does not read its response does not block others.
const WINDOW: (u32, u32) = (128 << 10, (128 << 10) * STREAMS as u32);
/// The send buffer of one request, in bytes.
const SEND_BUFFER: usize = 64 << 10;
/// SETTINGS_MAX_HEADER_LIST_SIZE, in bytes. Above it only the stream fails. The library ends the whole connection if a header list has more
/// CONTINUATION frames than a list of this size and a quarter needs (320), so it is far above `max_head` of an upstream
/// (1 MiB at most). The library keeps as many bytes of each list, so it is not higher.
const MAX_HEADER_LIST: u32 = 4 << 20;
/// The most streams that were reset by us and are remembered, because frames for them may still arrive.
const RESETS: usize = 1 << 10;
/// The limit of concurrent streams that is assumed before the server has sent its SETTINGS.
const MAX_STREAMS_UNKNOWN: usize = STREAMS + 1;
/// How long the kernel retransmits data that a server does not acknowledge.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval of keepalive PINGs while streams are open, and the timeout for their answers. gRPC servers treat more than one
/// PING in five minutes as an attack.
const PING: (Duration, Duration) = (Duration::from_secs(310), Duration::from_secs(20));

type Driver = http2::Connection<TokioIo<ServerStream>, UploadBody, LocalExecutor>;

/// The connections of one worker to one server.
pub(super) struct H2Pool {
    address: Rc<Address>,
    connections: RefCell<Vec<Rc<H2Connection>>>,
    /// The connection that is being established; all requests without a connection wait for it.
    pending: RefCell<Option<Rc<PendingConnect>>>,
}

/// A connection.
struct H2Connection {
    sender: SendRequest<UploadBody>,
    /// `None` once the connection has ended. Dropping it fails the requests that were not sent.
    driver: Rc<RefCell<Option<Driver>>>,
    streams: Cell<usize>,
    /// The times of the last data from the server and of the last end of a stream, in the worker's milliseconds.
    last_read: Cell<u64>,
    last_used: Cell<u64>,
    /// Whether a response was received on it.
    has_answered: Cell<bool>,
}

/// A pending connection.
#[derive(Default)]
struct PendingConnect {
    done: Notify,
    result: OnceCell<Result<(), ForwardError>>,
}

/// The right to open one stream on a connection, released on drop.
pub(super) struct Stream {
    connection: Rc<H2Connection>,
    pool: Rc<H2Pool>,
    opened_at: u64,
    /// The time of the last data on this stream, in the worker's milliseconds.
    now: Cell<u64>,
    /// The request body, which is cancelled when the response has ended.
    upload: Option<Rc<Upload>>,
}

impl H2Pool {
    /// A pool without connections.
    pub(super) fn new(address: &Rc<Address>) -> Self {
        Self { address: Rc::clone(address), connections: RefCell::default(), pending: RefCell::default() }
    }

    /// Opens a stream, on a new connection if necessary. `now` is in the worker's milliseconds.
    pub(super) async fn open_stream(self: &Rc<Self>, now: u64) -> Result<Stream, ForwardError> {
        loop {
            if let Some(connection) = self.with_capacity() {
                connection.streams.set(connection.streams.get() + 1);
                let pool = Rc::clone(self);
                return Ok(Stream { connection, pool, opened_at: now, now: Cell::new(now), upload: None });
            }
            let pending = self.pending_connect(now);
            let done = pending.done.notified();
            if pending.result.get().is_none() {
                done.await;
            }
            if let Some(Err(error)) = pending.result.get() {
                return Err(error.duplicate());
            }
        }
    }

    /// The first connection with room for a stream, so that the others become idle and are closed.
    fn with_capacity(&self) -> Option<Rc<H2Connection>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_open());
        let free = connections.iter().find(|connection| connection.streams.get() < connection.max_streams());
        let any = || {
            connections
                .iter()
                .filter(|_| connections.len() >= MAX_CONNECTIONS)
                .min_by_key(|connection| connection.streams.get())
        };
        free.or_else(any).map(Rc::clone)
    }

    fn pending_connect(self: &Rc<Self>, now: u64) -> Rc<PendingConnect> {
        let mut current = self.pending.borrow_mut();
        if let Some(pending) = &*current {
            return Rc::clone(pending);
        }
        let pending = Rc::new(PendingConnect::default());
        *current = Some(Rc::clone(&pending));
        // A task of its own: other requests wait for the connection too, if the first client disconnects.
        let guard = PendingConnectGuard { pool: Rc::clone(self), pending: Rc::clone(&pending) };
        sluicegate_base::boxed_future::spawn_local(async move {
            let made = guard.pool.address.with_connect_timeout(connect(&guard.pool.address, now)).await;
            let _ = guard.pending.result.set(made.map(|made| guard.pool.connections.borrow_mut().push(made)));
        });
        pending
    }

    /// Drops connections that are closed, or were not used for `idle`. `now` is in the worker's milliseconds.
    pub(super) fn reap(&self, now: u64, idle: Duration) {
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        self.connections.borrow_mut().retain(|connection| {
            connection.is_open()
                && (connection.streams.get() > 0 || now.saturating_sub(connection.last_used.get()) < idle)
        });
    }
}

/// Establishes a connection and waits for the SETTINGS of the server, so that a server that does not speak HTTP/2 is detected
/// before a request is sent.
async fn connect(address: &Address, now: u64) -> Result<Rc<H2Connection>, ForwardError> {
    let stream = address.connect(&[]).await?;
    // A server that is gone without closing would block all requests of the connection.
    let _ = SockRef::from(socket(&stream)).set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    let waker: Rc<RefCell<Option<Waker>>> = Rc::default();
    let (sender, mut driver) = http2::Builder::new(LocalExecutor(Rc::clone(&waker)))
        .initial_stream_window_size(WINDOW.0)
        .initial_connection_window_size(WINDOW.1)
        .initial_max_send_streams(MAX_STREAMS_UNKNOWN)
        .max_send_buf_size(SEND_BUFFER)
        // Resets because of clients that disconnect must not end the connection.
        .max_local_error_reset_streams(None)
        .max_concurrent_reset_streams(RESETS)
        .max_header_list_size(MAX_HEADER_LIST)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ForwardError::Handshake(error.into()))?;
    poll_fn(|cx| {
        *waker.borrow_mut() = Some(cx.waker().clone());
        match Pin::new(&mut driver).poll(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(ForwardError::Handshake(error.into()))),
            Poll::Ready(Ok(())) => {
                Poll::Ready(Err(ForwardError::Handshake("the server does not speak HTTP/2".into())))
            }
            Poll::Pending if driver.current_max_send_streams() == MAX_STREAMS_UNKNOWN => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(())),
        }
    })
    .await?;
    waker.take();
    let driver = Rc::new(RefCell::new(Some(driver)));
    let driven = Rc::clone(&driver);
    sluicegate_base::boxed_future::spawn_local(async move {
        poll_fn(|cx| match &mut *driven.borrow_mut() {
            // Errors surface through the senders.
            Some(driver) => Pin::new(driver).poll(cx).map(|ended| match ended {
                Ok(()) => tracing::debug!("an HTTP/2 upstream connection ended"),
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), "an HTTP/2 upstream connection failed");
                }
            }),
            None => Poll::Ready(()),
        })
        .await;
        let ended = driven.take();
        drop(ended); // fails the requests that were not sent, which are then sent on another connection
    });
    Ok(Rc::new(H2Connection {
        sender,
        driver,
        streams: Cell::new(0),
        last_read: Cell::new(now),
        last_used: Cell::new(now),
        has_answered: Cell::new(false),
    }))
}

impl H2Connection {
    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Streams that the server allows at once.
    fn max_streams(&self) -> usize {
        self.driver.borrow().as_ref().map_or(0, |driver| driver.current_max_send_streams().min(STREAMS))
    }
}

impl Stream {
    /// The sender for the request.
    pub(super) fn sender(&self) -> SendRequest<UploadBody> {
        self.connection.sender.clone()
    }

    /// Whether a response was received on the connection before.
    pub(super) fn is_reused(&self) -> bool {
        self.connection.has_answered.get()
    }

    /// Sets the request body to be cancelled when this is dropped.
    pub(super) fn set_upload(&mut self, upload: &Rc<Upload>) {
        self.upload = Some(Rc::clone(upload));
    }

    /// Data arrived from the server at `now`.
    pub(super) fn note_read(&self, now: u64) {
        self.connection.has_answered.set(true);
        self.connection.last_read.set(now);
        self.now.set(now);
    }

    /// The response timed out. If nothing at all arrived on the connection meanwhile, it gets no further requests: the server
    /// may be gone.
    pub(super) fn note_timeout(&self) {
        if self.connection.last_read.get() <= self.opened_at {
            self.retire();
        }
    }

    /// Stops the use of this connection for further requests.
    pub(super) fn retire(&self) {
        self.pool.connections.borrow_mut().retain(|connection| !Rc::ptr_eq(connection, &self.connection));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.streams.set(self.connection.streams.get() - 1);
        self.connection.last_used.set(self.connection.last_used.get().max(self.now.get()));
        if let Some(upload) = &self.upload {
            upload.cancel();
        }
    }
}

/// Completes a pending connection, also if its task panics.
struct PendingConnectGuard {
    pool: Rc<H2Pool>,
    pending: Rc<PendingConnect>,
}

impl Drop for PendingConnectGuard {
    fn drop(&mut self) {
        let _ = self.pending.result.set(Err(ForwardError::ConnectTimeout)); // has no effect if there is a result
        self.pool.pending.take();
        self.pending.done.notify_waiters();
    }
}

/// Spawns the tasks of hyper on the present thread. While the connection is being established, wakes the task that waits for it
/// after each poll.
#[derive(Clone)]
struct LocalExecutor(Rc<RefCell<Option<Waker>>>);

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        let waiting = Rc::clone(&self.0);
        sluicegate_base::boxed_future::spawn_local(async move {
            let mut future = pin!(future);
            poll_fn(|cx| {
                let polled = future.as_mut().poll(cx);
                if let Some(waker) = &*waiting.borrow() {
                    waker.wake_by_ref();
                }
                polled
            })
            .await;
        });
    }
}
