//! 3: requests that do not prove who sent them, or have yet to.
//!
//! Looking keys up and verifying tokens costs something, and an answer 401 tells who guesses something. So limits that are
//! [asked the same](crate::snapshot::RouteLimit::open) whoever sent a request come first: where one is known to refuse,
//! they decide before anything is verified. A request that then fails to prove itself is charged by all limits that have a
//! key for it without a proof, and is answered 401 only if these admit it. One that proves itself is charged once, by all
//! its limits together.

use std::rc::Rc;

use http::StatusCode;
use sluicegate_limiter::Time;

use crate::auth::jwt::Jwt;
use crate::auth::{self, Identity, Unproven};
use crate::config::PathError;
use crate::limit::{self, Ask, Store, decide_for_now};
use crate::message::Response;
use crate::request::RequestContext;
use crate::request::cost::settled;
use crate::request::limit_selection::{Arrival, Asking, Scope};
use crate::request::verdict::{Found, Judged};
use crate::respond;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;

/// Why a request never came to its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unjudged {
    /// Its path is not one that all servers read alike.
    Path(PathError),
    /// It names no host, several, or something else than one.
    Host,
    /// Its connection began with the certificate of another host.
    Misdirected,
    /// A method that a gateway does not serve.
    Method,
    /// Its Connection header names what the request is nothing without.
    Nominated,
    /// Its body comes in a coding that is not just `chunked`, once.
    Framing,
    /// It asks what the gateway itself can do: `OPTIONS *`.
    Gateway,
    /// A browser asks whether a page may send a request (CORS), and the gateway answers that itself.
    Preflight {
        /// The index of the route that would take that request.
        route: Option<usize>,
    },
    /// No route matches.
    NoRoute,
    /// Its address is not let in.
    NotLetIn {
        /// The route's index.
        route: usize,
    },
    /// It has to prove who sent it, and does not.
    Unproven {
        /// The route's index.
        route: usize,
        /// Why not.
        why: Unproven,
    },
    /// The limit at this place of the route wants a key that the request lacks.
    KeyMissing {
        /// The route's index.
        route: usize,
        /// The limit's name.
        limit: String,
        /// Whether the key can be had with a token.
        of_user: bool,
    },
}

/// Why a request does not come to all of its limits.
pub enum Stop<'s> {
    /// It is answered without asking any limit.
    Unjudged(Unjudged),
    /// Limits that need no proof may refuse it, and are all that is asked as yet. Nothing is verified.
    Doubtful(Box<Found<'s>>),
    /// It has to prove who sent it, and does not.
    Denied(Box<Denied<'s>>),
}

/// A request that does not prove who sent it.
pub struct Denied<'s> {
    /// What was found out about it, with the limits that need no proof.
    pub found: Found<'s>,
    /// Why it is answered 401 if these admit it.
    pub why: Unjudged,
}

impl From<Unjudged> for Stop<'_> {
    fn from(why: Unjudged) -> Self {
        Self::Unjudged(why)
    }
}

impl<'s> Arrival<'s, '_, '_> {
    /// Who sent the request. `may_refuse` says whether limits that are asked this may refuse it.
    ///
    /// # Errors
    /// When it does not prove who sent it, or when limits may refuse it whoever sent it.
    #[inline(never)]
    pub(crate) fn identify(
        &self,
        jwt: Option<&Jwt>,
        may_refuse: &dyn Fn(&[Ask<'_>]) -> bool,
    ) -> Result<Identity<'s>, Stop<'s>> {
        // Who asks for the state of its limits is told also when they are used up.
        if self.snapshot.routes[self.route_index].target.is_some() {
            let asking = self.unproven(Scope::Open);
            if may_refuse(&asking.asks) {
                return Err(Stop::Doubtful(Box::new(self.found(Identity::default(), asking))));
            }
        }
        auth::identify(&self.snapshot.config.api_key, jwt, self.parts, self.now)
            .map_err(|why| self.denied(Unjudged::Unproven { route: self.route_index, why }))
    }

    /// The request is answered 401 if limits that need no proof admit it.
    #[cold]
    pub(crate) fn denied(&self, why: Unjudged) -> Stop<'s> {
        let found = self.found(Identity::default(), self.unproven(Scope::WithoutProof));
        Stop::Denied(Box::new(Denied { found, why }))
    }

    /// What the limits are asked as long as nothing is proved.
    fn unproven(&self, scope: Scope) -> Asking<'s> {
        let mut asking = Asking::default();
        // Without a proof no limit says that it lacks its key.
        let _ = self.ask(&mut asking, &Identity::default(), scope);
        asking
    }
}

impl<'s> Found<'s> {
    /// The refusal of a doubtful request by the counters of this process; `None` if its limits admit it after all, and
    /// nothing is charged.
    pub fn refused_here(self: Box<Self>, now: Time) -> Option<Judged<'s>> {
        let mut decision = decide_for_now(&self.asks);
        if decision.admitted {
            decision.holds.undo(now);
            return None;
        }
        Some(self.decided(decision, now))
    }

    /// The same where `store` decides about some of the limits.
    pub(crate) async fn refused(
        mut self: Box<Self>,
        store: Option<&Rc<Store>>,
        now: Time,
    ) -> Option<Judged<'s>> {
        let Some(store) = store else { return self.refused_here(now) };
        let mut asks = std::mem::take(&mut self.asks);
        asks.iter_mut().for_each(|ask| ask.for_now = true);
        let mut decision = limit::shared::decide(store, asks, now).await;
        if decision.admitted {
            decision.holds.undo(now);
            return None;
        }
        Some(self.decided(decision, now))
    }
}

/// The answer 401 to a request that its limits admit. They are charged for it, and those whose cost depends on the
/// status settle by this one.
pub(crate) async fn deny(
    mut judged: Judged<'_>,
    why: Unjudged,
    exchange: &mut RequestContext,
    parts: &RequestHead,
) -> Response {
    exchange.unjudged(&why, parts);
    exchange.hold(std::mem::take(&mut judged.decision.holds));
    if !judged.decision.delay.is_zero() {
        exchange.wait_for_turn().await;
    }
    exchange.answered(|cost, base| settled(cost, base, StatusCode::UNAUTHORIZED, &Headers::new()));
    let mut response = respond::unjudged(&why, parts, exchange.id());
    if let Some(told) = respond::Told::new(&judged) {
        told.write(judged.route, &mut response.headers);
    }
    response
}
