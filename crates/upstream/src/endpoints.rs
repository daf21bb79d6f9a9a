//! An upstream as one worker sees it: its endpoints with their connections, and the choice of one.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio_rustls::TlsConnector;

use super::ForwardError;
use super::balance::{Candidate, RandomSource, choose};
use super::body::Response;
use super::connect::connector;
use super::endpoint_state::EndpointState;
use super::exchange::Exchange;
use super::permit::{EndpointUse, Permit};
use super::retry::RetryBudget;
use super::server::Server;
use super::upstream_state::UpstreamState;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_config::UpstreamConfig;
use sluicegate_observe::metrics::UpstreamMetrics;
use sluicegate_wire::headers::NameCase;

/// An upstream as one worker sees it.
pub struct Upstream {
    state: Arc<UpstreamState>,
    /// Keeps TLS sessions for resumption; `None` without TLS.
    connector: Option<TlsConnector>,
    set: RefCell<EndpointSet>,
    random: RandomSource,
    /// The upstream of this name under the configuration in force, for requests that wait over a reload.
    latest: Rc<RefCell<Weak<Self>>>,
    pub(super) retry_budget: RetryBudget,
    pub(super) metrics: Arc<UpstreamMetrics>,
}

/// The endpoints of one version of the upstream state.
struct EndpointSet {
    version: u64,
    candidates: Vec<Candidate>,
    /// In the order of `candidates`.
    endpoints: Vec<Rc<Endpoint>>,
}

/// An endpoint: one address of a server, with the connections of this worker.
pub(super) struct Endpoint {
    pub(super) server: Server,
    used: Rc<EndpointUse>,
}

/// The endpoints that were tried for a request.
pub(super) type Tried = SmallVec<[Rc<Endpoint>; 2]>;

/// How often a request that waits for a permit looks for changes that nobody notifies it of.
const RECHECK: Duration = Duration::from_millis(100);

/// The result of a choice.
enum Choice {
    Chosen(Rc<Endpoint>, Permit),
    /// All endpoints are at `max_connections`.
    Full,
    /// There is no endpoint that is ready and was not tried.
    None,
}

impl Upstream {
    /// An upstream of a worker. Addresses that `before` had keep their connections.
    pub fn new(
        state: &Arc<UpstreamState>,
        metrics: Arc<UpstreamMetrics>,
        seed: u64,
        before: Option<&Self>,
    ) -> Rc<Self> {
        let endpoints = before.map(|before| before.set.borrow().endpoints.clone()).unwrap_or_default();
        let connector = connector(state);
        let latest = before.map(|before| Rc::clone(&before.latest)).unwrap_or_default();
        let upstream = Rc::new(Self {
            state: Arc::clone(state),
            set: RefCell::new(EndpointSet::new(state, &endpoints, connector.as_ref())),
            connector,
            random: RandomSource::new(seed),
            latest,
            retry_budget: RetryBudget::new(),
            metrics,
        });
        upstream.latest.replace(Rc::downgrade(&upstream));
        upstream
    }

    /// Its configuration.
    pub fn config(&self) -> &UpstreamConfig {
        &self.state.config
    }

    /// The case in which names of request headers are written; `None` for lower case.
    pub(super) fn header_case(&self) -> Option<&NameCase> {
        self.state.header_case.as_ref()
    }

    /// The state that all workers share.
    pub fn state(&self) -> &Arc<UpstreamState> {
        &self.state
    }

    /// Drops idle connections that are old or closed, and those to endpoints that were removed. `now` is in the worker's
    /// milliseconds.
    pub fn reap(&self, now: u64) {
        self.update_endpoints();
        for endpoint in &self.set.borrow().endpoints {
            endpoint.server.reap(now, self.config().timeouts.keep_alive);
        }
    }

    /// Applies changes of the resolved addresses.
    fn update_endpoints(&self) {
        let mut set = self.set.borrow_mut();
        if set.version != self.state.version() {
            *set = EndpointSet::new(&self.state, &set.endpoints, self.connector.as_ref());
        }
    }

    /// A permit for an endpoint that was not `tried`. If all are at `max_connections`, waits at most the connect timeout.
    /// `affinity` is the hash for consistent balancing.
    pub(super) async fn permit(
        &self,
        exchange: &Exchange,
        affinity: Option<u64>,
        tried: &[Rc<Endpoint>],
    ) -> Result<(Rc<Endpoint>, Permit), ForwardError> {
        let now = || exchange.connection().worker.deadlines.now();
        match self.choose(affinity, tried, now()) {
            Choice::Chosen(endpoint, permit) => return Ok((endpoint, permit)),
            Choice::None => return Err(self.none_left(tried)),
            Choice::Full => {}
        }
        let persistent = self.state.persistent();
        let waiting =
            persistent.wait(self.config().max_pending, !tried.is_empty()).ok_or(ForwardError::Busy)?;
        let wait = async {
            loop {
                let mut freed = pin!(waiting.freed().notified());
                freed.as_mut().enable(); // so that a release during the choice is not missed
                let latest = self.latest.borrow().upgrade();
                match latest.as_deref().unwrap_or(self).choose(affinity, tried, now()) {
                    Choice::Chosen(endpoint, permit) => return Ok((endpoint, permit)),
                    Choice::None => {
                        persistent.freed(); // another request may use what this one cannot
                        return Err(self.none_left(tried));
                    }
                    // Nobody notifies when an ejection ends, a server becomes healthy, or a reload raises the limit.
                    Choice::Full => _ = tokio::time::timeout(RECHECK, freed).await,
                }
            }
        };
        let waited =
            exchange.with_timeout(self.config().timeouts.connect, boxed_future(|| wait).as_mut()).await;
        let late = || if exchange.is_over() { ForwardError::ResponseTimeout } else { ForwardError::Busy };
        waited.unwrap_or_else(|| Err(late()))
    }

    /// Whether there is a healthy endpoint that was not `tried`.
    pub(super) fn has_others(&self, tried: &[Rc<Endpoint>], now: u64) -> bool {
        !self.set.borrow().eligible(tried, now).0.is_empty()
    }

    /// Whether the server of `endpoint` has another healthy address that was not `tried`.
    pub(super) fn has_siblings(&self, endpoint: &Endpoint, tried: &[Rc<Endpoint>], now: u64) -> bool {
        let set = self.set.borrow();
        let authority = &endpoint.state().authority;
        set.eligible(tried, now).0.iter().any(|index| set.endpoints[*index].state().authority == *authority)
    }

    fn choose(&self, key: Option<u64>, tried: &[Rc<Endpoint>], now: u64) -> Choice {
        self.update_endpoints();
        let set = self.set.borrow();
        let (mut eligible, is_panic) = set.eligible(tried, now);
        if eligible.is_empty() {
            return Choice::None;
        }
        if is_panic && tried.is_empty() {
            self.metrics.panicked();
        }
        let max = self.config().max_connections;
        loop {
            if let Some(max) = max {
                eligible.retain(|index| set.endpoints[*index].state().has_room(max));
            }
            let chosen = choose(&self.config().balance, &set.candidates, &eligible, key, &self.random);
            let Some(endpoint) = chosen.map(|index| &set.endpoints[index]) else { return Choice::Full };
            // Another worker may have taken the last permit since the check above.
            if max.is_none_or(|max| endpoint.state().acquire(max)) {
                let counted = max.map(|_| Arc::clone(self.state.persistent()));
                return Choice::Chosen(Rc::clone(endpoint), endpoint.used.begin(counted));
            }
        }
    }

    /// Why there is no endpoint for a request that has `tried` these.
    #[cold]
    fn none_left(&self, tried: &[Rc<Endpoint>]) -> ForwardError {
        match tried.is_empty() && !self.set.borrow().endpoints.is_empty() {
            true => ForwardError::Drained,
            false => ForwardError::NoServer,
        }
    }

    /// Records the result of a request for logs and health.
    pub(super) fn note(&self, endpoint: &EndpointState, result: &Result<Response, ForwardError>, now: u64) {
        let statuses =
            self.config().ejection.as_ref().map(|ejection| &ejection.status[..]).unwrap_or_default();
        match result {
            Ok(response) => {
                self.state.note_response(endpoint);
                match statuses.contains(&response.status) {
                    true => {
                        endpoint.count_failure();
                        self.state.failed(endpoint, now);
                    }
                    false => endpoint.add_success(),
                }
            }
            Err(error) if error.blames_server() => {
                endpoint.count_failure();
                self.state.note_failure(endpoint, error, now);
                self.state.failed(endpoint, now);
            }
            Err(_) => {}
        }
    }
}

impl EndpointSet {
    /// The endpoints of the state in its present version. Those that are `known` and still apply keep their connections.
    fn new(state: &UpstreamState, known: &[Rc<Endpoint>], connector: Option<&TlsConnector>) -> Self {
        let version = state.version(); // read first, so that a change during this function is seen at the next check
        let (mut endpoints, mut candidates) = (Vec::new(), Vec::new());
        for (shared, weight) in state.endpoints().iter() {
            let same = known.iter().find(|endpoint| Arc::ptr_eq(endpoint.state(), shared));
            let same = same.filter(|endpoint| endpoint.server.connects_as(state));
            let endpoint = same.map_or_else(|| Rc::new(Endpoint::new(shared, state, connector)), Rc::clone);
            candidates.push(Candidate::new(*weight, shared.identity, Rc::clone(&endpoint.used.in_flight)));
            endpoints.push(endpoint);
        }
        Self { version, candidates, endpoints }
    }

    /// The endpoints that a request may use: the available ones, or all that are ready if none is available (panic mode). The
    /// flag is set in panic mode.
    fn eligible(&self, tried: &[Rc<Endpoint>], now: u64) -> (SmallVec<[usize; 16]>, bool) {
        let is_new =
            |index: &usize| !tried.iter().any(|endpoint| Rc::ptr_eq(endpoint, &self.endpoints[*index]));
        let available =
            (0..self.endpoints.len()).filter(|index| self.endpoints[*index].state().is_available(now));
        let available: SmallVec<[usize; 16]> = available.collect();
        match available.is_empty() {
            false if tried.is_empty() => (available, false),
            false => (available.into_iter().filter(is_new).collect(), false),
            true => {
                let ready =
                    (0..self.endpoints.len()).filter(|index| self.endpoints[*index].state().is_ready());
                (ready.filter(is_new).collect(), true)
            }
        }
    }
}

impl Endpoint {
    fn new(state: &Arc<EndpointState>, upstream: &UpstreamState, connector: Option<&TlsConnector>) -> Self {
        Self { server: Server::new(state, upstream, connector), used: EndpointUse::new(state) }
    }

    /// The state that all workers share.
    pub(super) fn state(&self) -> &Arc<EndpointState> {
        &self.used.state
    }
}
