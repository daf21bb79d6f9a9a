//! One server of an upstream: connections to it, and one request on one of them.

use std::error::Error;
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
use crate::boxed_future::boxed_future;
use sluicegate_config::{Protocol, UpstreamConfig};
use sluicegate_wire::RequestHead;

/// A server as one worker sees it.
pub(super) struct Server {
    /// Where it is.
    pub(super) address: Rc<Address>,
    /// Its reused connections, where it speaks HTTP/1.1.
    pool: Rc<Pool>,
    /// Its connections, where it speaks HTTP/2.
    h2_pool: Option<Rc<H2Pool>>,
}

impl Server {
    /// A server without connections. The connector is that of its upstream.
    pub(super) fn new(
        endpoint: &Arc<EndpointState>,
        upstream: &UpstreamState,
        connector: Option<&TlsConnector>,
    ) -> Self {
        let config = &upstream.config;
        let address = Rc::new(Address::new((&endpoint.authority, endpoint.address), upstream, connector));
        let h2_pool = (config.protocol == Protocol::Http2).then(|| Rc::new(H2Pool::new(&address)));
        Self { address, pool: Rc::new(Pool::new(endpoint, upstream)), h2_pool }
    }

    /// Whether it is spoken to as `upstream` says.
    pub(super) fn connects_as(&self, upstream: &UpstreamState) -> bool {
        self.address.connects_as(upstream)
    }

    /// Drops reused connections that are old or closed. `now` is the worker's milliseconds.
    pub(super) fn reap(&self, now: u64, idle: Duration) {
        self.pool.reap(now, idle);
        if let Some(h2_pool) = &self.h2_pool {
            h2_pool.reap(now, idle);
        }
    }

    /// Asks a request of the gateway's own, and says with which status it is answered.
    pub(super) async fn probe(
        &self,
        request: &RequestHead,
        preamble: &[u8],
    ) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
        if let Some(h2_pool) = &self.h2_pool {
            return h2_client::probe((self, h2_pool), request).await;
        }
        let mut h1_connection = H1Connection::new(self.address.connect(preamble).await?);
        Ok(h1_connection.send_request(&mut Outgoing::without_body(request), None).await?.status)
    }
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn send_request(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    match &server.h2_pool {
        Some(h2_pool) => {
            boxed_future(|| h2_client::send_request((server, h2_pool), config, exchange, outgoing)).await
        }
        None => send_h1_request(server, config, exchange, outgoing).await,
    }
}

/// Sends a request on a connection that is its own until its answer has ended. A new connection begins with the preamble
/// of the request; with one, no connection is used twice.
///
/// A reused connection may die as it is used. A request that can be repeated is then sent again, on a new one, if no byte
/// of an answer had come.
async fn send_h1_request(
    server: &Server,
    config: &UpstreamConfig,
    exchange: &Exchange,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    let connection = exchange.connection();
    let now = connection.worker.deadlines.now();
    let is_exclusive = !outgoing.preamble.is_empty();
    let mut reused = if is_exclusive { None } else { server.pool.take(now) };
    loop {
        let is_reused = reused.is_some();
        let mut h1_connection = match reused.take() {
            Some(h1_connection) => h1_connection,
            None => H1Connection::new(boxed_future(|| server.address.connect(&outgoing.preamble)).await?),
        };
        let error = match exchange
            .with_timeout(config.response, h1_connection.send_request(outgoing, Some(connection)))
            .await
        {
            None => return Err(outgoing.timeout()),
            Some(Ok(mut answer)) => {
                if let Some(upload) = &outgoing.upload {
                    upload.set_answered();
                }
                answer.keep_alive &= !is_exclusive;
                let now = connection.worker.deadlines.now();
                let body = match answer.upgraded {
                    true => Body::switched(h1_connection, config.tunnel),
                    false => Body::h1_body(&mut answer, h1_connection, Rc::clone(&server.pool), now),
                };
                return Ok(Response { status: answer.status, headers: answer.headers, body });
            }
            Some(Err(error)) => error,
        };
        let is_unanswered = matches!(error, H1Error::NoResponse(_));
        if is_unanswered && is_reused && outgoing.is_repeatable() {
            let (request, server) = (exchange.id().as_str(), &server.address.authority);
            tracing::debug!(
                request,
                server,
                "a reused upstream connection had ended; sent again on a new one"
            );
        } else {
            return Err(match outgoing.client_error() {
                Some(fault) => fault,
                None if is_unanswered => ForwardError::Unanswered(error.into()),
                None => ForwardError::Broken(error.into()),
            });
        }
    }
}
