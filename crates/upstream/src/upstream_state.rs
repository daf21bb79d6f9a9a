//! The state of an upstream that all threads share: its endpoints, their health, and the queue for permits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sluicegate_limiter::Time;
use tokio::sync::Notify;

use super::admin_state::AdminCell;
use super::endpoint_state::EndpointState;
use super::error::ForwardError;
use super::overload::Overload;
use super::server_address::ServerAddress;
use crate::fair_shares::FairShares;
use sluicegate_base::tls::UpstreamTls;
use sluicegate_config::UpstreamConfig;
use sluicegate_wire::headers::NameCase;

/// The most addresses of one server that are used.
const MOST_ADDRESSES: usize = 32;
/// The factor for weights, so that little is lost by rounding when the addresses of a server share its weight. It has many
/// divisors.
const SCALE: u64 = 5_040;

/// The state of an upstream that all threads share.
pub struct UpstreamState {
    /// Its configuration.
    pub config: UpstreamConfig,
    /// The TLS configuration; `None` if no server uses TLS.
    pub tls: Option<UpstreamTls>,
    /// The case in which names of headers are written; `None` for lower case.
    pub header_case: Option<NameCase>,
    /// Its protection from overload; `None` for none.
    pub overload: Option<Arc<Overload>>,
    /// How what it can handle is divided among consumers; `None` if it is not.
    pub fair: Option<Arc<FairShares>>,
    /// What each server resolved to, in the order of the configuration.
    resolved: Mutex<Vec<Resolved>>,
    endpoints: ArcSwap<WeightedEndpoints>,
    /// Counts the changes of `endpoints`.
    version: AtomicU64,
    persistent: Arc<PersistentState>,
}

/// What a server resolved to.
#[derive(Clone, Default)]
pub(super) struct Resolved {
    pub(super) endpoints: Vec<Arc<EndpointState>>,
    /// Endpoints that its name no longer has while requests to them may be in flight.
    leaving: Vec<Arc<EndpointState>>,
    /// The administrative state of the server, for addresses that it gets later. A reload shares it.
    pub(super) admin: Arc<AdminCell>,
    /// The requests to endpoints that have left, and those that failed.
    left: [u64; 2],
}

/// Endpoints with their weights.
pub(super) type WeightedEndpoints = Vec<(Arc<EndpointState>, u64)>;

/// The state that survives a reload if the name of the upstream stays the same.
#[derive(Default)]
pub(super) struct PersistentState {
    /// Requests that wait for a permit.
    waiting: AtomicUsize,
    /// Those of them that cannot use every endpoint, because they have tried some.
    picky: AtomicUsize,
    /// Notifies them when a permit is released.
    freed: Notify,
    ejections: AtomicU64,
    /// Connections on which servers sent unsolicited bytes.
    unsolicited: AtomicU64,
}

/// Counts a request that waits for a permit until it is dropped.
pub(super) struct Waiting<'a> {
    persistent: &'a PersistentState,
    is_picky: bool,
}

impl UpstreamState {
    /// The state after a reload. Endpoints that are in `before` too keep their state.
    pub fn next(
        config: &UpstreamConfig,
        tls: Option<&UpstreamTls>,
        before: Option<&Arc<Self>>,
        now: Time,
    ) -> Arc<Self> {
        let same = |before: &&Arc<Self>| before.config == *config && before.tls.as_ref() == tls;
        if let Some(same) = before.filter(same) {
            return Arc::clone(same);
        }
        let known = |authority: &str| {
            let before = before?;
            let at = before.config.servers.iter().position(|server| server.authority == authority)?;
            Some(before.resolved.lock().unwrap_or_else(PoisonError::into_inner)[at].clone())
        };
        let resolved = config.servers.iter().map(|server| match ServerAddress::parse(&server.authority) {
            _ if known(&server.authority).is_some() => known(&server.authority).unwrap_or_default(),
            Some(address) => Resolved {
                endpoints: vec![Arc::new(EndpointState::new(&server.authority, address))],
                ..Resolved::default()
            },
            None => Resolved::default(), // a name that has to be resolved
        });
        let resolved: Vec<Resolved> = resolved.collect();
        for endpoint in resolved.iter().flat_map(|server| &server.endpoints) {
            if config.health.is_none() {
                endpoint.forget_checks();
            }
            if config.ejection.is_none() {
                endpoint.reset_failures();
            }
        }
        let state = Self {
            endpoints: ArcSwap::from_pointee(weighted(config, &resolved)),
            resolved: Mutex::new(resolved),
            version: AtomicU64::new(0),
            persistent: before.map(|before| Arc::clone(&before.persistent)).unwrap_or_default(),
            overload: config.overload.as_ref().map(|overload| {
                Overload::next(overload, before.and_then(|before| before.overload.as_ref()), now)
            }),
            fair: config
                .fair
                .as_ref()
                .map(|fair| FairShares::following(fair, before.and_then(|before| before.fair.as_ref()), now)),
            header_case: NameCase::new(config.header_case.iter().map(String::as_str)),
            config: config.clone(),
            tls: tls.cloned(),
        };
        if let (Some(before), None) = (before.and_then(|before| before.overload.as_ref()), &state.overload) {
            before.lift(now);
        }
        state.persistent.endpoints_changed(); // the limit may be higher
        Arc::new(state)
    }

    /// The indices of the servers whose names have to be resolved.
    pub(super) fn names(&self) -> Vec<usize> {
        let servers = self.config.servers.iter().enumerate();
        let names = servers.filter(|(_, server)| ServerAddress::parse(&server.authority).is_none());
        names.map(|(at, _)| at).collect()
    }

    /// Whether the server at this index has an address.
    pub(super) fn is_resolved(&self, at: usize) -> bool {
        !self.resolved.lock().unwrap_or_else(PoisonError::into_inner)[at].endpoints.is_empty()
    }

    /// Sets the addresses of the server at this index. Endpoints that exist already keep their state.
    pub(super) fn set_addresses(&self, at: usize, mut addresses: Vec<SocketAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MOST_ADDRESSES);
        let authority = &self.config.servers[at].authority;
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = format!("{addresses:?}");
        let addresses: Vec<ServerAddress> = addresses.into_iter().map(Into::into).collect();
        if resolved[at].endpoints.iter().map(|endpoint| &endpoint.address).eq(&addresses) {
            return;
        }
        tracing::info!("{}: {authority} is at {shown}", self.config.name);
        let old = std::mem::take(&mut resolved[at].endpoints);
        let admin = resolved[at].admin.get();
        let endpoint = |address: ServerAddress| {
            let same = old.iter().find(|endpoint| endpoint.address == address);
            let endpoint = same.map_or_else(|| Arc::new(EndpointState::new(authority, address)), Arc::clone);
            endpoint.set_admin_state(admin);
            endpoint
        };
        resolved[at].endpoints = addresses.into_iter().map(endpoint).collect();
        resolved[at].leave(old);
        self.endpoints.store(Arc::new(weighted(&self.config, &resolved)));
        self.version.fetch_add(1, Ordering::Release);
        self.persistent.endpoints_changed();
    }

    /// All endpoints with their weights.
    pub(super) fn endpoints(&self) -> Arc<WeightedEndpoints> {
        self.endpoints.load_full()
    }

    /// A number that changes when the endpoints change.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Records a failure of an endpoint, which may eject it. `now` is the gateway's clock in milliseconds.
    pub(super) fn failed(&self, endpoint: &EndpointState, now: u64) {
        let Some(config) = &self.config.ejection else { return };
        if endpoint.add_failure() < config.failures || endpoint.is_ejected(now) || !endpoint.is_ready() {
            return;
        }
        // One at a time, so that concurrent failures do not eject more endpoints than allowed.
        let _lock = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoints = self.endpoints.load();
        let ready = || endpoints.iter().filter(|(endpoint, _)| endpoint.is_ready());
        let ejected = ready().filter(|(endpoint, _)| endpoint.is_ejected(now)).count();
        let count = ready().count();
        let max = (count * usize::from(config.share) / 100).max(1).min(count.saturating_sub(1));
        if endpoint.is_ejected(now) || ejected >= max {
            return;
        }
        let span = endpoint.eject(now, config);
        self.persistent.ejections.fetch_add(1, Ordering::Relaxed);
        let (name, server) = (&self.config.name, &endpoint.authority);
        tracing::warn!("{name}: {server} ({}) keeps failing and is out for {span:?}", endpoint.address);
    }

    /// Logs that requests to an endpoint fail.
    #[cold]
    pub(super) fn note_failure(&self, endpoint: &EndpointState, error: &ForwardError, now: u64) {
        let why = error.message();
        if endpoint.failure_log.failed(&why, error.is_unsent(), now) {
            let (name, server) = (&self.config.name, &endpoint.authority);
            tracing::warn!("{name}: {server} ({}) does not serve requests: {why}", endpoint.address);
        }
    }

    /// Logs that an endpoint has responded, if requests to it failed before.
    pub(super) fn note_response(&self, endpoint: &EndpointState) {
        if endpoint.failure_log.recovered() {
            let (name, server) = (&self.config.name, &endpoint.authority);
            tracing::info!("{name}: {server} ({}) serves requests again", endpoint.address);
        }
    }

    pub(super) fn persistent(&self) -> &Arc<PersistentState> {
        &self.persistent
    }

    /// The number of ejections.
    pub fn ejections(&self) -> u64 {
        self.persistent.ejections.load(Ordering::Relaxed)
    }

    /// The number of connections on which servers sent unsolicited bytes.
    pub fn unsolicited(&self) -> u64 {
        self.persistent.unsolicited.load(Ordering::Relaxed)
    }

    /// The number of requests that wait for a permit.
    pub fn waiting(&self) -> usize {
        self.persistent.waiting.load(Ordering::Relaxed)
    }

    /// What each server resolved to, in the order of the configuration.
    pub(super) fn resolved(&self) -> MutexGuard<'_, Vec<Resolved>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolved {
    /// All endpoints to which requests may be in flight.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<EndpointState>> {
        self.endpoints.iter().chain(&self.leaving)
    }

    /// Keeps the counts of the endpoints of `before` that are not used any more.
    fn leave(&mut self, before: Vec<Arc<EndpointState>>) {
        let stays =
            |old: &Arc<EndpointState>| self.endpoints.iter().any(|endpoint| Arc::ptr_eq(endpoint, old));
        let gone: Vec<_> = before.into_iter().filter(|old| !stays(old)).collect();
        self.leaving.extend(gone);
        for endpoint in self.leaving.extract_if(.., |endpoint| Arc::strong_count(endpoint) == 1) {
            self.left = add(self.left, &endpoint);
        }
    }

    /// The requests to the server, and those that failed because of it.
    pub(super) fn counts(&self) -> [u64; 2] {
        self.all().fold(self.left, |sum, endpoint| add(sum, endpoint))
    }
}

/// Adds the requests and failures of an endpoint.
fn add([requests, failed]: [u64; 2], endpoint: &EndpointState) -> [u64; 2] {
    let (more, _, more_failed) = endpoint.counts();
    [requests.saturating_add(more), failed.saturating_add(more_failed)]
}

/// The endpoints of all servers. Those of one server share its weight.
fn weighted(config: &UpstreamConfig, resolved: &[Resolved]) -> WeightedEndpoints {
    let servers = config.servers.iter().zip(resolved);
    let weighted = servers.flat_map(|(server, resolved)| {
        let weight = u64::from(server.weight) * SCALE / resolved.endpoints.len().max(1) as u64;
        resolved.endpoints.iter().map(move |endpoint| (Arc::clone(endpoint), weight))
    });
    weighted.collect()
}

impl PersistentState {
    /// Notifies all waiting requests that other endpoints may be available.
    pub(super) fn endpoints_changed(&self) {
        self.freed.notify_waiters();
    }

    /// Counts a connection on which a server sent unsolicited bytes.
    pub(super) fn unsolicited(&self) {
        self.unsolicited.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that waits for a permit; `None` if `max` requests wait already. `is_picky` says whether there are endpoints
    /// that it cannot use.
    pub(super) fn wait(&self, max: usize, is_picky: bool) -> Option<Waiting<'_>> {
        let next = |waiting| (waiting < max).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        self.picky.fetch_add(usize::from(is_picky), Ordering::SeqCst);
        Some(Waiting { persistent: self, is_picky })
    }

    /// Notifies a waiting request that a permit may be free: all of them if one might be notified that cannot use it. The caller
    /// has released the permit before; a waiting request is counted before it checks for a permit. So at least one of them
    /// sees the other.
    pub(super) fn freed(&self) {
        if self.picky.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        } else if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_one();
        }
    }
}

impl Waiting<'_> {
    /// Notified when a permit is released.
    pub(super) fn freed(&self) -> &Notify {
        &self.persistent.freed
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.persistent.waiting.fetch_sub(1, Ordering::SeqCst);
        self.persistent.picky.fetch_sub(usize::from(self.is_picky), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// The upstream `api` with these fields.
    fn state(fields: &str, before: Option<&Arc<UpstreamState>>) -> Arc<UpstreamState> {
        let text = format!(
            "listen: [127.0.0.1:8080]\nupstreams: {{api: {{{fields}}}}}\nroutes: [{{upstream: api}}]\n"
        );
        let config = sluicegate_config::parse_without_files(&text).unwrap();
        UpstreamState::next(&config.upstreams[0], None, before, Time::EPOCH)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_addresses_of_a_name_share_its_weight_and_keep_their_state() {
        let state = state(
            "servers: [{url: 'http://a.test:80', weight: 2}, {url: 'http://10.0.0.9:80', weight: 2}]",
            None,
        );
        assert_eq!((state.endpoints().len(), state.names()), (1, vec![0]));
        state.set_addresses(0, vec![address("10.0.0.2:80"), address("10.0.0.1:80"), address("10.0.0.1:80")]);
        let before = state.endpoints();
        let shares: Vec<_> = before.iter().map(|(m, weight)| (m.address.to_string(), *weight)).collect();
        let share = |at: &str, weight| (at.to_owned(), weight * SCALE);
        assert_eq!(shares, [share("10.0.0.1:80", 1), share("10.0.0.2:80", 1), share("10.0.0.9:80", 2)]);

        let version = state.version();
        state.set_addresses(0, vec![address("10.0.0.1:80"), address("10.0.0.2:80")]);
        assert_eq!(state.version(), version, "another order is not a change");
        before[1].0.set_healthy(false);
        state.set_addresses(0, vec![address("10.0.0.2:80"), address("10.0.0.3:80")]);
        let after = state.endpoints();
        assert!(state.version() != version && Arc::ptr_eq(&before[1].0, &after[0].0));
        assert!(!after[0].0.is_healthy() && after[1].0.is_healthy());
        before[0].0.count_failure();
        let counts = before[0].0.worker_counts();
        (0..3).for_each(|_| counts.begins(1));
        let counts = |state: &UpstreamState| (state.status(0)[0].requests, state.status(0)[0].failed);
        assert_eq!(counts(&state), (3, 1), "an address that has left stays counted");
        drop(before);
        state.set_addresses(0, (0..1_000).map(|at| SocketAddr::from(([10, 0, 1, 1], at))).collect());
        assert_eq!(state.endpoints().len(), MOST_ADDRESSES + 1);
        assert_eq!(counts(&state), (3, 1), "also when no request uses it any more");
    }

    #[test]
    fn a_reload_keeps_the_state_of_servers_that_stay() {
        let two = "servers: ['http://10.0.0.1:80', 'http://10.0.0.2:80']";
        let first = state(&format!("{two}, health: {{path: /}}, ejection: {{failures: 1}}"), None);
        let endpoints = first.endpoints();
        endpoints[0].0.set_healthy(false);
        first.failed(&endpoints[1].0, 1_000);
        assert!(endpoints[1].0.is_ejected(1_000));
        let more =
            "servers: ['http://10.0.0.3:80', 'http://10.0.0.2:80', {url: 'http://10.0.0.1:80', weight: 3}]";
        let next = state(&format!("{more}, health: {{path: /}}, balance: random"), Some(&first));
        let well: Vec<bool> =
            next.endpoints().iter().map(|(endpoint, _)| endpoint.is_available(1_000)).collect();
        assert_eq!((well, next.ejections()), (vec![true, false, false], 1));
        let unasked = state(&format!("{more}, ejection: off"), Some(&next));
        assert!(unasked.endpoints().iter().all(|(endpoint, _)| endpoint.is_available(1_000)));
    }

    #[test]
    fn ejections_are_limited() {
        let out = |count: usize, share: &str| {
            let servers: Vec<_> = (0..count).map(|at| format!("'http://10.0.0.{at}:80'")).collect();
            let ejection = format!("ejection: {{failures: 1, share: {share}}}");
            let state = state(&format!("servers: [{}], {ejection}", servers.join(", ")), None);
            let endpoints = state.endpoints();
            endpoints.iter().for_each(|(endpoint, _)| state.failed(endpoint, 1_000));
            endpoints.iter().filter(|(endpoint, _)| endpoint.is_ejected(1_000)).count()
        };
        assert_eq!(out(1, "100%"), 0, "the only endpoint");
        assert_eq!((out(2, "50%"), out(2, "100%"), out(3, "50%"), out(10, "50%")), (1, 1, 1, 5));
        assert_eq!(out(3, "1%"), 1, "at least one may be ejected");
        assert_eq!(out(4, "100%"), 3);
    }
}
