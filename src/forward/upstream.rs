//! One request to one server of an upstream.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Exchange;
use super::body::{Body, Forwarded, RequestBody, Returning, Upload};
use super::framing::Framing;
use super::headers;
use super::pool::Pool;
use super::wire::{Wire, WireError};
use crate::auth::Told;
use crate::config::UpstreamConfig;
use crate::listen::Connection;
use crate::observe::{UpstreamOutcome, UpstreamStripe};
use crate::respond::{self, LocalError};
use crate::snapshot::Route;

/// An upstream as one worker sees it.
pub struct Upstream {
    /// What the file says.
    pub config: UpstreamConfig,
    servers: Vec<Server>,
    /// Indices into `servers`, each as often as its weight says, spread out.
    turns: Vec<usize>,
    next: Cell<usize>,
    stripe: Arc<UpstreamStripe>,
}

struct Server {
    authority: String,
    /// For requests without a body.
    wires: Rc<Pool<Wire>>,
    /// For requests with one.
    senders: Rc<Pool<SendRequest<RequestBody>>>,
}

/// Why an upstream gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No connection could be made.
    #[error("no connection")]
    Connect(#[source] std::io::Error),
    /// No connection was made in time.
    #[error("no connection in time")]
    ConnectTimeout,
    /// The connection broke, or what came was no HTTP.
    #[error("no answer")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer came in time.
    #[error("no answer in time")]
    ResponseTimeout,
    /// The client's body is longer than allowed.
    #[error("the request's body is too large")]
    TooLarge,
    /// The client's body broke off or was malformed.
    #[error("the request's body did not come whole")]
    ClientBroken,
    /// The client stopped sending its body.
    #[error("the request's body stopped coming")]
    ClientSlow,
}

impl Upstream {
    /// An upstream without connections.
    pub fn new(config: UpstreamConfig, stripe: Arc<UpstreamStripe>) -> Self {
        let server = |authority: &str| Server {
            authority: authority.to_owned(),
            wires: Rc::new(Pool::new()),
            senders: Rc::new(Pool::new()),
        };
        let servers = config.servers.iter().map(|config| server(&config.authority)).collect();
        let weights: Vec<u32> = config.servers.iter().map(|server| server.weight).collect();
        Self { servers, turns: turns(&weights), next: Cell::new(0), stripe, config }
    }

    /// Drops kept connections that are old or closed. `now` is the worker's milliseconds.
    pub fn reap(&self, now: u64) {
        for server in &self.servers {
            server.wires.reap(now, self.config.idle, Wire::is_silent);
            server.senders.reap(now, self.config.idle, |sender| !sender.is_closed());
        }
    }

    fn choose(&self) -> &Server {
        let turn = self.next.get();
        self.next.set((turn + 1) % self.turns.len());
        &self.servers[self.turns[turn]]
    }
}

/// Smooth weighted round robin: 2:1 gives a a b a a b …, spread as evenly as it can be.
fn turns(weights: &[u32]) -> Vec<usize> {
    let common = weights.iter().copied().reduce(gcd).unwrap_or(1).max(1);
    let weights: Vec<i64> = weights.iter().map(|weight| i64::from(weight / common)).collect();
    let total: i64 = weights.iter().sum();
    let mut current = vec![0_i64; weights.len()];
    let mut turns = Vec::new();
    for _ in 0..total {
        current.iter_mut().zip(&weights).for_each(|(current, weight)| *current += weight);
        // The first of the largest.
        let chosen = (0..current.len()).rev().max_by_key(|i| current[*i]).unwrap_or(0);
        current[chosen] -= total;
        turns.push(chosen);
    }
    turns
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Forwards a request and returns the answer's head with a body that streams.
///
/// # Errors
/// When the upstream gave no answer, or the client's body was at fault.
pub async fn forward(
    connection: &Rc<Connection>,
    exchange: &Exchange,
    upstream: &Upstream,
    route: &Route,
    consumer: Option<Told<'_>>,
    mut parts: Parts,
    body: Incoming,
) -> Result<Response<Body>, ForwardError> {
    let announced = http_body::Body::size_hint(&body).exact();
    if route.max_body.zip(announced).is_some_and(|(max, length)| length > max) {
        respond::drain(connection, body, &parts);
        return Err(ForwardError::TooLarge);
    }
    let config = &upstream.config;
    let waits_for_leave = parts.headers.contains_key(header::EXPECT);
    let server = upstream.choose();
    let has_body = !http_body::Body::is_end_stream(&body);
    exchange.set_id(prepare(connection, &mut parts, server, has_body, exchange.trusts_peer()));
    if let Some(told) = consumer {
        headers::tell_consumer(connection, &mut parts.headers, told);
    }
    exchange.set_idle(config.idle);
    let (body, upload) = RequestBody::new(body, route.max_body, waits_for_leave, exchange, config.response);

    let result = match &upload {
        None => ask(server, config, exchange, connection, &parts).await,
        Some(upload) => {
            send(server, config, exchange, connection, Request::from_parts(parts, body), upload).await
        }
    };
    let spent = connection.worker.clock().now().since(exchange.released());
    let outcome = result.as_ref().map_or_else(ForwardError::outcome, |_| UpstreamOutcome::Answered);
    upstream.stripe.finish(outcome, spent);
    let mut response = result?;
    headers::strip_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response)
}

/// The head of the request as HTTP/1.1 in origin form.
fn prepare(
    connection: &Connection,
    parts: &mut Parts,
    server: &Server,
    has_body: bool,
    trusted: bool,
) -> HeaderValue {
    let authority = parts.uri.authority().and_then(|a| HeaderValue::from_str(a.as_str()).ok());
    let host = parts.headers.get(header::HOST).cloned().or(authority);
    let id = headers::request(connection, &mut parts.headers, host, has_body, trusted);
    if !parts.headers.contains_key(header::HOST) {
        // An HTTP/1.0 request that names no host; HTTP/1.1 has to name one.
        if let Ok(host) = HeaderValue::from_str(&server.authority) {
            parts.headers.insert(header::HOST, host);
        }
    }
    if parts.uri.authority().is_some() {
        let path = parts.uri.path_and_query().cloned();
        parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    id
}

/// Sends a request without a body and waits for the head of its answer.
///
/// A kept connection may die as it is used. What does the same when it is done twice is then sent again, on a new
/// one, if no byte of an answer had come.
async fn ask(
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
            Some(Err(error)) => return Err(ForwardError::Broken(error.into())),
        }
    }
}

/// Sends a request with a body and waits for the head of its answer. What was never sent on a kept connection
/// that had died is sent on a new one.
async fn send(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    mut request: Request<RequestBody>,
    upload: &Rc<Upload>,
) -> Result<Response<Body>, ForwardError> {
    let method = request.method().clone();
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
            Some(unsent) => request = unsent,
            None => return Err(broken(failed.into_error(), upload)),
        }
    }
}

/// A new connection.
async fn connect(server: &Server, within: Duration) -> Result<TcpStream, ForwardError> {
    let connecting = tokio::time::timeout(within, TcpStream::connect(server.authority.as_str()));
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

impl ForwardError {
    fn outcome(&self) -> UpstreamOutcome {
        match self {
            Self::Connect(_) => UpstreamOutcome::ConnectFailed,
            Self::ConnectTimeout => UpstreamOutcome::ConnectTimeout,
            Self::Broken(_) => UpstreamOutcome::Broken,
            Self::ResponseTimeout => UpstreamOutcome::ResponseTimeout,
            Self::TooLarge | Self::ClientBroken | Self::ClientSlow => UpstreamOutcome::ClientFailed,
        }
    }

    /// The answer to the client. It tells what failed, never where.
    pub fn response(self, exchange: &Exchange) -> Response<Body> {
        let local = match self {
            Self::Connect(_) | Self::Broken(_) => LocalError::UpstreamFailed,
            Self::ConnectTimeout | Self::ResponseTimeout => LocalError::UpstreamSlow,
            Self::TooLarge => LocalError::TooLarge,
            Self::ClientBroken => LocalError::Malformed("the request's body did not come whole"),
            Self::ClientSlow => LocalError::Slow,
        };
        let mut response = local.response(exchange.id());
        if response.status() == StatusCode::REQUEST_TIMEOUT
            || response.status() == StatusCode::PAYLOAD_TOO_LARGE
        {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_the_weights() {
        assert_eq!(turns(&[1]), [0]);
        assert_eq!(turns(&[1, 1]), [0, 1]);
        assert_eq!(turns(&[2, 1]), [0, 1, 0]);
        assert_eq!(turns(&[200, 100]), [0, 1, 0]);
        assert_eq!(turns(&[5, 1, 1]).iter().filter(|turn| **turn == 0).count(), 5);
    }
}
