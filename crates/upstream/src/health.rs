//! Background work for upstreams, on the control thread: name resolution and health checks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::header;
use tokio::task::AbortHandle;

use super::admin_state::AdminState;
use super::connect::connector;
use super::endpoint_state::{EndpointState, HealthCheck};
use super::error::error_chain;
use super::proxy;
use super::server::Server;
use super::upstream_state::{UpstreamState, WeightedEndpoints};
use sluicegate_base::clock::Clock;
use sluicegate_config::HealthConfig;
use sluicegate_wire::RequestHead;
use sluicegate_wire::headers::NameCase;

/// How long a start or a reload waits for the resolution of new names.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest pause before a name without an address is resolved again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Aborts a task when it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UpstreamState {
    /// Resolves the names of servers that have no address yet, for at most two seconds. [`maintain`](Self::maintain) continues
    /// with the rest.
    pub async fn resolve_new_names(&self) {
        let unresolved = self.names().into_iter().filter(|at| !self.is_resolved(*at));
        let lookups = join_all(unresolved.map(|at| self.resolve(at)));
        let _ = tokio::time::timeout(RESOLVE_TIMEOUT, lookups).await; // requests meanwhile get 502
    }

    /// Resolves names and checks the health of endpoints, forever. Must be called inside a `LocalSet` or `LocalRuntime`.
    pub async fn maintain(self: Arc<Self>, clock: Clock) {
        let names = self.names();
        let mut probes: Vec<(Arc<EndpointState>, AbortOnDrop)> = Vec::new();
        let mut is_failing = vec![false; self.config.servers.len()];
        loop {
            if self.config.health.is_some() {
                self.probe_all(&mut probes, clock);
            }
            if names.is_empty() {
                return std::future::pending().await;
            }
            let all_resolved = names.iter().all(|at| self.is_resolved(*at));
            let pause = if all_resolved { self.config.resolve } else { RETRY_PAUSE.min(self.config.resolve) };
            tokio::time::sleep(jittered(pause)).await;
            let results = join_all(names.iter().map(|at| self.resolve(*at))).await;
            for (at, result) in names.iter().zip(results) {
                let (name, server) = (&self.config.name, &self.config.servers[*at].authority);
                match &result {
                    Err(error) if !is_failing[*at] => {
                        tracing::warn!("{name}: cannot look up {server}: {error}; what was known stays");
                    }
                    Ok(()) if is_failing[*at] => tracing::info!("{name}: {server} can be looked up again"),
                    _ => {}
                }
                is_failing[*at] = result.is_err();
            }
        }
    }

    async fn resolve(&self, at: usize) -> std::io::Result<()> {
        let addresses: Vec<SocketAddr> =
            tokio::net::lookup_host(self.config.servers[at].authority.as_str()).await?.collect();
        if addresses.is_empty() {
            return Err(std::io::Error::other("the name has no address"));
        }
        self.set_addresses(at, addresses);
        Ok(())
    }

    /// Starts health checks of new endpoints, and stops those of endpoints that were removed.
    fn probe_all(self: &Arc<Self>, probes: &mut Vec<(Arc<EndpointState>, AbortOnDrop)>, clock: Clock) {
        let endpoints: Arc<WeightedEndpoints> = self.endpoints();
        probes.retain(|(probed, _)| endpoints.iter().any(|(endpoint, _)| Arc::ptr_eq(endpoint, probed)));
        for (endpoint, _) in endpoints.iter() {
            if !probes.iter().any(|(probed, _)| Arc::ptr_eq(endpoint, probed)) {
                let probing = Arc::clone(self).probe(Arc::clone(endpoint), clock);
                let probing = sluicegate_base::boxed_future::spawn_local(probing);
                probes.push((Arc::clone(endpoint), AbortOnDrop(probing.abort_handle())));
            }
        }
    }

    /// Checks the health of one endpoint, forever.
    async fn probe(self: Arc<Self>, endpoint: Arc<EndpointState>, clock: Clock) {
        let Some(config) = &self.config.health else { return };
        let connector = connector(&self);
        let server = Server::new(&endpoint, &self, connector.as_ref());
        let preamble = self.config.proxy_protocol.map_or_else(proxy::Header::new, proxy::local_header);
        let request = probe_request(config, &server);
        let mut in_a_row = 0;
        tokio::time::sleep(random_part(config.every)).await; // not all at the same time
        loop {
            if endpoint.admin_state() == AdminState::Maintenance {
                in_a_row = 0;
                tokio::time::sleep(jittered(config.every)).await;
                continue;
            }
            let begun = clock.uptime();
            let check = check(&server, config, &request, &preamble, self.header_case.as_ref());
            let probe = tokio::time::timeout(config.timeout, check).await;
            let (status, result) =
                probe.unwrap_or_else(|_| (None, Err(format!("no response within {:?}", config.timeout))));
            let now = clock.uptime();
            let last = HealthCheck {
                at: clock.wall(),
                took: now.saturating_sub(begun),
                status,
                failure: result.as_ref().err().cloned(),
            };
            endpoint.note_check(last, u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
            if result.is_ok() {
                self.note_response(&endpoint);
            }
            // Counts consecutive results that contradict the present state.
            in_a_row = if result.is_ok() == endpoint.is_healthy() { 0 } else { in_a_row + 1 };
            let threshold = if result.is_ok() { config.healthy } else { config.unhealthy };
            if in_a_row >= threshold && endpoint.set_healthy(result.is_ok()) {
                in_a_row = 0;
                let (name, server, address) = (&self.config.name, &endpoint.authority, &endpoint.address);
                match result {
                    Ok(()) => {
                        tracing::info!("{name}: {server} ({address}) is up again: its health check succeeds")
                    }
                    Err(why) => {
                        tracing::warn!("{name}: {server} ({address}) is down: its health check failed: {why}")
                    }
                }
            }
            tokio::time::sleep(jittered(config.every)).await;
        }
    }
}

/// The request of a health check.
fn probe_request(config: &HealthConfig, server: &Server) -> RequestHead {
    let mut request = RequestHead::get(config.path.clone());
    match &config.host {
        Some(host) => request.headers.append(header::HOST, host),
        None => request.headers.append(header::HOST, server.address.host()),
    }
    request.headers.append(header::USER_AGENT, "sluicegate-health");
    request.headers.append(header::CONNECTION, "close");
    request
}

/// One health check, on a new connection: the status of the answer, and whether that is a good one.
async fn check(
    server: &Server,
    config: &HealthConfig,
    request: &RequestHead,
    preamble: &[u8],
    header_case: Option<&NameCase>,
) -> (Option<u16>, Result<(), String>) {
    let status = match server.probe(request, preamble, header_case).await {
        Ok(status) => status.as_u16(),
        Err(error) => return (None, Err(error_chain(&*error))),
    };
    let is_good = config.status.iter().any(|good| good.contains(&status));
    (Some(status), if is_good { Ok(()) } else { Err(format!("status {status}")) })
}

/// 90 % to 110 % of a time, so that many gateways do not act at the same moment.
fn jittered(span: Duration) -> Duration {
    span * 9 / 10 + random_part(span / 5)
}

/// A random part of a time.
fn random_part(span: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    span.mul_f64(random as f64 / u64::MAX as f64)
}
