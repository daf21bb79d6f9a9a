//! One request to one server of an upstream.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};

use super::balance::turns;
use super::body::{Body, RequestBody};
use super::connect::connector;
use super::server::{Server, ask, send};
use super::{Exchange, ForwardError, headers, proxy, tunnel};
use crate::auth::Told;
use crate::config::{Protocol, UpstreamConfig};
use crate::listen::{Connection, Inbound};
use crate::observe::{UpstreamOutcome, UpstreamStripe};
use crate::respond;
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

impl Upstream {
    /// An upstream without connections.
    pub fn new(config: UpstreamConfig, stripe: Arc<UpstreamStripe>) -> Self {
        let connector = connector(&config);
        let server = |server| Server::new(server, &config, connector.as_ref());
        let servers = config.servers.iter().map(server).collect();
        let weights: Vec<u32> = config.servers.iter().map(|server| server.weight).collect();
        Self { servers, turns: turns(&weights), next: Cell::new(0), stripe, config }
    }

    /// Drops kept connections that are old or closed. `now` is the worker's milliseconds.
    pub fn reap(&self, now: u64) {
        for server in &self.servers {
            server.reap(now, self.config.idle);
        }
    }

    fn choose(&self) -> &Server {
        let turn = self.next.get();
        self.next.set((turn + 1) % self.turns.len());
        &self.servers[self.turns[turn]]
    }
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
    body: Inbound,
) -> Result<Response<Body>, ForwardError> {
    let announced = http_body::Body::size_hint(&body).exact();
    if route.max_body.zip(announced).is_some_and(|(max, length)| length > max) {
        respond::drain(body, &parts);
        return Err(ForwardError::TooLarge);
    }
    let config = &upstream.config;
    let server = upstream.choose();
    let has_body = !http_body::Body::is_end_stream(&body);
    let preamble = config.proxy_protocol.map_or_else(proxy::Header::new, |version| {
        let (client, to) = exchange.ends(&parts.headers);
        proxy::header(version, client, to)
    });
    let may_switch = !has_body && !connection.shared && config.protocol == Protocol::Http1;
    let wanted = if may_switch { tunnel::wanted(&parts) } else { None };
    exchange.set_id(prepare(connection, &mut parts, server, has_body, exchange.trusts_peer()));
    if let Some(told) = consumer {
        headers::tell_consumer(connection, &mut parts.headers, told);
    }
    if let Some(wanted) = &wanted {
        tunnel::say(&mut parts.headers, wanted.clone());
    }
    exchange.set_idle(config.idle);
    let (body, upload) = RequestBody::new(body, route.max_body, exchange, &parts.headers, config);

    let result = match &upload {
        None => ask(server, config, exchange, connection, &parts, wanted.as_ref(), &preamble).await,
        Some(upload) => {
            let mut request = Some(Request::from_parts(parts, body));
            send(server, config, exchange, connection, &mut request, upload, &preamble).await
        }
    };
    let spent = connection.worker.clock().now().since(exchange.released());
    let outcome = result.as_ref().map_or_else(ForwardError::outcome, |_| UpstreamOutcome::Answered);
    upstream.stripe.finish(outcome, spent);
    let mut response = result?;
    headers::strip_hop_by_hop(response.headers_mut());
    if let Some(wanted) = wanted.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS) {
        tunnel::say(response.headers_mut(), wanted);
    }
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
        if let Ok(host) = HeaderValue::from_str(&server.address.authority) {
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
