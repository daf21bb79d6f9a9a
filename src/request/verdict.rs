//! What is known about a request before its limits are evaluated, and what they decided.

use std::net::IpAddr;
use std::rc::Rc;

use sluicegate_limiter::Time;
use smallvec::SmallVec;

use crate::auth::Identity;
use crate::limit::{self, Ask, Decided, Decision, SelectedLimit, SlowerLane, Store};
use crate::respond::{LimitResults, StaticHeaders};
use crate::rules::RuleAnswer;
use crate::snapshot::Route;
use crate::tls::TlsSession;

/// Where a request comes from.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// The index of the listener in the snapshot.
    pub listener: usize,
    /// The address of the client, which a trusted proxy may have forwarded.
    pub client: IpAddr,
    /// The TLS session, if the connection has one.
    pub tls: Option<&'a TlsSession>,
    /// The rules of its keys that had to be asked for.
    pub rules: &'a [RuleAnswer],
}

/// A request with its route, the identity of its sender, and the limits that apply to it.
pub struct Matched<'s> {
    /// The route.
    pub route: &'s Route,
    /// The index of the route in the snapshot.
    pub route_index: usize,
    /// The address of the client, which may be another than that of the peer.
    pub client: IpAddr,
    /// The authenticated identity of the sender, which may be anonymous.
    pub identity: Identity<'s>,
    /// The normalized path, if it differs from the path of the request target.
    pub normal_path: Option<String>,
    /// The hash for consistent balancing, if the upstream hashes by a key that the request has.
    pub affinity: Option<u64>,
    /// The limits that apply, with the checks to run.
    pub selected: SmallVec<[SelectedLimit<'s>; 2]>,
    /// The limits of the route that do not apply, by their index in the snapshot.
    pub skipped: SmallVec<[(usize, SkipReason); 2]>,
}

/// A request whose limits have been evaluated.
#[derive(Clone, Copy)]
pub struct Evaluated<'m, 's> {
    /// The request with its route and limits.
    pub matched: &'m Matched<'s>,
    /// What its limits decided, and when.
    pub results: LimitResults<'m, 's>,
}

/// Why a limit of the route is not evaluated for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The client, its plan or its key is exempt.
    Exempt,
    /// The request lacks the key, and the limit skips such requests.
    NoKey,
    /// The request lacks the key. If the limit were enforced, it would be answered 401.
    WouldDeny,
    /// The limit does not cover such requests.
    NotApplicable,
}

impl<'s> Matched<'s> {
    /// The headers that all responses to such requests share.
    #[inline]
    pub fn static_headers(&self) -> &'s StaticHeaders {
        let plan = self.identity.plan();
        match self.selected.iter().any(|selected| selected.limit.counted.of_single_keys) {
            true => self.route.static_headers_for_rules(plan, &self.selected),
            false => self.route.static_headers_for(plan),
        }
    }

    /// Decides by the counters in this process. With `queue`, a request that a leaky bucket delays takes a place in its queue.
    #[inline]
    pub fn decide(&self, now: Time, queue: bool) -> Decision {
        let mut decision = match self.is_divided() {
            false => limit::decide(&self.selected, queue),
            true => limit::decide_fairly(&self.selected, now, queue),
        };
        if !decision.admitted && self.has_slower_lane() {
            decision = self.decide_slower(decision, queue);
        }
        decision
    }

    /// Whether a limit that applies is divided in fair shares.
    #[inline]
    pub fn is_divided(&self) -> bool {
        self.selected.iter().any(|selected| selected.fair.is_some())
    }

    /// Whether a limit that applies has a slower lane.
    #[inline]
    fn has_slower_lane(&self) -> bool {
        self.selected.iter().any(|selected| selected.limit.penalty.is_some())
    }

    /// Whether a store counts some of the limits that apply.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.selected.iter().any(|selected| selected.ask.limit.shared.is_some())
    }

    /// The asks of the limits, for a decision that changes their times.
    pub fn asks_mut(&mut self) -> SmallVec<[&mut Ask<'s>; 2]> {
        self.selected.iter_mut().map(|selected| &mut selected.ask).collect()
    }

    #[cold]
    fn decide_slower(&self, refused: Decision, queue: bool) -> Decision {
        match SlowerLane::after(refused, &self.selected) {
            Err(decision) => *decision,
            Ok(lane) => {
                let decision = limit::decide(&lane.asks, queue);
                lane.decided(decision)
            }
        }
    }

    /// The same if the store decides on some of the limits.
    pub async fn decide_in_store(&mut self, store: &Rc<Store>, now: Time) -> Decision {
        let decision = match self.is_divided() {
            false => limit::shared::decide(store, &mut self.asks_mut(), now).await,
            true => limit::decide_fairly_in_store(store, &self.selected, now).await,
        };
        match decision.admitted || !self.has_slower_lane() {
            true => decision,
            false => match SlowerLane::after(decision, &self.selected) {
                Err(decision) => *decision,
                Ok(mut lane) => {
                    // While the store answered, places of the lane have become free.
                    let (since, now) = (now, store.now());
                    let decision = {
                        let asks = lane.asks.iter_mut().map(|one| &mut one.ask);
                        let mut asks: SmallVec<[&mut Ask<'_>; 2]> = asks.collect();
                        asks.iter_mut().for_each(|ask| ask.renew(now));
                        limit::shared::decide_since(store, &mut asks, since, now).await
                    };
                    lane.decided(decision)
                }
            },
        }
    }

    /// The request with the decision of its limits, made at `now`.
    #[inline]
    pub fn with_decision<'m>(&'m self, decision: &'m Decision, now: Time) -> Evaluated<'m, 's> {
        let decided = Decided { selected: &self.selected, decision };
        let results = LimitResults { decided, static_headers: self.static_headers(), now };
        Evaluated { matched: self, results }
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
