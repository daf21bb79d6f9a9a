//! An upstream as one worker sees it: its endpoints with their connections, and the choice of one.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio_rustls::TlsConnector;

use super::ForwardError;
use super::balance::{Dice, Place, choose};
use super::body::Response;
use super::connect::connector;
use super::endpoint_state::EndpointState;
use super::exchange::Exchange;
use super::retry::Budget;
use super::server::Server;
use super::upstream_state::{Lasting, UpstreamState};
use crate::boxed_future::boxed_future;
use crate::metrics::UpstreamMetrics;
use sluicegate_config::UpstreamConfig;

/// An upstream as one worker sees it.
pub struct Upstream {
    state: Arc<UpstreamState>,
    /// Remembers the sessions of TLS.
    connector: Option<TlsConnector>,
    set: RefCell<EndpointSet>,
    dice: Dice,
    pub(super) budget: Budget,
    pub(super) metrics: Arc<UpstreamMetrics>,
}

/// The endpoints of one version of the upstream state.
struct EndpointSet {
    version: u64,
    places: Vec<Place>,
    /// In the order of `places`.
    endpoints: Vec<Rc<Endpoint>>,
}

/// An endpoint: one address of a server, with the connections of this worker.
pub(super) struct Endpoint {
    pub(super) member: Arc<EndpointState>,
    pub(super) server: Server,
    /// Requests in flight from this worker.
    in_flight: Rc<Cell<u32>>,
}

/// The permit of one request to use an endpoint. Dropping it releases the permit.
pub(crate) struct Permit {
    pub(super) endpoint: Rc<Endpoint>,
    /// Notified on release, if `max_connections` limits the requests in flight.
    counted: Option<Arc<Lasting>>,
}

/// The endpoints that were tried for a request.
pub(super) type Tried = SmallVec<[Rc<Endpoint>; 2]>;

/// The result of a choice.
enum Choice {
    Permit(Permit),
    /// All endpoints are at `max_connections`.
    Full,
    Nobody,
}

impl Upstream {
    /// An upstream of a worker. Addresses that `before` had keep their connections.
    pub fn new(
        state: &Arc<UpstreamState>,
        metrics: Arc<UpstreamMetrics>,
        seed: u64,
        before: Option<&Self>,
    ) -> Self {
        let endpoints = before.map(|before| before.set.borrow().endpoints.clone()).unwrap_or_default();
        let connector = connector(state);
        Self {
            state: Arc::clone(state),
            set: RefCell::new(EndpointSet::new(state, &endpoints, connector.as_ref())),
            connector,
            dice: Dice::new(seed),
            budget: Budget::new(),
            metrics,
        }
    }

    /// What the file says.
    pub fn config(&self) -> &UpstreamConfig {
        &self.state.config
    }

    /// What it shares with the other workers.
    pub fn state(&self) -> &Arc<UpstreamState> {
        &self.state
    }

    /// Drops kept connections that are old or closed, and those to addresses that are gone. `now` is the worker's
    /// milliseconds.
    pub fn reap(&self, now: u64) {
        self.follow();
        for endpoint in &self.set.borrow().endpoints {
            endpoint.server.reap(now, self.config().idle);
        }
    }

    /// Takes over addresses that have changed.
    fn follow(&self) {
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
        now: u64,
    ) -> Result<Permit, ForwardError> {
        match self.choose(affinity, tried, now) {
            Choice::Permit(permit) => return Ok(permit),
            Choice::Nobody => return Err(ForwardError::NoServer),
            Choice::Full => {}
        }
        let waiting = self.state.lasting().wait(self.config().max_pending).ok_or(ForwardError::Busy)?;
        let wait = async {
            loop {
                let mut freed = pin!(waiting.freed().notified());
                freed.as_mut().enable(); // what is freed from here on is not missed
                match self.choose(affinity, tried, now) {
                    Choice::Permit(permit) => return Ok(permit),
                    Choice::Nobody => return Err(ForwardError::NoServer),
                    Choice::Full => freed.await,
                }
            }
        };
        exchange
            .in_time(self.config().connect, boxed_future(|| wait))
            .await
            .unwrap_or(Err(ForwardError::Busy))
    }

    /// Whether there is a healthy endpoint that was not `tried`.
    pub(super) fn has_others(&self, tried: &[Rc<Endpoint>], now: u64) -> bool {
        !self.set.borrow().candidates(tried, now).0.is_empty()
    }

    /// Whether the server of `endpoint` has another healthy address that was not `tried`.
    pub(super) fn has_siblings(&self, endpoint: &Endpoint, tried: &[Rc<Endpoint>], now: u64) -> bool {
        let set = self.set.borrow();
        let authority = &endpoint.member.authority;
        set.candidates(tried, now).0.iter().any(|index| set.endpoints[*index].member.authority == *authority)
    }

    fn choose(&self, key: Option<u64>, tried: &[Rc<Endpoint>], now: u64) -> Choice {
        self.follow();
        let set = self.set.borrow();
        let (mut fit, all_are_ill) = set.candidates(tried, now);
        if fit.is_empty() {
            return Choice::Nobody;
        }
        if all_are_ill && tried.is_empty() {
            self.metrics.all_were_ill();
        }
        let max = self.config().max_connections;
        loop {
            if let Some(max) = max {
                fit.retain(|index| set.endpoints[*index].member.has_room(max));
            }
            let chosen = choose(&self.config().balance, &set.places, &fit, key, &self.dice);
            let Some(endpoint) = chosen.map(|index| &set.endpoints[index]) else { return Choice::Full };
            // Another worker may have taken the last permit since the check.
            if max.is_none_or(|max| endpoint.member.enter(max)) {
                endpoint.in_flight.set(endpoint.in_flight.get() + 1);
                let counted = max.map(|_| Arc::clone(self.state.lasting()));
                return Choice::Permit(Permit { endpoint: Rc::clone(endpoint), counted });
            }
        }
    }

    /// Records the result of a request for logs and health.
    pub(super) fn note(&self, member: &EndpointState, result: &Result<Response, ForwardError>, now: u64) {
        let statuses =
            self.config().ejection.as_ref().map(|ejection| &ejection.status[..]).unwrap_or_default();
        match result {
            Ok(_) => self.state.note_response(member),
            Err(error) if error.blames_server() => self.state.note_failure(member, &error.told(), now),
            Err(_) => {}
        }
        match result {
            Ok(response) if statuses.contains(&response.status) => self.state.failed(member, now),
            Ok(_) => member.succeeded(),
            Err(error) if error.blames_server() => self.state.failed(member, now),
            Err(_) => {}
        }
    }
}

impl EndpointSet {
    fn new(state: &UpstreamState, known: &[Rc<Endpoint>], connector: Option<&TlsConnector>) -> Self {
        let version = state.version(); // looked at first: what changes meanwhile is then seen the next time
        let members = state.members();
        let endpoints: Vec<Rc<Endpoint>> = members
            .iter()
            .map(|(member, _)| {
                let same = known.iter().find(|endpoint| Arc::ptr_eq(&endpoint.member, member));
                let same = same.filter(|endpoint| endpoint.server.speaks_as(state));
                same.map_or_else(|| Rc::new(Endpoint::new(member, state, connector)), Rc::clone)
            })
            .collect();
        let place = |(endpoint, (member, weight)): (&Rc<Endpoint>, &(Arc<EndpointState>, u64))| {
            Place::new(*weight, member.identity, Rc::clone(&endpoint.in_flight))
        };
        Self { version, places: endpoints.iter().zip(members.iter()).map(place).collect(), endpoints }
    }

    /// The endpoints that a request may use: the healthy ones, or all if none is healthy (panic mode). The flag is set in
    /// panic mode.
    fn candidates(&self, tried: &[Rc<Endpoint>], now: u64) -> (SmallVec<[usize; 16]>, bool) {
        let is_new =
            |index: &usize| !tried.iter().any(|endpoint| Rc::ptr_eq(endpoint, &self.endpoints[*index]));
        let well = (0..self.endpoints.len()).filter(|index| self.endpoints[*index].member.is_well(now));
        let well: SmallVec<[usize; 16]> = well.collect();
        match well.is_empty() {
            false if tried.is_empty() => (well, false),
            false => (well.into_iter().filter(is_new).collect(), false),
            true => ((0..self.endpoints.len()).filter(is_new).collect(), true),
        }
    }
}

impl Endpoint {
    fn new(member: &Arc<EndpointState>, state: &UpstreamState, connector: Option<&TlsConnector>) -> Self {
        Self {
            server: Server::new(member, state, connector),
            member: Arc::clone(member),
            in_flight: Rc::default(),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.endpoint.in_flight.set(self.endpoint.in_flight.get() - 1);
        if let Some(lasting) = &self.counted {
            self.endpoint.member.leave();
            lasting.freed();
        }
    }
}
