//! One server of an upstream: connections to it, and one request on one of them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::body::{Body, Forwarded, RequestBody, Returning, Upload};
use super::framing::Framing;
use super::pool::Pool;
use super::wire::{Wire, WireError};
use super::{Exchange, ForwardError};
use crate::config::UpstreamConfig;
use crate::listen::Connection;

/// A server as one worker sees it.
pub(super) struct Server {
    /// HOST:PORT as the file has it.
    pub(super) authority: String,
    /// Where it is.
    address: SocketAddr,
    /// For requests without a body.
    pub(super) wires: Rc<Pool<Wire>>,
    /// For requests with one.
    pub(super) senders: Rc<Pool<SendRequest<RequestBody>>>,
}

impl Server {
    /// A server without connections.
    pub(super) fn new(authority: &str, address: SocketAddr) -> Self {
        Self {
            authority: authority.to_owned(),
            address,
            wires: Rc::new(Pool::new()),
            senders: Rc::new(Pool::new()),
        }
    }

    /// Drops kept connections that are old or closed. `now` is the worker's milliseconds.
    pub(super) fn reap(&self, now: u64, idle: Duration) {
        self.wires.reap(now, idle, Wire::is_silent);
        self.senders.reap(now, idle, |sender| !sender.is_closed());
    }
}

/// Sends a request without a body and waits for the head of its answer.
///
/// A kept connection may die as it is used. What does the same when it is done twice is then sent again, on a new
/// one, if no byte of an answer had come.
pub(super) async fn ask(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    parts: &Parts,
) -> Result<Response<Body>, ForwardError> {
    let mut kept = std::iter::from_fn(|| server.wires.take()).find(Wire::is_silent);
    loop {
        let again = kept.is_some() && parts.method.is_idempotent();
        let mut wire = match kept.take() {
            Some(wire) => wire,
            None => Wire::new(connect(server, config.connect).await?),
        };
        match exchange.in_time(config.response, wire.ask(parts)).await {
            None => return Err(ForwardError::ResponseTimeout),
            Some(Ok(mut answer)) => {
                let now = connection.worker.deadlines.now();
                let body = Body::wired(&mut answer, wire, Rc::clone(&server.wires), now);
                return Ok(Response::from_parts(answer.head, body));
            }
            Some(Err(WireError::Nothing(_))) if again => {}
            Some(Err(error @ WireError::Nothing(_))) => return Err(ForwardError::Unanswered(error.into())),
            Some(Err(error)) => return Err(ForwardError::Broken(error.into())),
        }
    }
}

/// Sends a request with a body and waits for the head of its answer. What was never sent on a kept connection
/// that had died is sent on a new one. A request that is never sent at all stays in `unsent`.
pub(super) async fn send(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    unsent: &mut Option<Request<RequestBody>>,
    upload: &Rc<Upload>,
) -> Result<Response<Body>, ForwardError> {
    let mut kept = None;
    while let Some(mut sender) = server.senders.take() {
        if sender.ready().await.is_ok() {
            kept = Some(sender);
            break;
        }
    }
    loop {
        let is_kept = kept.is_some();
        let mut sender = match kept.take() {
            Some(sender) => sender,
            None => handshake(server, config.connect).await?,
        };
        let Some(request) = unsent.take() else { return Err(ForwardError::ClientBroken) };
        let method = request.method().clone();
        let mut failed = match exchange.in_time(config.response, sender.try_send_request(request)).await {
            None => return Err(too_late(upload)),
            Some(Ok(response)) => {
                upload.answered.set(true);
                let now = connection.worker.deadlines.now();
                let (mut head, body) = response.into_parts();
                // The same strictness as on a connection of our own; hyper undoes more than it says.
                Framing::of(&mut head, &method).map_err(|what| ForwardError::Broken(what.into()))?;
                let upload = Some(Rc::clone(upload));
                let returning = Returning { sender, pool: Rc::clone(&server.senders), now, upload };
                let forwarded = Forwarded { body, connection: Some(returning) };
                return Ok(Response::from_parts(head, Body::forwarded(forwarded)));
            }
            Some(Err(failed)) => failed,
        };
        match failed.take_message().filter(|_| is_kept) {
            Some(request) => *unsent = Some(request),
            None => return Err(broken(failed.into_error(), upload)),
        }
    }
}

/// A new connection.
pub(super) async fn connect(server: &Server, within: Duration) -> Result<TcpStream, ForwardError> {
    let connecting = tokio::time::timeout(within, TcpStream::connect(server.address));
    let stream =
        connecting.await.map_err(|_| ForwardError::ConnectTimeout)?.map_err(ForwardError::Connect)?;
    let _ = stream.set_nodelay(true); // a latency matter only
    Ok(stream)
}

/// A new connection for hyper's client.
async fn handshake(server: &Server, within: Duration) -> Result<SendRequest<RequestBody>, ForwardError> {
    let stream = connect(server, within).await?;
    let (sender, connection) = http1::Builder::new()
        .writev(false)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ForwardError::Broken(error.into()))?;
    tokio::task::spawn_local(async move {
        // Whoever uses the connection is told of its errors; a kept one that ends is found closed.
        let _ = connection.await;
    });
    Ok(sender)
}

fn too_late(upload: &Upload) -> ForwardError {
    match upload.waiting.get() {
        true => ForwardError::ClientSlow,
        false => ForwardError::ResponseTimeout,
    }
}

fn broken(error: hyper::Error, upload: &Upload) -> ForwardError {
    match (upload.too_large.get(), upload.broken.get()) {
        (true, _) => ForwardError::TooLarge,
        (_, true) => ForwardError::ClientBroken,
        _ => ForwardError::Broken(error.into()),
    }
}
