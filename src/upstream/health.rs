//! What is done for an upstream beside its requests, on the thread that serves nobody: names are looked up, servers
//! are asked whether they are well.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::header;
use tokio::task::AbortHandle;

use super::connect::connector;
use super::endpoint_state::EndpointState;
use super::error::error_chain;
use super::proxy;
use super::server::Server;
use super::upstream_state::{UpstreamState, WeightedEndpoints};
use sluicegate_config::HealthConfig;
use sluicegate_wire::RequestHead;

/// The longest that a start or a reload waits for the addresses of names it does not know.
const LOOK_UP: Duration = Duration::from_secs(2);
/// How soon a name without an address is looked up again.
const AGAIN: Duration = Duration::from_secs(1);

/// Ends a task when it is dropped.
struct Ended(AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UpstreamState {
    /// Looks up the names of servers that have no address yet, for two seconds at most. What is not found by then is
    /// looked for on.
    pub async fn find_servers(&self) {
        let unknown = self.names().into_iter().filter(|at| !self.is_found(*at));
        let lookups = join_all(unknown.map(|at| self.look_up(at)));
        let _ = tokio::time::timeout(LOOK_UP, lookups).await; // a request meanwhile is answered 502
    }

    /// Looks up names and asks servers for ever. Call it inside a `LocalSet`.
    pub async fn tend(self: Arc<Self>) {
        let names = self.names();
        let mut probes: Vec<(Arc<EndpointState>, Ended)> = Vec::new();
        let mut troubled = vec![false; self.config.servers.len()];
        loop {
            if self.config.health.is_some() {
                self.probe_all(&mut probes);
            }
            if names.is_empty() {
                return std::future::pending().await;
            }
            let all_found = names.iter().all(|at| self.is_found(*at));
            let pause = if all_found { self.config.resolve } else { AGAIN.min(self.config.resolve) };
            tokio::time::sleep(about(pause)).await;
            let found = join_all(names.iter().map(|at| self.look_up(*at))).await;
            for (at, found) in names.iter().zip(found) {
                let (name, server) = (&self.config.name, &self.config.servers[*at].authority);
                match &found {
                    Err(error) if !troubled[*at] => {
                        tracing::warn!("{name}: cannot look up {server}: {error}; what was known stays");
                    }
                    Ok(()) if troubled[*at] => tracing::info!("{name}: {server} can be looked up again"),
                    _ => {}
                }
                troubled[*at] = found.is_err();
            }
        }
    }

    async fn look_up(&self, at: usize) -> std::io::Result<()> {
        let addresses: Vec<SocketAddr> =
            tokio::net::lookup_host(self.config.servers[at].authority.as_str()).await?.collect();
        if addresses.is_empty() {
            return Err(std::io::Error::other("the name has no address"));
        }
        self.set_addresses(at, addresses);
        Ok(())
    }

    /// Has every address asked, and no other.
    fn probe_all(self: &Arc<Self>, probes: &mut Vec<(Arc<EndpointState>, Ended)>) {
        let endpoints: Arc<WeightedEndpoints> = self.endpoints();
        probes.retain(|(probed, _)| endpoints.iter().any(|(endpoint, _)| Arc::ptr_eq(endpoint, probed)));
        for (endpoint, _) in endpoints.iter() {
            if !probes.iter().any(|(probed, _)| Arc::ptr_eq(endpoint, probed)) {
                let probing = crate::boxed_future::spawn_local(Arc::clone(self).probe(Arc::clone(endpoint)));
                probes.push((Arc::clone(endpoint), Ended(probing.abort_handle())));
            }
        }
    }

    /// Asks one address for ever whether it is well.
    async fn probe(self: Arc<Self>, endpoint: Arc<EndpointState>) {
        let Some(config) = &self.config.health else { return };
        let connector = connector(&self);
        let server = Server::new(&endpoint, &self, connector.as_ref());
        let preamble = self.config.proxy_protocol.map_or_else(proxy::Header::new, proxy::local_header);
        let question = question(config, &server);
        let mut in_a_row = 0;
        tokio::time::sleep(some_of(config.every)).await; // not all at once
        loop {
            let asked =
                tokio::time::timeout(config.timeout, ask(&server, config, &question, &preamble)).await;
            let answer = asked.unwrap_or_else(|_| Err(format!("no answer within {:?}", config.timeout)));
            if answer.is_ok() {
                self.note_response(&endpoint);
            }
            // What counts is how often the opposite of what is believed was seen.
            in_a_row = if answer.is_ok() == endpoint.is_healthy() { 0 } else { in_a_row + 1 };
            let enough = if answer.is_ok() { config.healthy } else { config.unhealthy };
            if in_a_row >= enough && endpoint.set_healthy(answer.is_ok()) {
                in_a_row = 0;
                let (name, server, address) = (&self.config.name, &endpoint.authority, endpoint.address);
                match answer {
                    Ok(()) => tracing::info!("{name}: {server} ({address}) is well again"),
                    Err(why) => tracing::warn!("{name}: {server} ({address}) is not well: {why}"),
                }
            }
            tokio::time::sleep(about(config.every)).await;
        }
    }
}

/// The request of a health check.
fn question(config: &HealthConfig, server: &Server) -> RequestHead {
    let mut question = RequestHead::get(config.path.clone());
    match &config.host {
        Some(host) => question.headers.append(header::HOST, host),
        None => question.headers.append(header::HOST, &server.address.authority),
    }
    question.headers.append(header::USER_AGENT, "sluicegate-health");
    question.headers.append(header::CONNECTION, "close");
    question
}

/// One question, over HTTP/1.1 on a connection of its own.
async fn ask(
    server: &Server,
    config: &HealthConfig,
    question: &RequestHead,
    preamble: &[u8],
) -> Result<(), String> {
    let status = server.probe(question, preamble).await.map_err(|error| error_chain(&*error))?.as_u16();
    match config.status.iter().any(|good| good.contains(&status)) {
        true => Ok(()),
        false => Err(format!("it answers {status}")),
    }
}

/// Between nine and eleven tenths of a time, so that many gateways do not ask at the same moments.
fn about(span: Duration) -> Duration {
    span * 9 / 10 + some_of(span / 5)
}

/// Any part of a time.
fn some_of(span: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    span.mul_f64(random as f64 / u64::MAX as f64)
}
