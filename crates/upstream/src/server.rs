//! The connections of one worker to an endpoint, and requests on them.

use std::error::Error;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio_rustls::TlsConnector;

use super::body::{Body, Response};
use super::connect::Address;
use super::endpoint_state::EndpointState;
use super::exchange::Exchange;
use super::h1_connection::{H1Connection, H1Error};
use super::h2_pool::H2Pool;
use super::outgoing::Outgoing;
use super::pool::Pool;
use super::upstream_state::UpstreamState;
use super::{ForwardError, h2_client};
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_config::{Protocol, UpstreamConfig};
use sluicegate_wire::headers::NameCase;
use sluicegate_wire::{RequestHead, h1};

/// The connections of one worker to an endpoint.
pub(super) struct Server {
    pub(super) address: Rc<Address>,
    /// Idle HTTP/1.1 connections.
    pool: Rc<Pool>,
    /// HTTP/2 connections, if the upstream is configured for HTTP/2.
    h2_pool: Option<Rc<H2Pool>>,
}

impl Server {
    /// A server without connections. `connector` is that of the upstream.
    pub(super) fn new(
        endpoint: &Arc<EndpointState>,
        upstream: &UpstreamState,
        connector: Option<&TlsConnector>,
    ) -> Self {
        let config = &upstream.config;
        let address = Rc::new(Address::new((&endpoint.authority, &endpoint.address), upstream, connector));
        let h2_pool = (config.protocol == Protocol::Http2).then(|| Rc::new(H2Pool::new(&address)));
        Self { address, pool: Rc::new(Pool::new(endpoint, upstream)), h2_pool }
    }

    /// Whether its connections are established as `upstream` says.
    pub(super) fn connects_as(&self, upstream: &UpstreamState) -> bool {
        self.address.connects_as(upstream)
    }

    /// Drops idle connections that are old or closed. `now` is in the worker's milliseconds.
    pub(super) fn reap(&self, now: u64, idle: Duration) {
        self.pool.reap(now);
        if let Some(h2_pool) = &self.h2_pool {
            h2_pool.reap(now, idle);
        }
    }

    /// Sends a request of the gateway itself, with the names of its headers in this case over HTTP/1.1. Returns the status of its
    /// response.
    pub(super) async fn probe(
        &self,
        request: &RequestHead,
        preamble: &[u8],
        header_case: Option<&NameCase>,
    ) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
        if let Some(h2_pool) = &self.h2_pool {
            return h2_client::probe((&self.address, h2_pool), request).await;
        }
        let mut h1_connection = H1Connection::new(self.address.connect(preamble).await?);
        let mut outgoing = Outgoing { header_case, ..Outgoing::without_body(request) };
        Ok(h1_connection.send_request(&mut outgoing, None).await?.status)
    }
}

/// Sends a request and waits for the head of its response.
pub(super) async fn send_request(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    match &server.h2_pool {
        Some(h2_pool) => {
            boxed_future(|| h2_client::send_request((&server.address, h2_pool), config, exchange, outgoing))
                .await
        }
        None => send_h1_request(server, config, exchange, outgoing).await,
    }
}

/// Sends a request on an HTTP/1.1 connection. A new connection begins with the preamble of the request, if it has one; such a
/// connection is not reused.
///
/// The server may close a reused connection at the moment at which the request is sent. If no byte of a response was received
/// then, a request that may be repeated is sent again on a new connection.
async fn send_h1_request(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    let connection = exchange.connection();
    let now = connection.worker.deadlines.now();
    let is_exclusive = !outgoing.preamble.is_empty();
    let idle = if is_exclusive { None } else { server.pool.take(now) };
    let mut is_reused = idle.is_some();
    let mut h1_connection = match idle {
        Some(h1_connection) => h1_connection,
        None => connect(server, outgoing).await?,
    };
    loop {
        let result = match outgoing.upgrade {
            None => {
                let response = pin!(h1_connection.send_request(outgoing, Some(connection)));
                exchange.with_timeout(config.timeouts.response, response).await
            }
            Some(_) => boxed_future(|| ask_to_switch(exchange, &mut h1_connection, outgoing, config)).await,
        };
        let error = match result {
            None => return Err(outgoing.timeout()),
            Some(Ok(mut response)) => {
                if let Some(upload) = &outgoing.upload {
                    upload.set_answered();
                }
                response.keep_alive &= !is_exclusive;
                let now = connection.worker.deadlines.now();
                let body = match response.upgraded {
                    true => Body::switched(*h1_connection, config.timeouts.tunnel),
                    false => {
                        let kept = kept_millis(config.timeouts.keep_alive, response.keep_alive_seconds);
                        Body::h1_body(&mut response, h1_connection, Rc::clone(&server.pool), (now, kept))
                    }
                };
                return Ok(Response { status: response.status, headers: response.headers, body });
            }
            Some(Err(error)) => error,
        };
        let is_unanswered = matches!(error, H1Error::NoResponse(_));
        if is_unanswered && outgoing.body.is_none() {
            outgoing.body = h1_connection.take_body();
        }
        if is_unanswered && is_reused && outgoing.is_repeatable() {
            let (request, authority) = (exchange.id().as_str(), &server.address.authority);
            tracing::debug!(
                request,
                server = authority,
                "a reused upstream connection had ended; sent again on a new one"
            );
            drop(h1_connection); // frees its file descriptor first
            h1_connection = connect(server, outgoing).await?;
            is_reused = false;
        } else {
            return Err(match outgoing.client_error() {
                Some(fault) => fault,
                None if is_unanswered => ForwardError::Unanswered(error.into()),
                None => ForwardError::Broken(error.into()),
            });
        }
    }
}

/// Sends a request to switch the protocol. If the server agrees, the request is sent to its end.
async fn ask_to_switch(
    exchange: &Exchange,
    h1_connection: &mut H1Connection,
    outgoing: &mut Outgoing<'_>,
    config: &UpstreamConfig,
) -> Option<Result<h1::Response, H1Error>> {
    let response = pin!(async {
        let response = h1_connection.send_request(outgoing, Some(exchange.connection())).await?;
        if response.upgraded {
            h1_connection.finish_upload().await?;
        }
        Ok(response)
    });
    exchange.with_timeout(config.timeouts.response, response).await
}

/// For how many milliseconds a connection is kept without a request: less than the server keeps it, so that it is not closed while a
/// request is on its way. The margin is a second, or half of a shorter time.
fn kept_millis(config: Duration, seconds: Option<u32>) -> u32 {
    let most = u32::try_from(config.as_millis()).unwrap_or(u32::MAX);
    seconds.map_or(most, |seconds| {
        let millis = seconds.saturating_mul(1_000);
        most.min(millis - (millis / 2).min(1_000))
    })
}

/// A new connection, which begins with the preamble of the request.
async fn connect(server: &Server, outgoing: &Outgoing<'_>) -> Result<Box<H1Connection>, ForwardError> {
    let stream = boxed_future(|| server.address.connect(&outgoing.preamble)).await?;
    Ok(H1Connection::new(stream))
}
