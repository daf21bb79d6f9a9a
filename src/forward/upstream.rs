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
use super::body::{Body, Forwarded, RequestBody, Upload};
use super::headers;
use super::pool::{Pool, Returning};
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
    pool: Rc<Pool>,
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
    Broken(#[source] hyper::Error),
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
        let server = |authority: &str| Server { authority: authority.to_owned(), pool: Rc::new(Pool::new()) };
        let servers = config.servers.iter().map(|config| server(&config.authority)).collect();
        let weights: Vec<u32> = config.servers.iter().map(|server| server.weight).collect();
        Self { servers, turns: turns(&weights), next: Cell::new(0), stripe, config }
    }

    /// Drops kept connections that are old or closed. `now` is the worker's milliseconds.
    pub fn reap(&self, now: u64) {
        for server in &self.servers {
            server.pool.reap(now, self.config.idle);
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
    mut parts: Parts,
    body: Incoming,
) -> Result<Response<Body>, ForwardError> {
    let begun = connection.worker.clock().now();
    let announced = http_body::Body::size_hint(&body).exact();
    if route.max_body.zip(announced).is_some_and(|(max, length)| length > max) {
        respond::drain(connection, body, &parts);
        return Err(ForwardError::TooLarge);
    }
    let config = &upstream.config;
    let waits_for_leave = parts.headers.contains_key(header::EXPECT);
    prepare(connection, &mut parts, exchange.trusts_peer());
    exchange.set_idle(config.idle);
    let (body, upload) = RequestBody::new(body, route.max_body, waits_for_leave, exchange, config.response);

    let server = upstream.choose();
    let result = send(server, config, exchange, Request::from_parts(parts, body), upload.as_deref()).await;
    let spent = connection.worker.clock().now().since(begun);
    let (response, sender) = match result {
        Ok(answer) => answer,
        Err(error) => {
            upstream.stripe.finish(error.outcome(), spent);
            return Err(error);
        }
    };
    upstream.stripe.finish(UpstreamOutcome::Answered, spent);

    let (mut head, body) = response.into_parts();
    headers::strip_hop_by_hop(&mut head.headers);
    head.version = Version::HTTP_11;
    let now = connection.worker.deadlines.now();
    let returning = Returning { sender, pool: Rc::clone(&server.pool), now, upload };
    let forwarded = Forwarded { body, connection: Some(returning) };
    Ok(Response::from_parts(head, Body::forwarded(forwarded)))
}

/// The head of the request as HTTP/1.1 in origin form.
fn prepare(connection: &Connection, parts: &mut Parts, trusted: bool) {
    let authority = parts.uri.authority().and_then(|a| HeaderValue::from_str(a.as_str()).ok());
    let host = parts.headers.get(header::HOST).cloned().or(authority);
    headers::request(connection, &mut parts.headers, host, trusted);
    if parts.uri.authority().is_some() {
        let path = parts.uri.path_and_query().cloned();
        parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
}

/// Sends a request on a kept connection or a new one, and waits for the head of the answer.
///
/// A kept connection may die as it is used. What was never sent, or does the same when it is done twice, is then
/// sent again, on a new one.
async fn send(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    mut request: Request<RequestBody>,
    upload: Option<&Upload>,
) -> Result<(Response<Incoming>, SendRequest<RequestBody>), ForwardError> {
    if let Some(mut sender) = server.pool.take().await {
        let repeatable = upload.is_none() && request.method().is_idempotent();
        let copy = repeatable.then(|| copy_head(&request));
        match exchange.in_time(config.response, sender.try_send_request(request)).await {
            None => return Err(too_late(upload)),
            Some(Ok(response)) => return Ok((response, sender)),
            Some(Err(mut failed)) => match failed.take_message().or(copy) {
                Some(again) => request = again,
                None => return Err(broken(failed.into_error(), upload)),
            },
        }
    }
    let mut sender = connect(server, config.connect).await?;
    match exchange.in_time(config.response, sender.send_request(request)).await {
        None => Err(too_late(upload)),
        Some(Ok(response)) => Ok((response, sender)),
        Some(Err(error)) => Err(broken(error, upload)),
    }
}

/// The same request without a body.
fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// A new connection to the server.
async fn connect(server: &Server, within: Duration) -> Result<SendRequest<RequestBody>, ForwardError> {
    let connecting = tokio::time::timeout(within, TcpStream::connect(server.authority.as_str()));
    let stream =
        connecting.await.map_err(|_| ForwardError::ConnectTimeout)?.map_err(ForwardError::Connect)?;
    let _ = stream.set_nodelay(true); // a latency matter only
    let (sender, connection) = http1::Builder::new()
        .writev(false)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(ForwardError::Broken)?;
    tokio::task::spawn_local(async move {
        // Whoever uses the connection is told of its errors; a kept one that ends is found closed.
        let _ = connection.await;
    });
    Ok(sender)
}

fn too_late(upload: Option<&Upload>) -> ForwardError {
    match upload.is_some_and(|upload| upload.waiting.get()) {
        true => ForwardError::ClientSlow,
        false => ForwardError::ResponseTimeout,
    }
}

fn broken(error: hyper::Error, upload: Option<&Upload>) -> ForwardError {
    match upload {
        Some(upload) if upload.too_large.get() => ForwardError::TooLarge,
        Some(upload) if upload.broken.get() => ForwardError::ClientBroken,
        _ => ForwardError::Broken(error),
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
    pub fn response(self, connection: &Connection) -> Response<Body> {
        let local = match self {
            Self::Connect(_) | Self::Broken(_) => LocalError::UpstreamFailed,
            Self::ConnectTimeout | Self::ResponseTimeout => LocalError::UpstreamSlow,
            Self::TooLarge => LocalError::TooLarge,
            Self::ClientBroken => LocalError::Malformed("the request's body did not come whole"),
            Self::ClientSlow => LocalError::Slow,
        };
        let mut response = local.response(connection);
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
