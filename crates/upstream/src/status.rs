//! What operators are told of servers: one state with one word, in `/status`, in the metrics and on the page.

use std::sync::Arc;

use super::admin_state::AdminState;
use super::endpoint_state::{EndpointState, HealthCheck};
use super::server_address::ServerAddress;
use super::upstream_state::UpstreamState;
use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// The state of a server, or of one of its addresses.
    ServerState {
        /// Nothing is known against it.
        Up = "up",
        /// It fails its health checks, or requests to it fail and none has been answered since.
        Down = "down",
        /// It gets no requests for a time, because requests to it failed.
        Ejected = "ejected",
        /// Its name has no address.
        Unresolved = "unresolved",
        /// An operator has drained it: it gets no new requests.
        Drain = "drain",
        /// An operator has put it into maintenance: it gets neither new requests nor health checks.
        Maintenance = "maintenance",
    }
}

/// The status of a server for operators.
pub struct ServerStatus {
    /// HOST:PORT as configured.
    pub server: String,
    /// Its weight as configured.
    pub weight: u32,
    /// Drain or maintenance if an operator has said so; otherwise up if one of its addresses is.
    pub state: ServerState,
    /// Whether it gets requests. A server that is down does if no other is available: the last one is never left out.
    pub in_use: bool,
    /// Its addresses; empty while its name is not resolved.
    pub addresses: Vec<AddressStatus>,
    /// The requests to it, also those to addresses that it no longer has.
    pub requests: u64,
    /// Those that failed because of the server.
    pub failed: u64,
}

/// The status of an address for operators.
pub struct AddressStatus {
    /// The address.
    pub address: ServerAddress,
    /// Its state.
    pub state: ServerState,
    /// Whether it is up, as far as one knows apart from ejections.
    pub answers: bool,
    /// Why the last request or the last health check failed, if it did.
    pub trouble: Option<String>,
    /// The seconds for which all requests or all health checks have failed.
    pub failing_for: Option<u64>,
    /// The last health check.
    pub last_check: Option<HealthCheck>,
    /// The requests to it, including those in flight.
    pub requests: u64,
    /// Those in flight.
    pub in_flight: u32,
    /// Those that failed because of the server.
    pub failed: u64,
}

impl ServerStatus {
    /// Whether no operator has taken it out of service.
    pub fn is_ready(&self) -> bool {
        !matches!(self.state, ServerState::Drain | ServerState::Maintenance)
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.state == ServerState::Up
    }
}

impl UpstreamState {
    /// The status of all servers. `now` is the gateway's clock in milliseconds.
    pub fn status(&self, now: u64) -> Vec<ServerStatus> {
        let resolved = self.resolved();
        let all_are_used =
            !resolved.iter().flat_map(|server| &server.endpoints).any(|one| one.is_available(now));
        let servers = self.config.servers.iter().zip(resolved.iter());
        let servers = servers.map(|(config, resolved)| {
            let [requests, failed] = resolved.counts();
            let addresses: Vec<AddressStatus> =
                resolved.endpoints.iter().map(|endpoint| address(endpoint, now)).collect();
            ServerStatus {
                server: config.authority.clone(),
                weight: config.weight,
                state: administrative(resolved.admin.get()).unwrap_or_else(|| together(&addresses)),
                in_use: resolved
                    .endpoints
                    .iter()
                    .any(|endpoint| endpoint.is_available(now) || (all_are_used && endpoint.is_ready())),
                addresses,
                requests,
                failed,
            }
        });
        servers.collect()
    }
}

/// The state that an operator has set; `None` if the server is ready.
fn administrative(state: AdminState) -> Option<ServerState> {
    match state {
        AdminState::Ready => None,
        AdminState::Drain => Some(ServerState::Drain),
        AdminState::Maintenance => Some(ServerState::Maintenance),
    }
}

/// The state of a server with these addresses.
fn together(addresses: &[AddressStatus]) -> ServerState {
    let has = |state| addresses.iter().any(|address| address.state == state);
    let states = [ServerState::Up, ServerState::Down, ServerState::Ejected];
    states.into_iter().find(|state| has(*state)).unwrap_or(ServerState::Unresolved)
}

fn address(endpoint: &Arc<EndpointState>, now: u64) -> AddressStatus {
    let failure = endpoint.failure_log.failure();
    let checks = endpoint.checks();
    let answers = endpoint.is_healthy() && !failure.as_ref().is_some_and(|failure| failure.is_down);
    let state = administrative(endpoint.admin_state()).unwrap_or(match () {
        () if endpoint.is_ejected(now) => ServerState::Ejected,
        () if answers => ServerState::Up,
        () => ServerState::Down,
    });
    let since = failure.as_ref().map(|failure| failure.since).into_iter().chain(checks.failing_since).min();
    let failed_check = checks.last.as_ref().and_then(|check| check.failure.as_ref());
    let failed_check = failed_check.map(|why| format!("health check failed: {why}"));
    let (requests, in_flight, failed) = endpoint.counts();
    AddressStatus {
        address: endpoint.address.clone(),
        state,
        answers,
        trouble: failure.map(|failure| failure.why).or(failed_check),
        failing_for: since.map(|since| now.saturating_sub(since) / 1_000),
        last_check: checks.last,
        requests,
        in_flight,
        failed,
    }
}
