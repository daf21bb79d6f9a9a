//! Decides the requests of logs, one after another.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use sluicegate_limiter::{Span, Time};

use super::Request;
use super::answered::Answered;
use super::compare::Comparison;
use super::ending::Ending;
use super::limit_count::LimitCount;
use super::queues::Queues;
use super::recording::Recording;
use super::row::Row;
use super::statistics::Statistics;
use super::trust::Trust;
use super::unmatched::Unmatched;
use sluicegate_auth::Answers;
use sluicegate_auth::client_address;
use sluicegate_base::incoming::{self, Peer};
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_gateway::limit::{self, Decided, DecidedLimit, Decision, Limit, SelectedLimit};
use sluicegate_gateway::request::early_reject::EarlyReject;
use sluicegate_gateway::request::limit_selection::{LimitSelection, SkipReason};
use sluicegate_gateway::request::matching::{Matching, Step};
use sluicegate_gateway::request::verdict::Matched;
use sluicegate_gateway::request::{may_queue_request, queued_by};
use sluicegate_gateway::snapshot::Snapshot;
use sluicegate_observe::access_log::Outcome;
use sluicegate_route::keys::KeyText;

/// The state of a replay.
pub struct Replay<'s> {
    snapshot: &'s Snapshot,
    /// The index of the listener that the requests came in on.
    listener: usize,
    /// The latest time of a request so far.
    now: Time,
    in_flight: BinaryHeap<Reverse<Ending>>,
    /// Counts by the index of the limit.
    counts: Vec<LimitCount>,
    /// What else is found out, if it is wanted.
    pub statistics: Option<Statistics>,
    /// What every algorithm decides, if it is wanted.
    pub comparison: Option<Comparison>,
    /// Requests that hold a place of a concurrency limit but have no duration.
    pub without_duration: u64,
    /// Requests that match no route.
    pub unmatched: Unmatched,
    /// What is observed of the logs.
    pub trust: Trust,
    /// What limits were asked, if rates are to be suggested.
    pub(super) recording: Option<Recording<'s>>,
    /// What waits in the queues of limits.
    queues: Queues,
}

impl<'s> Replay<'s> {
    /// A replay under the rules of a snapshot, of requests to the listener with this index.
    pub fn new(snapshot: &'s Snapshot, listener: usize) -> Self {
        Self {
            snapshot,
            listener,
            now: Time::EPOCH,
            in_flight: BinaryHeap::new(),
            counts: vec![LimitCount::default(); snapshot.limits.len()],
            statistics: None,
            comparison: None,
            without_duration: 0,
            unmatched: Unmatched::default(),
            trust: Trust::default(),
            recording: None,
            queues: Queues::default(),
        }
    }

    /// Finds out more about the requests: who was refused when, and how large limits would have to be.
    /// With `all_keys`, about every key, and not only those that are refused something.
    #[must_use]
    pub fn with_statistics(self, all_keys: bool) -> Self {
        let recording = all_keys.then(Recording::default);
        Self { statistics: Some(Statistics::new(self.counts.len(), all_keys)), recording, ..self }
    }

    /// Decides by every algorithm too, if `compare` is set.
    #[must_use]
    pub fn comparing(self, compare: bool) -> Self {
        Self { comparison: compare.then(|| Comparison::new(&self.snapshot.limits)), ..self }
    }

    /// The snapshot that decides.
    pub const fn snapshot(&self) -> &'s Snapshot {
        self.snapshot
    }

    /// The counts of the limit with this index.
    pub(super) fn count(&self, limit: usize) -> LimitCount {
        self.counts[limit]
    }

    /// The counts of the limits that were asked, with their indices, by name.
    pub fn limits(&self) -> Vec<(usize, &'s str, LimitCount)> {
        let limits = self.snapshot.limits.iter().zip(&self.counts).enumerate();
        let asked = limits.filter(|(_, (_, count))| **count != LimitCount::default());
        let mut all: Vec<_> =
            asked.map(|(at, (limit, count))| (at, limit.config.name.as_str(), *count)).collect();
        all.sort_unstable_by_key(|(_, name, _)| *name);
        all
    }

    /// Decides on the next request. A time before that of an earlier request counts as the latest time.
    pub fn decide(&mut self, request: &Request) -> Row<'s> {
        let row = self.judge(request);
        if let Some(statistics) = &mut self.statistics {
            statistics.traffic.add(self.now, 0, 1);
            match row.outcome {
                Outcome::Admitted | Outcome::Queued => {}
                Outcome::Refused => statistics.traffic.add(self.now, 1, 1),
                Outcome::Unmatched => statistics.traffic.add(self.now, 2, 1),
            }
        }
        row
    }

    fn judge(&mut self, request: &Request) -> Row<'s> {
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
        self.trust.client(request, client);
        let incoming = incoming::Request { head: &parts, peer: Peer::plain(self.listener, client) };
        let answers = Answers::of_log(request.identity.clone());
        let mut matching = Matching::new(snapshot, incoming, self.now);
        matching.inputs.answers = answers;
        matching.inputs.without_rules = true;
        let reject = match matching.step(&|selected| limit::may_refuse(selected)) {
            Step::Decide(matched) if matched.reject.is_some() => {
                return self.unauthenticated(matched, matching.selection, (request, client));
            }
            Step::Decide(matched) if matched.is_to_be_served() => {
                return self.evaluate(&matched, matching.selection, (request, client), request.status);
            }
            Step::Decide(matched) => {
                return Row {
                    outcome: Outcome::Admitted, // it is answered without a charge
                    route: Some(&matched.route.name),
                    ..Row::unmatched(client)
                };
            }
            // Nothing is released meanwhile, so the limits do refuse.
            Step::Refuse(matched) => {
                return self.evaluate(&matched, matching.selection, (request, client), None);
            }
            // All is answered.
            Step::Ask { .. } | Step::LoadRules { .. } => return Row::unmatched(client),
            Step::Answer(reject) => reject,
        };
        let unmatched = Row::unmatched(client);
        match reject {
            EarlyReject::AddressDenied { route } => {
                Row { outcome: Outcome::Refused, route: Some(&snapshot.routes[route].name), ..unmatched }
            }
            EarlyReject::Preflight { route } => Row {
                outcome: Outcome::Admitted, // the gateway answers it without a charge
                route: route.map(|route| snapshot.routes[route].name.as_str()),
                ..unmatched
            },
            reject => {
                self.unmatched.add(snapshot, self.listener, &request.parts, &reject);
                unmatched
            }
        }
    }

    /// Evaluates the limits of a request whose authentication failed.
    fn unauthenticated(
        &mut self,
        matched: Matched<'s>,
        selection: LimitSelection<'s>,
        request: (&Request, IpAddr),
    ) -> Row<'s> {
        let row = self.evaluate(&matched, selection, request, Some(StatusCode::UNAUTHORIZED));
        let limit = match matched.reject.as_deref() {
            Some(EarlyReject::KeyMissing { limit: name, .. }) => {
                let mut limits = self.snapshot.limits.iter();
                let index = limits.position(|limit| limit.config.name == *name);
                index.into_iter().for_each(|index| self.counts[index].without_key += 1);
                index.map(|index| self.snapshot.limits[index].config.name.as_str())
            }
            _ => None,
        };
        match row.outcome {
            Outcome::Admitted => Row { outcome: Outcome::Refused, limit, remaining: None, ..row },
            _ => row,
        }
    }

    /// Evaluates the limits of a request of this client; `status` is that of the response if they admit the request.
    fn evaluate(
        &mut self,
        matched: &Matched<'s>,
        mut selection: LimitSelection<'s>,
        (request, client): (&Request, IpAddr),
        status: Option<StatusCode>,
    ) -> Row<'s> {
        let enforced = selection.selected.iter().filter(|one| !one.candidate && one.limit.enforces()).count();
        for one in selection.selected.iter().filter(|one| !one.candidate) {
            let count = &mut self.counts[one.index];
            count.beside += u64::from(enforced > usize::from(one.limit.enforces()));
            *(if one.lacks_key() { &mut count.without_key } else { &mut count.asked }) += 1;
        }
        for (index, why) in &selection.skipped {
            let count = &mut self.counts[*index];
            count.without_key += u64::from(matches!(why, SkipReason::NoKey | SkipReason::WouldDeny));
            count.shadow_refused += u64::from(*why == SkipReason::WouldDeny);
        }
        if let Some(at) = self.queues.deliver(&selection.selected, self.now) {
            let one = &selection.selected[at];
            if may_queue_request(one, &request.parts) {
                self.queues.push(one, self.now);
                self.counts[one.index].queued += 1;
                return Row {
                    outcome: Outcome::Queued,
                    route: Some(&matched.route.name),
                    limit: Some(one.limit.config.name.as_str()),
                    remaining: Some(0),
                    key: one.ask.text.clone(),
                    ..Row::unmatched(client)
                };
            }
        }
        let mut decision = selection.decide(self.now, false);
        let decided = Decided { selected: &selection.selected, decision: &decision };
        if let Some(place) = queued_by(decided, &request.parts) {
            self.queues.push(&selection.selected[place.at], self.now);
        }
        let answered = Answered::new(self.snapshot, request, status);
        if let Some(recording) = &mut self.recording {
            recording.add(self.snapshot, (&selection.selected, self.now), request, status);
        }
        if let Some(statistics) = &mut self.statistics {
            let decided = Decided { selected: &selection.selected, decision: &decision };
            observe(statistics, &self.snapshot.limits, matched, decided, (self.now, &answered));
        }
        if let Some(comparison) = &mut self.comparison {
            comparison.add(&selection.selected, &answered);
        }
        let reported = Decided { selected: &selection.selected, decision: &decision }.reported();
        let key = reported.map(|at| std::mem::take(&mut selection.selected[at].ask.text)).unwrap_or_default();
        self.row((matched, &selection), &mut decision, (reported, key), (request, client), &answered)
    }

    fn row(
        &mut self,
        (matched, selection): (&Matched<'s>, &LimitSelection<'s>),
        decision: &mut Decision,
        (reported, key): (Option<usize>, KeyText),
        (request, client): (&Request, IpAddr),
        answered: &Answered<'_>,
    ) -> Row<'s> {
        let decided = Decided { selected: &selection.selected, decision };
        let (mut shadow, mut candidate) = (Vec::new(), Vec::new());
        let is_queued = queued_by(decided, &request.parts).is_some();
        for one in decided.iter() {
            let SelectedLimit { limit, index, candidate: is_candidate, .. } = *one.selected;
            let count = &mut self.counts[index];
            match one.outcome() {
                LimitOutcome::CandidateRefused => {
                    count.candidate_refused += 1;
                    candidate.push(limit.config.name.as_str());
                }
                LimitOutcome::ShadowRefused => {
                    count.shadow_refused += 1;
                    shadow.push(limit.config.name.as_str());
                }
                LimitOutcome::Refused if is_queued => count.queued += 1,
                LimitOutcome::Refused => count.refused += 1,
                _ => count.admitted += u64::from(decision.admitted && !is_candidate),
            }
        }
        let denied = selection.skipped.iter().filter(|(_, why)| *why == SkipReason::WouldDeny);
        shadow.extend(denied.map(|(index, _)| self.snapshot.limits[*index].config.name.as_str()));
        let reported = reported.map(|at| decided.at(at));
        let refused = reported.filter(|_| !decision.admitted);
        let row = Row {
            outcome: match (decision.admitted, is_queued) {
                (true, _) => Outcome::Admitted,
                (false, true) => Outcome::Queued,
                (false, false) => Outcome::Refused,
            },
            route: Some(&matched.route.name),
            limit: reported.map(|one| one.selected.limit.config.name.as_str()),
            remaining: reported.map(|one| one.verdict.usage.remaining),
            retry_after: refused.map_or(Some(Span::ZERO), DecidedLimit::retry_after),
            delay: decision.delay,
            shadow,
            candidate,
            client,
            key,
        };
        let mut holds = std::mem::take(&mut decision.holds);
        answered.settle(&mut holds, self.now);
        let duration = request.duration.map(|(duration, _)| duration);
        if holds.has_places() {
            self.without_duration += u64::from(duration.is_none());
            let at = self.now.plus(row.delay).plus(duration.unwrap_or_default());
            self.in_flight.push(Reverse(Ending::new(at, holds)));
        }
        row
    }
}

/// Finds out about the limits of one request.
fn observe(
    statistics: &mut Statistics,
    limits: &[Arc<Limit>],
    matched: &Matched<'_>,
    decided: Decided<'_, '_>,
    (now, answered): (Time, &Answered<'_>),
) {
    let decision = decided.decision;
    let identity = (matched.identity.plan(), matched.identity.consumer());
    statistics.groups.add(&matched.route.name, identity, !decision.admitted);
    for one in decided.iter() {
        let SelectedLimit { limit, index, candidate, ref ask, .. } = *one.selected;
        if candidate {
            continue;
        }
        let refused = one.verdict.answer.is_err();
        if !refused && !decision.admitted {
            continue; // another limit refuses, and this one counts nothing
        }
        let usual = Arc::ptr_eq(limit, &limits[index]);
        let (key, asked) = ((ask.key, &ask.text), (now, answered.cost(ask)));
        statistics.limits[index].add(limit, key, asked, refused, (usual, statistics.all_keys));
    }
}
