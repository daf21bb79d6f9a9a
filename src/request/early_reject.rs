//! Requests that are answered before all of their limits are evaluated.
//!
//! Looking up API keys and verifying tokens costs time, and a 401 tells a client that its guess was wrong. Therefore limits
//! that [do not depend on the identity](crate::snapshot::RouteLimit::identity_independent) of the sender are checked
//! first: if one of them is known to refuse, the request is refused before anything is verified. A request that then fails
//! authentication is charged by all limits whose key it has without authentication, and is answered 401 only if they admit
//! it. A request that is authenticated is charged once, by all of its limits together.

use std::rc::Rc;

use http::StatusCode;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use sluicegate_limiter::Time;

use crate::access_log::Outcome;
use crate::auth::{Answers, Identity, Question, Sources, Stop, Unproven};
use crate::limit::{self, Ask, Decision, Holds, Store, decide_for_now};
use crate::message::{LocalResponse, RequestId};
use crate::request::limit_selection::{LimitSelection, RoutedRequest, Scope};
use crate::request::verdict::{Evaluated, Matched};
use crate::request::{RequestContext, View};
use crate::respond::{self, LocalError, RateLimitHeaders};
use crate::rules::KeyQuestion;
use crate::snapshot::Target;
use sluicegate_config::PathError;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;

/// Why a request is answered before its limits are evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyReject {
    /// The path is malformed, or servers could read it in different ways.
    Path(PathError),
    /// The request does not name exactly one valid host.
    Host,
    /// The TLS connection was established for another host.
    Misdirected,
    /// The gateway does not serve this method.
    Method,
    /// The Connection header names a header that the request depends on.
    Nominated,
    /// The transfer coding is not exactly `chunked`.
    Framing,
    /// `OPTIONS *`: the client asks for the capabilities of the gateway.
    Capabilities,
    /// A CORS preflight request, which the gateway answers itself.
    Preflight {
        /// The index of the route that would take the actual request.
        route: Option<usize>,
    },
    /// No route matches.
    NoRoute,
    /// The allow and deny lists of the route exclude the address of the client.
    AddressDenied {
        /// The index of the route.
        route: usize,
    },
    /// Authentication is required and failed.
    Unproven {
        /// The index of the route.
        route: usize,
        /// Why it failed.
        why: Unproven,
    },
    /// A limit requires a key that the request lacks.
    KeyMissing {
        /// The index of the route.
        route: usize,
        /// The name of the limit.
        limit: String,
        /// Whether a token could supply the key.
        of_user: bool,
    },
}

impl EarlyReject {
    /// The index of the route, if one was found.
    pub fn route(&self) -> Option<usize> {
        match self {
            Self::KeyMissing { route, .. }
            | Self::Unproven { route, .. }
            | Self::AddressDenied { route }
            | Self::Preflight { route: Some(route) } => Some(*route),
            _ => None,
        }
    }

    /// The outcome in the access log.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::KeyMissing { .. } | Self::Unproven { .. } | Self::AddressDenied { .. } => Outcome::Refused,
            Self::Preflight { .. } => Outcome::Admitted,
            _ => Outcome::Unmatched,
        }
    }

    /// The error that the client is sent; `None` for requests that are answered without an error.
    pub fn error(&self) -> Option<LocalError> {
        Some(match self {
            Self::Path(PathError::NotAbsolute) => LocalError::Malformed("the request target is not a path"),
            Self::Path(PathError::Escape) => {
                LocalError::Malformed("the path has a % that is not followed by two hexadecimal digits")
            }
            Self::Path(PathError::EncodedSlash) => {
                LocalError::Malformed("the path has an encoded slash (%2F), which its route does not accept")
            }
            Self::Path(PathError::Backslash) => {
                LocalError::Malformed("the path has a backslash, which some servers take for a slash")
            }
            Self::Path(PathError::Control) => LocalError::Malformed("the path has a control character"),
            Self::Path(PathError::Ambiguous) => {
                LocalError::Malformed("the path is one that servers read in different ways")
            }
            Self::Path(PathError::Character) => {
                LocalError::Malformed("the path has a character that must be percent-encoded")
            }
            Self::Host => LocalError::Malformed("the request must name exactly one valid host"),
            Self::Misdirected => LocalError::Misdirected,
            Self::Method => LocalError::Method,
            Self::Nominated => LocalError::Malformed("the Connection header names what the request needs"),
            Self::Framing => LocalError::Malformed("the request has a transfer coding other than chunked"),
            Self::Capabilities | Self::Preflight { .. } => return None,
            Self::NoRoute => LocalError::NoRoute,
            Self::AddressDenied { .. } => LocalError::AddressDenied,
            Self::KeyMissing { of_user: true, .. } => LocalError::UserMissing,
            Self::KeyMissing { .. } => LocalError::KeyMissing,
            Self::Unproven { why: Unproven::NoKey, .. } => LocalError::NoApiKey,
            Self::Unproven { why: Unproven::UnknownKey, .. } => LocalError::UnknownApiKey,
            Self::Unproven { why: Unproven::Token(error), .. } => LocalError::Token(*error),
            Self::Unproven { why: Unproven::Refused(refusal), .. } => match refusal.status {
                StatusCode::FORBIDDEN => LocalError::CheckForbids,
                StatusCode::TOO_MANY_REQUESTS => LocalError::CheckDefers,
                _ => LocalError::CheckUnproven,
            },
            Self::Unproven { why: Unproven::Away, .. } => LocalError::AuthAway,
        })
    }
}

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

/// The response to a rejected request that is not a preflight request.
#[cold]
pub(crate) fn response(reject: &EarlyReject, parts: &RequestHead, id: &RequestId) -> LocalResponse {
    let Some(error) = reject.error() else { return respond::capabilities(id) };
    let mut response = error.response_to(parts, id);
    if let EarlyReject::Unproven { why: Unproven::Refused(refusal), .. } = reject {
        refusal.challenges.iter().for_each(|value| response.headers.append_value(WWW_AUTHENTICATE, value));
        if let Some(value) = &refusal.retry_after {
            response.headers.append_value(RETRY_AFTER, value);
        }
    }
    response
}
