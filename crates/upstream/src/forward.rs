//! Forwards a request to an upstream: prepares it, chooses endpoints, retries where that is safe.

use std::net::SocketAddr;
use std::rc::Rc;

use http::{HeaderName, Method, StatusCode, Version, header};

use super::body::Response;
use super::endpoints::{Tried, Upstream};
use super::exchange::Exchange;
use super::outgoing::Outgoing;
use super::server::send_request;
use super::underscores::Underscores;
use super::upload::UploadBody;
use super::{ForwardError, headers, proxy, tunnel};
use sluicegate_auth::ConsumerHeaders;
use sluicegate_base::incoming::Peer;
use sluicegate_config::Protocol;
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_observe::metrics::UpstreamOutcome;
use sluicegate_wire::{Headers, RequestHead};

/// What the route configures for forwarded requests.
#[derive(Clone, Copy, Debug)]
pub struct ForwardPolicy {
    /// The longest request body in bytes.
    pub max_body: Option<u64>,
    /// Whether headers that ask the upstream for another path or method are forwarded.
    pub overrides: bool,
}

/// The facts about a request that determine how it is forwarded.
pub struct ForwardFacts<'a> {
    /// Where the request comes from.
    pub peer: Peer<'a>,
    /// What the route configures.
    pub policy: ForwardPolicy,
    /// The headers that name the consumer.
    pub consumer: Option<ConsumerHeaders<'a>>,
    /// The hash for consistent balancing.
    pub affinity: Option<u64>,
    /// The address of the listener, if it is known.
    pub listener: Option<SocketAddr>,
    /// The single-address header in which trusted proxies forward the client, if one is configured.
    pub client_header: Option<&'a HeaderName>,
    /// The policy for header names with underscores.
    pub underscores: &'a Underscores,
}

impl ForwardFacts<'_> {
    /// The addresses of the client and of the listener, for a PROXY header. An unknown port is 0, an unknown listener
    /// 0.0.0.0:0.
    fn addresses(&self, peer: SocketAddr) -> (SocketAddr, SocketAddr) {
        // A forwarded address has no port.
        let client = self.peer.client;
        let port = if client == peer.ip().to_canonical() { peer.port() } else { 0 };
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        (SocketAddr::new(client, port), self.listener.unwrap_or(unknown))
    }
}

/// Counts a request in the metrics when it is dropped.
struct Counted<'a> {
    upstream: &'a Upstream,
    exchange: &'a Exchange,
    outcome: UpstreamOutcome,
}

/// The most endpoints that may refuse the connection before a request fails.
const MAX_REFUSED: usize = 8;

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let now = self.exchange.connection().worker.clock().now();
        let outcome = match self.outcome {
            UpstreamOutcome::ClientLeft if self.exchange.is_over() => UpstreamOutcome::ResponseTimeout,
            outcome => outcome,
        };
        self.upstream.metrics.finish(outcome, now.since(self.exchange.released()));
    }
}

/// Forwards a request that was [prepared](prepare) and returns the response with a streaming body.
///
/// # Errors
/// If there is no valid response, or if the request body fails.
pub async fn forward(
    exchange: &Exchange,
    upstream: &Upstream,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    let mut counted = Counted { upstream, exchange, outcome: UpstreamOutcome::ClientLeft };
    let result = attempt(exchange, upstream, outgoing).await;
    counted.outcome = result.as_ref().map_or_else(ForwardError::outcome, |_| UpstreamOutcome::Answered);
    drop(counted);
    let mut response = result?;
    headers::strip_hop_by_hop(&mut response.headers);
    if let Some(upgrade) =
        outgoing.upgrade.as_deref().filter(|_| response.status == StatusCode::SWITCHING_PROTOCOLS)
    {
        tunnel::set_upgrade(&mut response.headers, upgrade);
        exchange.disable_total_timeout();
    }
    Ok(response)
}

/// Prepares the request for the upstream. `header_rules` applies those of the route, after hop-by-hop headers are removed. This
/// is not part of [`forward`], so that its locals are not part of that future.
///
/// # Errors
/// If the request body is longer than the route allows.
pub fn prepare<'a>(
    exchange: &Exchange,
    upstream: &'a Upstream,
    facts: &ForwardFacts<'_>,
    head: &'a mut RequestHead,
    body: RequestBody,
    header_rules: impl FnOnce(&mut Headers),
) -> Result<Outgoing<'a>, ForwardError> {
    let connection = exchange.connection();
    let ForwardFacts { policy, peer: Peer { trusted: trusts_peer, .. }, .. } = *facts;
    let announced = http_body::Body::size_hint(&body).exact();
    if policy.max_body.zip(announced).is_some_and(|(max, length)| length > max) {
        body.drain(head);
        return Err(ForwardError::TooLarge);
    }
    let config = upstream.config();
    let has_body = !http_body::Body::is_end_stream(&body);
    let preamble = config.proxy_protocol.map_or_else(proxy::Header::new, |version| {
        let (client, to) = facts.addresses(connection.peer);
        proxy::header(version, client, to)
    });
    let may_switch = !connection.shared && config.protocol == Protocol::Http1;
    let upgrade = if may_switch { tunnel::requested_upgrade(head) } else { None };
    let authority = config.servers[0].host();
    // Evaluated before TE is removed, which Connection names. Over HTTP/1.1 both would have to be forwarded.
    let trailers = config.protocol == Protocol::Http2 && headers::takes_trailers(&head.headers);
    if let Some(own) = facts.client_header {
        headers::disown_client(&mut head.headers, own, trusts_peer);
    }
    rewrite(connection, head, authority, has_body, trusts_peer, policy.overrides);
    if trailers {
        head.headers.insert(header::TE, "trailers");
    }
    head.headers.insert(headers::X_REQUEST_ID, exchange.id());
    if let Some(consumer) = facts.consumer {
        headers::set_consumer(&mut head.headers, consumer);
    }
    if let Some(upgrade) = &upgrade {
        tunnel::set_upgrade(&mut head.headers, upgrade);
    }
    header_rules(&mut head.headers);
    exchange.set_idle(config.timeouts.idle);
    let (body, upload) = has_body
        .then(|| {
            let keeps = config.retries.all_methods && config.protocol == Protocol::Http1;
            let (terms, times) = ((policy.max_body, keeps), (&connection.worker, exchange.deadline()));
            UploadBody::new(body, terms, times, &head.headers, facts.underscores, config)
        })
        .unzip();
    if let Some(upload) = &upload {
        exchange.set_upload(upload);
    }
    Ok(Outgoing {
        head,
        body,
        upload,
        upgrade,
        affinity: facts.affinity,
        preamble,
        config: Some(config),
        header_case: upstream.header_case(),
    })
}

/// Sends the request to an endpoint, and to others while that is safe: if nothing was sent, or if no byte of a response was received
/// and the request is idempotent, or the configuration allows it for all.
async fn attempt(
    exchange: &Exchange,
    upstream: &Upstream,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    let config = upstream.config();
    let name = &config.name;
    let now = || exchange.connection().worker.deadlines.now();
    let mut tried = Tried::new();
    let mut extra_attempts = 0;
    upstream.retry_budget.earn(config.retries.budget);
    loop {
        let permit = upstream.permit(exchange, outgoing.affinity, &tried).await;
        let (endpoint, permit) = permit.inspect_err(|error| {
            tracing::debug!(request = exchange.id().as_str(), upstream = name, %error, "no upstream endpoint");
            exchange.log_no_endpoint(error);
        })?;
        exchange.hold_permit(permit);
        let result = send_request(&endpoint.server, config, exchange, outgoing).await;
        upstream.note(endpoint.state(), &result, now());
        exchange.log_attempt(&endpoint.server.address.authority, result.as_ref().err());
        let error = match result {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let server = &endpoint.server.address.authority;
        let request = exchange.id().as_str();
        tracing::debug!(request, upstream = name, server, error = error.message(), "upstream request failed");
        let is_safe = match &error {
            error if error.is_unsent() => outgoing.is_whole(),
            ForwardError::Unanswered(_) => outgoing.is_repeatable(),
            _ => false,
        };
        // Others may have it while this request waits for another server.
        exchange.release_permit();
        tried.push(Rc::clone(&endpoint));
        let now = now();
        if is_safe && error.is_unsent() && upstream.has_siblings(&endpoint, &tried, now) {
            extra_attempts += 1; // the addresses of one server count as one attempt
            continue;
        }
        // A refused connection costs the server nothing: such attempts are not limited while another server is left.
        let is_free = config.retries.attempts > 0 && error.is_refused() && tried.len() < MAX_REFUSED;
        let again = is_safe
            && (is_free || tried.len() <= extra_attempts + config.retries.attempts as usize)
            && upstream.has_others(&tried, now)
            && (is_free || upstream.retry_budget.spend(now));
        if !again {
            return Err(error);
        }
        extra_attempts += usize::from(is_free);
        tracing::debug!(request = exchange.id().as_str(), upstream = name, "upstream request is retried");
        upstream.metrics.retried();
    }
}

/// Rewrites the head of the request as HTTP/1.1 in origin form.
fn rewrite(
    connection: &Connection,
    head: &mut RequestHead,
    authority: &str,
    has_body: bool,
    trusted: bool,
    overrides: bool,
) {
    headers::request(connection, &mut head.headers, head.target.authority(), has_body, trusted, overrides);
    if !has_body
        && !head.method.is_safe()
        && [Method::POST, Method::PUT, Method::PATCH].contains(&head.method)
        && !head.headers.contains_key(header::CONTENT_LENGTH)
    {
        head.headers.append(header::CONTENT_LENGTH, "0"); // RFC 9110 §8.6: servers expect one
    }
    if !head.headers.contains_key(header::HOST) {
        // HTTP/1.0 requests may lack a host, HTTP/1.1 requests may not.
        head.headers.append(header::HOST, authority);
    }
    if head.target.authority().is_some() {
        head.target = head.target.in_origin_form();
    }
    head.version = Version::HTTP_11;
}
