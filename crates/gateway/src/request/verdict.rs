//! What is known about a request before its limits are evaluated, and what they decided.

use sluicegate_limiter::Time;

use crate::limit::{Decided, Decision, SelectedLimit};
use crate::request::early_reject::EarlyReject;
use crate::request::limit_selection::{LimitSelection, SkipReason};
use crate::respond::{LimitResults, StaticHeaders};
use crate::snapshot::{Route, Target};
use sluicegate_auth::Identity;

/// A request with its route and the identity of its sender.
pub struct Matched<'s> {
    /// The route.
    pub route: &'s Route,
    /// The index of the route in the snapshot.
    pub route_index: usize,
    /// The authenticated identity of the sender, which may be anonymous.
    pub identity: Identity<'s>,
    /// The normalized path, if it differs from the path of the request target.
    pub normal_path: Option<Box<str>>,
    /// The hash for consistent balancing, if the upstream hashes by a key that the request has.
    pub affinity: Option<u64>,
    /// Why authentication failed, if it did: the request is rejected if its limits admit it. They are those whose key it has
    /// without authentication.
    pub reject: Option<Box<EarlyReject>>,
}

/// A request whose limits have been evaluated.
#[derive(Clone, Copy)]
pub struct Evaluated<'m, 's> {
    /// The request with its route.
    pub matched: &'m Matched<'s>,
    /// The limits of the route that do not apply, by their index in the snapshot.
    pub skipped: &'m [(usize, SkipReason)],
    /// What its limits decided, and when.
    pub results: LimitResults<'m, 's>,
}

impl<'s> Matched<'s> {
    /// The headers that all responses to such requests share.
    #[inline]
    pub fn static_headers(&self, selected: &[SelectedLimit<'s>]) -> &'s StaticHeaders {
        let plan = self.identity.plan();
        match selected.iter().any(|one| one.limit.counted.of_single_keys) {
            true => self.route.static_headers_for_rules(plan, selected),
            false => self.route.static_headers_for(plan),
        }
    }

    /// Whether its limits decide on it, and it is not only asked for their state.
    #[inline]
    pub fn is_to_be_served(&self) -> bool {
        self.reject.is_none() && !matches!(self.route.target, Target::Usage)
    }

    /// The request with the decision of its limits, made at `now`.
    #[inline]
    pub fn with_decision<'m>(
        &'m self,
        selection: &'m LimitSelection<'s>,
        decision: &'m Decision,
        now: Time,
    ) -> Evaluated<'m, 's> {
        let LimitSelection { selected, skipped, .. } = selection;
        let decided = Decided { selected, decision };
        let results = LimitResults { decided, static_headers: self.static_headers(selected), now };
        Evaluated { matched: self, skipped, results }
    }
}

impl<'m, 's> Evaluated<'m, 's> {
    /// The limits with their verdicts.
    #[inline]
    pub fn decided(&self) -> Decided<'m, 's> {
        self.results.decided
    }

    /// The decision of the limits.
    #[inline]
    pub fn decision(&self) -> &'m Decision {
        self.results.decided.decision
    }
}
