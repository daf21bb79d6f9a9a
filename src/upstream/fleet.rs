//! An upstream as one worker sees it: its servers with their connections, and the choice of one.

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
use super::member::Member;
use super::retry::Budget;
use super::server::Server;
use super::shared::{Lasting, UpstreamState};
use crate::boxed_future::boxed_future;
use crate::config::UpstreamConfig;
use crate::metrics::UpstreamMetrics;
use crate::request::RequestContext;

/// An upstream as one worker sees it.
pub struct Upstream {
    state: Arc<UpstreamState>,
    /// Remembers the sessions of TLS.
    connector: Option<TlsConnector>,
    fleet: RefCell<Fleet>,
    dice: Dice,
    pub(super) budget: Budget,
    pub(super) metrics: Arc<UpstreamMetrics>,
}

/// The servers as they were last seen.
struct Fleet {
    version: u64,
    places: Vec<Place>,
    /// In the same order.
    seats: Vec<Rc<Seat>>,
}

/// An address of a server, with this worker's connections.
pub(super) struct Seat {
    pub(super) member: Arc<Member>,
    pub(super) server: Server,
    /// Requests that this worker has there.
    in_flight: Rc<Cell<u32>>,
}

/// A request's place at a server. Dropping it frees the place.
pub(crate) struct Slot {
    pub(super) seat: Rc<Seat>,
    /// Whom to tell, where places are counted.
    counted: Option<Arc<Lasting>>,
}

/// Servers that a request was tried on.
pub(super) type Tried = SmallVec<[Rc<Seat>; 2]>;

/// What there is to choose.
enum Choice {
    Slot(Slot),
    /// All have as many requests as they may.
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
        let seats = before.map(|before| before.fleet.borrow().seats.clone()).unwrap_or_default();
        let connector = connector(&state.config);
        Self {
            state: Arc::clone(state),
            fleet: RefCell::new(Fleet::new(state, &seats, connector.as_ref())),
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
        for seat in &self.fleet.borrow().seats {
            seat.server.reap(now, self.config().idle);
        }
    }

    /// Takes over addresses that have changed.
    fn follow(&self) {
        let mut fleet = self.fleet.borrow_mut();
        if fleet.version != self.state.version() {
            *fleet = Fleet::new(&self.state, &fleet.seats, self.connector.as_ref());
        }
    }

    /// A place at a server that was not `tried`. Where all have as many requests as they may, it waits as long as for
    /// a connection.
    pub(super) async fn slot(
        &self,
        exchange: &RequestContext,
        tried: &[Rc<Seat>],
        now: u64,
    ) -> Result<Slot, ForwardError> {
        let key = exchange.affinity();
        match self.choose(key, tried, now) {
            Choice::Slot(slot) => return Ok(slot),
            Choice::Nobody => return Err(ForwardError::NoServer),
            Choice::Full => {}
        }
        let waiting = self.state.lasting().wait(self.config().max_pending).ok_or(ForwardError::Busy)?;
        let wait = async {
            loop {
                let mut freed = pin!(waiting.freed().notified());
                freed.as_mut().enable(); // what is freed from here on is not missed
                match self.choose(key, tried, now) {
                    Choice::Slot(slot) => return Ok(slot),
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

    /// Whether there is a server that is well and not among the `tried`.
    pub(super) fn has_others(&self, tried: &[Rc<Seat>], now: u64) -> bool {
        !self.fleet.borrow().candidates(tried, now).0.is_empty()
    }

    /// Whether the server of `seat` has another address that is well and not among the `tried`.
    pub(super) fn has_siblings(&self, seat: &Seat, tried: &[Rc<Seat>], now: u64) -> bool {
        let fleet = self.fleet.borrow();
        let authority = &seat.member.authority;
        fleet.candidates(tried, now).0.iter().any(|index| fleet.seats[*index].member.authority == *authority)
    }

    fn choose(&self, key: Option<u64>, tried: &[Rc<Seat>], now: u64) -> Choice {
        self.follow();
        let fleet = self.fleet.borrow();
        let (mut fit, all_are_ill) = fleet.candidates(tried, now);
        if fit.is_empty() {
            return Choice::Nobody;
        }
        if all_are_ill && tried.is_empty() {
            self.metrics.all_were_ill();
        }
        let max = self.config().max_connections;
        loop {
            if let Some(max) = max {
                fit.retain(|index| fleet.seats[*index].member.has_room(max));
            }
            let chosen = choose(&self.config().balance, &fleet.places, &fit, key, &self.dice);
            let Some(seat) = chosen.map(|index| &fleet.seats[index]) else { return Choice::Full };
            // Between the look and the step another worker may have taken the last place.
            if max.is_none_or(|max| seat.member.enter(max)) {
                seat.in_flight.set(seat.in_flight.get() + 1);
                let counted = max.map(|_| Arc::clone(self.state.lasting()));
                return Choice::Slot(Slot { seat: Rc::clone(seat), counted });
            }
        }
    }

    /// Notes what became of a request to a server.
    pub(super) fn note(&self, member: &Member, result: &Result<Response, ForwardError>, now: u64) {
        let statuses =
            self.config().ejection.as_ref().map(|ejection| &ejection.status[..]).unwrap_or_default();
        match result {
            Ok(_) => self.state.tell_answer(member),
            Err(error) if error.blames_server() => self.state.tell_failure(member, &error.told(), now),
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

impl Fleet {
    fn new(state: &UpstreamState, known: &[Rc<Seat>], connector: Option<&TlsConnector>) -> Self {
        let version = state.version(); // looked at first: what changes meanwhile is then seen the next time
        let members = state.members();
        let seats: Vec<Rc<Seat>> = members
            .iter()
            .map(|(member, _)| {
                let same = known.iter().find(|seat| Arc::ptr_eq(&seat.member, member));
                let same = same.filter(|seat| seat.server.speaks_as(&state.config));
                same.map_or_else(|| Rc::new(Seat::new(member, state, connector)), Rc::clone)
            })
            .collect();
        let place = |(seat, (member, weight)): (&Rc<Seat>, &(Arc<Member>, u64))| {
            Place::new(*weight, member.identity, Rc::clone(&seat.in_flight))
        };
        Self { version, places: seats.iter().zip(members.iter()).map(place).collect(), seats }
    }

    /// The servers that a request may go to: those that are well, or all if none is, which is told.
    fn candidates(&self, tried: &[Rc<Seat>], now: u64) -> (SmallVec<[usize; 16]>, bool) {
        let is_new = |index: &usize| !tried.iter().any(|seat| Rc::ptr_eq(seat, &self.seats[*index]));
        let well = (0..self.seats.len()).filter(|index| self.seats[*index].member.is_well(now));
        let well: SmallVec<[usize; 16]> = well.collect();
        match well.is_empty() {
            false if tried.is_empty() => (well, false),
            false => (well.into_iter().filter(is_new).collect(), false),
            true => ((0..self.seats.len()).filter(is_new).collect(), true),
        }
    }
}

impl Seat {
    fn new(member: &Arc<Member>, state: &UpstreamState, connector: Option<&TlsConnector>) -> Self {
        Self {
            server: Server::new(member, state, connector),
            member: Arc::clone(member),
            in_flight: Rc::default(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.seat.in_flight.set(self.seat.in_flight.get() - 1);
        if let Some(lasting) = &self.counted {
            self.seat.member.leave();
            lasting.freed();
        }
    }
}
