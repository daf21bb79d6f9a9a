//! Requests that are answered before all of their limits are evaluated.
//!
//! Looking up API keys and verifying tokens costs time, and a 401 tells a client that its guess was wrong. Therefore limits
//! that [do not depend on the identity](crate::snapshot::RouteLimit::identity_independent) of the sender are checked
//! first: if one of them is known to refuse, the request is refused before anything is verified. A request that then fails
//! authentication is charged by all limits whose key it has without authentication, and is answered 401 only if they admit
//! it. A request that is authenticated is charged once, by all of its limits together.

use std::rc::Rc;

use http::StatusCode;
use sluicegate_limiter::Time;

use crate::auth::{Answers, Identity, Question, Sources, Stop};
use crate::limit::{self, Ask, Decision, Holds, Store, decide_for_now};
use crate::message::LocalResponse;
use crate::request::early_reject::{EarlyReject, response};
use crate::request::limit_selection::{LimitSelection, RoutedRequest, Scope};
use crate::request::verdict::{Evaluated, Matched};
use crate::request::{RequestContext, View};
use crate::respond::{LocalError, RateLimitHeaders};
use crate::rules::KeyQuestion;
use crate::snapshot::Target;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;

/// Why matching stopped before all limits of a request were selected.
pub enum EarlyExit<'s> {
    /// The request is answered without evaluating any limit.
    Rejected(EarlyReject),
    /// A limit that does not depend on the identity of the sender is known to refuse. Nothing was verified, and only such
    /// limits are selected.
    LikelyRefused(Box<Matched<'s>>),
    /// A service outside must be asked who sends the request. Nothing is charged yet.
    Ask {
        /// The index of the route.
        route: usize,
        /// What to ask.
        question: Box<Question>,
    },
    /// Authentication failed.
    Unauthenticated(Box<Unauthenticated<'s>>),
    /// The rules of some keys are not known.
    RulesUnknown(Box<RulesUnknown<'s>>),
}

/// A request the rules of whose keys are not known.
pub struct RulesUnknown<'s> {
    /// The request with its limits as if these keys had no rules.
    pub matched: Matched<'s>,
    /// The keys.
    pub questions: Vec<KeyQuestion>,
}

/// A request whose authentication failed.
pub struct Unauthenticated<'s> {
    /// The request with the limits whose key it has without authentication.
    pub matched: Matched<'s>,
    /// The rejection to send if these limits admit the request.
    pub reject: EarlyReject,
}

impl From<EarlyReject> for EarlyExit<'_> {
    fn from(reject: EarlyReject) -> Self {
        Self::Rejected(reject)
    }
}

impl<'s> RoutedRequest<'s, '_, '_> {
    /// Authenticates the sender. `may_refuse` says whether any of these checks is known to refuse.
    ///
    /// # Errors
    /// If authentication fails or waits for an answer from outside, or if a limit that does not depend on it is known to refuse.
    #[inline(never)]
    pub(crate) fn identify(
        &self,
        sources: Sources<'s, '_>,
        answers: &Answers,
        may_refuse: &dyn Fn(&[Ask<'_>]) -> bool,
    ) -> Result<Identity<'s>, EarlyExit<'s>> {
        // The state of limits is reported even if they are used up.
        if !matches!(self.snapshot.routes[self.route_index].target, Target::Usage) {
            let selection = self.select_unauthenticated(Scope::IdentityIndependent);
            if may_refuse(&selection.asks) {
                let matched = self.matched(Identity::default(), selection);
                return Err(EarlyExit::LikelyRefused(Box::new(matched)));
            }
        }
        let route = &self.snapshot.routes[self.route_index].name;
        sources.identify(route, self.parts, answers, self.now).map_err(|stop| match stop {
            Stop::Unproven(why) => {
                self.unauthenticated(EarlyReject::Unproven { route: self.route_index, why })
            }
            Stop::Ask(question) => EarlyExit::Ask { route: self.route_index, question: Box::new(question) },
        })
    }

    /// Rejects the request, if the limits whose key it has without authentication admit it.
    #[cold]
    pub(crate) fn unauthenticated(&self, reject: EarlyReject) -> EarlyExit<'s> {
        let selection = self.select_unauthenticated(Scope::Unauthenticated);
        let matched = self.matched(Identity::default(), selection);
        EarlyExit::Unauthenticated(Box::new(Unauthenticated { matched, reject }))
    }

    /// The request has to wait for the rules of its keys.
    #[cold]
    pub(crate) fn rules_unknown(
        &self,
        identity: Identity<'s>,
        mut selection: LimitSelection<'s>,
    ) -> EarlyExit<'s> {
        let questions = std::mem::take(&mut selection.unknown);
        let matched = self.matched(identity, selection);
        EarlyExit::RulesUnknown(Box::new(RulesUnknown { matched, questions }))
    }

    /// Selects limits of this scope as long as the sender is not authenticated.
    fn select_unauthenticated(&self, scope: Scope) -> LimitSelection<'s> {
        let mut selection = LimitSelection::default();
        // Within these scopes a missing key is no error.
        let _ = self.select(&mut selection, &Identity::default(), scope);
        selection
    }
}

impl<'s> Matched<'s> {
    /// The refusal by the counters of this process of a request that is [likely refused](EarlyExit::LikelyRefused);
    /// `None` if its limits admit it after all. Then nothing is charged.
    pub fn refused_locally(&self, now: Time) -> Option<Decision> {
        let mut decision = decide_for_now(&self.asks);
        if decision.admitted {
            decision.holds.undo(now);
            return None;
        }
        Some(decision)
    }

    /// The same if `store` decides on some of the limits.
    pub(crate) async fn refused(&mut self, store: Option<&Rc<Store>>, now: Time) -> Option<Decision> {
        let Some(store) = store else { return self.refused_locally(now) };
        self.asks.iter_mut().for_each(|ask| ask.for_now = true);
        let mut decision = limit::shared::decide(store, &mut self.asks, now).await;
        if decision.admitted {
            decision.holds.undo(store.now());
            return None;
        }
        Some(decision)
    }
}

/// The response to an unauthenticated request that its limits admit. They are charged; those whose cost depends on the
/// status are settled with the one of the response.
pub(crate) async fn respond_unauthenticated(
    evaluated: Evaluated<'_, '_>,
    holds: Holds,
    reject: EarlyReject,
    (view, context): (&View, &mut RequestContext),
    parts: &RequestHead,
) -> LocalResponse {
    context.set_rejected(&view.snapshot, &reject, parts);
    context.hold(holds);
    if !evaluated.decision.delay.is_zero() {
        context.wait_for_turn().await;
    }
    let status = reject.error().map_or(StatusCode::UNAUTHORIZED, LocalError::status);
    context.charge(&view.snapshot, status, &Headers::new());
    let mut response = response(&reject, parts, context.id());
    if let Some(headers) = RateLimitHeaders::new(evaluated.results()) {
        headers.write(response.status, &mut response.headers);
    }
    context.remember(view, parts, &response, |refused| refused.limited(evaluated));
    response
}
