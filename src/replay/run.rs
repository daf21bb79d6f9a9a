//! Decides the requests of logs, one after another.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use http::StatusCode;
use sluicegate_limiter::{Span, Time};

use super::Request;
use super::row::Row;
use super::unmatched::Unmatched;
use crate::access_log::Outcome;
use crate::auth::Answers;
use crate::client_address;
use crate::keys::KeyText;
use crate::limit::{self, Holds, decide};
use crate::request::cost::settled;
use crate::request::early_reject::{EarlyExit, EarlyReject, Unauthenticated};
use crate::request::pipeline::match_answered;
use crate::request::verdict::{Evaluated, Matched, Origin};
use crate::respond::{reported_verdict, retry_after};
use crate::snapshot::{Snapshot, Target};
use sluicegate_wire::Headers;

/// The state of a replay.
pub struct Replay<'s> {
    snapshot: &'s Snapshot,
    /// The index of the listener that the requests came in on.
    listener: usize,
    /// The latest time of a request so far.
    now: Time,
    in_flight: BinaryHeap<Reverse<Ending>>,
    /// Counts by limit.
    pub limits: BTreeMap<String, LimitCount>,
    /// Requests that hold a place of a concurrency limit but have no duration.
    pub without_duration: u64,
    /// Requests that match no route.
    pub unmatched: Unmatched,
}

/// The decisions of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitCount {
    /// Requests that it admitted.
    pub admitted: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// Requests that it would have refused.
    pub shadow_refused: u64,
    /// Requests that its candidate would have refused.
    pub candidate_refused: u64,
}

/// The end of a request, which releases its holds.
struct Ending {
    at: Time,
    _holds: Holds,
}

impl PartialEq for Ending {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Ending {}

impl PartialOrd for Ending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl<'s> Replay<'s> {
    /// A replay under the rules of a snapshot, of requests to the listener with this index.
    pub fn new(snapshot: &'s Snapshot, listener: usize) -> Self {
        Self {
            snapshot,
            listener,
            now: Time::EPOCH,
            in_flight: BinaryHeap::new(),
            limits: BTreeMap::new(),
            without_duration: 0,
            unmatched: Unmatched::default(),
        }
    }

    /// Decides on the next request. A time before that of an earlier request counts as the latest time.
    pub fn decide(&mut self, request: &Request) -> Row {
        self.now = self.now.max(request.time);
        while self.in_flight.peek().is_some_and(|Reverse(ending)| ending.at <= self.now) {
            self.in_flight.pop(); // which releases its places
        }
        let snapshot = self.snapshot;
        let mut parts = Cow::Borrowed(&request.parts);
        if parts.headers.has_underscores() {
            snapshot.underscores.clean(&mut parts.to_mut().headers);
        }
        let config = &snapshot.config;
        let client = client_address::resolve(
            &config.client_ip,
            &config.resources.lists,
            request.client,
            &parts.headers,
        );
        let origin = Origin { listener: self.listener, client, tls: None, rules: &[] };
        let answers = Answers::offline();
        let reject = match match_answered(snapshot, origin, &parts, self.now, &limit::may_refuse, &answers) {
            Ok(matched) if matches!(matched.route.target, Target::Usage) => {
                return Row {
                    outcome: Outcome::Admitted, // it is answered without a charge
                    route: Some(matched.route.name.clone()),
                    ..Row::unmatched(client)
                };
            }
            Ok(matched) => return self.evaluate(matched, request, request.status),
            // A replay has no rules.
            Err(EarlyExit::RulesUnknown(unknown)) => {
                return self.evaluate(unknown.matched, request, request.status);
            }
            // Nothing is released meanwhile, so the limits do refuse.
            Err(EarlyExit::LikelyRefused(matched)) => return self.evaluate(*matched, request, None),
            Err(EarlyExit::Unauthenticated(unauthenticated)) => {
                let Unauthenticated { matched, reject } = *unauthenticated;
                let row = self.evaluate(matched, request, Some(StatusCode::UNAUTHORIZED));
                let limit = match reject {
                    EarlyReject::KeyMissing { limit, .. } => Some(limit),
                    _ => None,
                };
                return match row.outcome {
                    Outcome::Admitted => Row { outcome: Outcome::Refused, limit, remaining: None, ..row },
                    _ => row,
                };
            }
            Err(EarlyExit::Ask(_)) => return Row::unmatched(client), // all is answered
            Err(EarlyExit::Rejected(reject)) => reject,
        };
        let unmatched = Row::unmatched(client);
        match reject {
            EarlyReject::AddressDenied { route } => Row {
                outcome: Outcome::Refused,
                route: Some(snapshot.routes[route].name.clone()),
                ..unmatched
            },
            EarlyReject::Preflight { route } => Row {
                outcome: Outcome::Admitted, // the gateway answers it without a charge
                route: route.map(|route| snapshot.routes[route].name.clone()),
                ..unmatched
            },
            reject => {
                self.unmatched.add(snapshot, self.listener, &request.parts, &reject);
                unmatched
            }
        }
    }

    /// Evaluates the limits; `status` is that of the response if they admit the request.
    fn evaluate(&mut self, mut matched: Matched<'_>, request: &Request, status: Option<StatusCode>) -> Row {
        let decision = decide(&matched.asks, false);
        let reported = reported_verdict(&matched.selected, &decision);
        let key = reported.map(|at| std::mem::take(&mut matched.asks[at].text)).unwrap_or_default();
        self.row(matched.with_decision(decision, self.now), (reported, key), request, status)
    }

    fn row(
        &mut self,
        mut evaluated: Evaluated<'_>,
        (reported, key): (Option<usize>, KeyText),
        request: &Request,
        status: Option<StatusCode>,
    ) -> Row {
        let Evaluated { matched: Matched { selected, .. }, decision, .. } = &evaluated;
        let (mut shadow, mut candidate) = (Vec::new(), Vec::new());
        for (one, verdict) in selected.iter().zip(&decision.verdicts) {
            let limit = one.limit;
            let count = self.limits.entry(limit.config.name.clone()).or_default();
            match (verdict.answer, limit.enforces()) {
                (Err(_), _) if one.candidate => {
                    count.candidate_refused += 1;
                    candidate.push(limit.config.name.clone());
                }
                (Ok(_), _) if one.candidate => {}
                (Err(_), true) => count.refused += 1,
                (Err(_), false) => {
                    count.shadow_refused += 1;
                    shadow.push(limit.config.name.clone());
                }
                (Ok(_), _) => count.admitted += u64::from(decision.admitted),
            }
        }
        let refused = reported.filter(|_| !decision.admitted);
        let row = Row {
            outcome: if decision.admitted { Outcome::Admitted } else { Outcome::Refused },
            route: Some(evaluated.matched.route.name.clone()),
            limit: reported.map(|at| selected[at].limit.config.name.clone()),
            remaining: reported.map(|at| decision.verdicts[at].usage.remaining),
            retry_after: refused.map_or(Some(Span::ZERO), |at| retry_after(&decision.verdicts[at])),
            delay: decision.delay,
            shadow,
            candidate,
            client: evaluated.matched.client,
            key,
        };
        let mut holds = std::mem::take(&mut evaluated.decision.holds);
        if let Some(status) = status {
            // Logs do not have the headers of answers.
            let none = Headers::new();
            holds.answered(|late, base| {
                let cost = self.snapshot.late_cost(late.limit);
                cost.map_or(base, |cost| settled(cost, base, status, &none))
            });
            holds.settle(self.now, request.bytes.unwrap_or(0), request.received.unwrap_or(0));
        }
        let duration = request.duration;
        if holds.has_places() {
            self.without_duration += u64::from(duration.is_none());
            let at = self.now.plus(row.delay).plus(duration.unwrap_or_default());
            self.in_flight.push(Reverse(Ending { at, _holds: holds }));
        }
        row
    }
}
