//! One server of an upstream: connections to it, and one request on one of them.

use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsConnector;

use super::body::{Body, Forwarded, Kept, Returning};
use super::connect::Address;
use super::framing::Framing;
use super::lines::Lines;
use super::pool::Pool;
use super::upload::{RequestBody, Upload};
use super::wire::{Wire, WireError};
use super::{Exchange, ForwardError, multiplexed};
use crate::apart::apart;
use crate::config::{Protocol, UpstreamConfig};
use crate::fields::Fields;
use crate::listen::Connection;
use crate::message::{RequestHead, Response};

/// What is kept of a body on its way, and the longest head of an answer, as on connections of our own. More would only be
/// memory.
const BUFFERED: usize = 64 << 10;

/// A server as one worker sees it.
pub(super) struct Server {
    /// Where it is.
    pub(super) address: Rc<Address>,
    /// For requests without a body.
    wires: Rc<Pool<Wire>>,
    /// For requests with one.
    senders: Rc<Pool<SendRequest<RequestBody>>>,
    /// For all of them, where it speaks HTTP/2.
    lines: Option<Rc<Lines>>,
}

impl Server {
    /// A server without connections: what the file calls it, and where it is. The connector is that of its upstream.
    pub(super) fn new(
        (authority, address): (&str, SocketAddr),
        config: &UpstreamConfig,
        connector: Option<&TlsConnector>,
    ) -> Self {
        let address = Rc::new(Address::new((authority, address), config, connector));
        let lines = (config.protocol == Protocol::Http2).then(|| Rc::new(Lines::new(&address)));
        Self { address, wires: Rc::new(Pool::new()), senders: Rc::new(Pool::new()), lines }
    }

    /// Whether it is spoken to as `config` says.
    pub(super) fn speaks_as(&self, config: &UpstreamConfig) -> bool {
        self.address.is_as(config)
    }

    /// Drops kept connections that are old or closed. `now` is the worker's milliseconds.
    pub(super) fn reap(&self, now: u64, idle: Duration) {
        self.wires.reap(now, idle, Wire::is_silent);
        self.senders.reap(now, idle, |sender| !sender.is_closed());
        if let Some(lines) = &self.lines {
            lines.reap(now, idle);
        }
    }

    /// Asks a question of the gateway's own, and says with which status it is answered.
    pub(super) async fn probe(
        &self,
        question: &RequestHead,
        preamble: &[u8],
    ) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
        if let Some(lines) = &self.lines {
            return multiplexed::probe((self, lines), question).await;
        }
        let mut wire = Wire::new(self.address.connect(preamble).await?);
        Ok(wire.ask(question, None, None).await?.status)
    }
}

/// Sends a request without a body and waits for the head of its answer. It may ask to switch to the protocol `wanted`,
/// where the server speaks HTTP/1.1. A new connection begins with `preamble`; with one, no connection is used twice.
///
/// A kept connection may die as it is used. What does the same when it is done twice is then sent again, on a new
/// one, if no byte of an answer had come.
pub(super) async fn ask(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    parts: &RequestHead,
    wanted: Option<&[u8]>,
    preamble: &[u8],
) -> Result<Response, ForwardError> {
    match &server.lines {
        Some(lines) => apart(|| multiplexed::ask((server, lines), config, exchange, connection, parts)).await,
        None => ask_alone(server, config, exchange, connection, parts, wanted, preamble).await,
    }
}

/// The same with a body. What was never sent on a kept connection that had died is sent on a new one. A request that is
/// never sent at all stays in `unsent`.
pub(super) async fn send(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    unsent: &mut Option<Request<RequestBody>>,
    upload: &Rc<Upload>,
    preamble: &[u8],
) -> Result<Response, ForwardError> {
    match &server.lines {
        Some(lines) => multiplexed::send((server, lines), config, exchange, connection, unsent, upload).await,
        None => send_alone(server, config, exchange, connection, unsent, upload, preamble).await,
    }
}

/// Sends a request on a connection that is its own until its answer has ended.
async fn ask_alone(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    parts: &RequestHead,
    wanted: Option<&[u8]>,
    preamble: &[u8],
) -> Result<Response, ForwardError> {
    let pooled = || server.wires.take().filter(|_| preamble.is_empty());
    let mut kept = std::iter::from_fn(pooled).find_map(|mut wire| wire.is_silent().then_some(wire));
    loop {
        let again = kept.is_some() && parts.method.is_idempotent();
        let mut wire = match kept.take() {
            Some(wire) => wire,
            None => Wire::new(apart(|| server.address.connect(preamble)).await?),
        };
        match exchange.in_time(config.response, wire.ask(parts, wanted, Some(connection))).await {
            None => return Err(ForwardError::ResponseTimeout),
            Some(Ok(mut answer)) => {
                answer.keeps &= preamble.is_empty();
                let now = connection.worker.deadlines.now();
                let body = match answer.switched {
                    true => Body::switched(wire, config.tunnel),
                    false => Body::wired(&mut answer, wire, Rc::clone(&server.wires), now),
                };
                return Ok(Response { status: answer.status, headers: answer.headers, body });
            }
            Some(Err(WireError::Nothing(_))) if again => {}
            Some(Err(error @ WireError::Nothing(_))) => return Err(ForwardError::Unanswered(error.into())),
            Some(Err(error)) => return Err(ForwardError::Broken(error.into())),
        }
    }
}

/// Sends a request with a body on a connection that is its own until its answer has ended.
async fn send_alone(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    unsent: &mut Option<Request<RequestBody>>,
    upload: &Rc<Upload>,
    preamble: &[u8],
) -> Result<Response, ForwardError> {
    let mut kept = None;
    while let Some(mut sender) = server.senders.take().filter(|_| preamble.is_empty()) {
        if sender.ready().await.is_ok() {
            kept = Some(sender);
            break;
        }
    }
    loop {
        let is_kept = kept.is_some();
        let mut sender = match kept.take() {
            Some(sender) => sender,
            None => handshake(server, preamble).await?,
        };
        let Some(mut request) = unsent.take() else { return Err(ForwardError::ClientBroken) };
        if http_body::Body::size_hint(request.body()).exact().is_none() {
            // Said in so many words: without them hyper leaves out the body of a GET.
            let chunked = HeaderValue::from_static("chunked");
            request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
        }
        let method = request.method().clone();
        let mut failed = match exchange.in_time(config.response, sender.try_send_request(request)).await {
            None => return Err(too_late(upload)),
            Some(Ok(response)) => {
                upload.answered.set(true);
                let now = connection.worker.deadlines.now();
                let (head, body) = response.into_parts();
                if head.status == StatusCode::SWITCHING_PROTOCOLS {
                    return Err(ForwardError::Broken("the protocol was switched unasked".into()));
                }
                // The same strictness as on a connection of our own; hyper undoes more than it says.
                let mut headers = Fields::from(&head.headers);
                let framing = Framing::of(head.status, &mut headers, &method);
                framing.map_err(|what| ForwardError::Broken(what.into()))?;
                let upload = Some(Rc::clone(upload));
                let pool = Rc::clone(&server.senders);
                let pool = preamble.is_empty().then_some(pool);
                let returning = Returning::Kept(Kept { sender, pool, now, upload });
                let forwarded = Forwarded { body, connection: Some(returning) };
                return Ok(Response { status: head.status, headers, body: Body::forwarded(forwarded) });
            }
            Some(Err(failed)) => failed,
        };
        match failed.take_message().filter(|_| is_kept) {
            Some(request) => *unsent = Some(request),
            None => return Err(broken(failed.into_error(), upload)),
        }
    }
}

/// A new connection for hyper's client.
async fn handshake(server: &Server, preamble: &[u8]) -> Result<SendRequest<RequestBody>, ForwardError> {
    let stream = server.address.connect(preamble).await?;
    let (sender, connection) = http1::Builder::new()
        .writev(false)
        .max_buf_size(BUFFERED)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ForwardError::Broken(error.into()))?;
    tokio::task::spawn_local(async move {
        // Whoever uses the connection is told of its errors; a kept one that ends is found closed.
        let _ = connection.await;
    });
    Ok(sender)
}

pub(super) fn too_late(upload: &Upload) -> ForwardError {
    match upload.waiting.get() {
        true => ForwardError::ClientSlow,
        false => ForwardError::ResponseTimeout,
    }
}

pub(super) fn broken(error: hyper::Error, upload: &Upload) -> ForwardError {
    match () {
        () if upload.too_large.get() => ForwardError::TooLarge,
        () if upload.slow.get() => ForwardError::ClientSlow,
        () if upload.broken.get() => ForwardError::ClientBroken,
        () => ForwardError::Broken(error.into()),
    }
}
