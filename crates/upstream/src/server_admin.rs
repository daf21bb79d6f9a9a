//! Reads and sets the administrative state of the servers of an upstream.

use super::admin_state::AdminState;
use super::upstream_state::UpstreamState;

/// The administrative state of a server, with the requests that it still has.
pub struct ServerAdmin {
    /// The state.
    pub state: AdminState,
    /// The requests in flight to all of its addresses.
    pub in_flight: u32,
}

impl UpstreamState {
    /// The administrative state of a server, by its HOST:PORT as configured; `None` if there is no such server.
    pub fn server_admin(&self, server: &str) -> Option<ServerAdmin> {
        let at = self.config.servers.iter().position(|config| config.authority == server)?;
        let resolved = &self.resolved()[at];
        let in_flight = resolved.all().map(|endpoint| endpoint.counts().1).sum();
        Some(ServerAdmin { state: resolved.admin.get(), in_flight })
    }

    /// Sets the administrative state of a server. Returns the one before; `None` if there is no such server.
    pub fn set_server_admin(&self, server: &str, state: AdminState) -> Option<AdminState> {
        let at = self.config.servers.iter().position(|config| config.authority == server)?;
        let resolved = &self.resolved()[at];
        let before = resolved.admin.get();
        resolved.admin.set(state);
        resolved.endpoints.iter().for_each(|endpoint| endpoint.set_admin_state(state));
        // Waiting requests may use it from now on, or must not wait for it any more.
        self.persistent().endpoints_changed();
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_limiter::Time;

    use super::*;

    fn next(fields: &str, before: Option<&Arc<UpstreamState>>) -> Arc<UpstreamState> {
        let text = format!(
            "listen: [127.0.0.1:8080]\nupstreams: {{api: {{{fields}}}}}\nroutes: [{{upstream: api}}]\n"
        );
        let config = sluicegate_config::parse_without_files(&text).unwrap();
        UpstreamState::next(&config.upstreams[0], None, before, Time::EPOCH)
    }

    /// The state is that of the server, for all addresses that its name has or gets, and over reloads.
    #[test]
    fn addresses_follow_their_server() {
        let state = next("servers: ['http://a.test:80', 'http://10.0.0.9:80']", None);
        let ready = |state: &UpstreamState| -> Vec<bool> {
            state.endpoints().iter().map(|(endpoint, _)| endpoint.is_available(1_000)).collect()
        };
        let addresses = |count: u8| (0..count).map(|at| ([10, 0, 0, at], 80).into()).collect();
        assert_eq!(state.set_server_admin("a.test:80", AdminState::Drain), Some(AdminState::Ready));
        assert_eq!(state.set_server_admin("b.test:80", AdminState::Drain), None);
        assert_eq!(state.status(0)[0].state.name(), "drain", "also without an address");
        state.set_addresses(0, addresses(1));
        assert_eq!(ready(&state), [false, true]);
        let after = next("servers: ['http://10.0.0.9:80', 'http://a.test:80']", Some(&state));
        after.set_addresses(1, addresses(2));
        assert_eq!(ready(&after), [true, false, false]);
        assert_eq!(after.set_server_admin("a.test:80", AdminState::Ready), Some(AdminState::Drain));
        assert_eq!(ready(&after), [true, true, true]);
    }

    /// What health checks show is kept apart from what an operator says.
    #[test]
    fn health_and_administrative_state_are_independent() {
        let state = next("servers: ['http://10.0.0.1:80'], health: {path: /}", None);
        let endpoint = Arc::clone(&state.endpoints()[0].0);
        let set = |wanted| state.set_server_admin("10.0.0.1:80", wanted).unwrap();
        set(AdminState::Maintenance);
        assert!(endpoint.is_healthy() && endpoint.set_healthy(false) && !endpoint.set_healthy(false));
        assert_eq!(endpoint.admin_state(), AdminState::Maintenance);
        set(AdminState::Ready);
        assert!(!endpoint.is_available(0) && endpoint.is_ready() && !endpoint.is_healthy());
        assert!(endpoint.set_healthy(true) && endpoint.is_available(0));
    }
}
