//! Requests as their limits saw them, kept so that other rates can be decided without reading the logs again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use http::StatusCode;
use sluicegate_counters::{Ask, Fingerprint, decide};
use sluicegate_limiter::{Span, Time};

use super::Request;
use super::answered::Answered;
use super::ending::Ending;
use sluicegate_gateway::limit::{Limit, SelectedLimit};
use sluicegate_gateway::snapshot::Snapshot;

/// The most requests and questions that are kept, of 24 bytes each.
const MOST: usize = 40_000_000;

/// The requests of a replay.
#[derive(Default)]
pub(super) struct Recording<'s> {
    requests: Vec<Recorded>,
    asks: Vec<RecordedAsk>,
    /// The limits that were asked, with what they are.
    limits: Vec<(&'s Arc<Limit>, Which)>,
    /// Why it is incomplete.
    why_not: Option<&'static str>,
}

/// A request.
struct Recorded {
    at: Time,
    sent: u32,
    received: u32,
    /// How long it took, if that is known.
    micros: Option<std::num::NonZeroU32>,
    /// The status of its answer; 0 if it is not known.
    status: u16,
    /// The number of its questions.
    asks: u16,
}

/// A question to a limit.
struct RecordedAsk {
    key: Fingerprint,
    cost: u32,
    base: u32,
    /// The index of the limit among those that were asked.
    limit: u32,
}

/// What a limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// The limit with this index, with its usual numbers.
    Main(usize),
    /// The same with the numbers of a plan.
    Plan(usize, usize),
    /// Its candidate.
    Candidate(usize),
}

impl Which {
    fn find(snapshot: &Snapshot, index: usize, limit: &Arc<Limit>) -> Option<Self> {
        let main = &snapshot.limits[index];
        let same = |other: &Arc<Limit>| Arc::ptr_eq(other, limit);
        if same(main) {
            return Some(Self::Main(index));
        }
        if main.candidate.as_ref().is_some_and(same) {
            return Some(Self::Candidate(index));
        }
        main.plans.iter().position(|(_, plan)| same(plan)).map(|plan| Self::Plan(index, plan))
    }

    fn of(self, snapshot: &Snapshot) -> Option<&Arc<Limit>> {
        match self {
            Self::Main(index) => snapshot.limits.get(index),
            Self::Plan(index, plan) => snapshot.limits.get(index)?.plans.get(plan).map(|(_, limit)| limit),
            Self::Candidate(index) => snapshot.limits.get(index)?.candidate.as_ref(),
        }
    }
}

impl<'s> Recording<'s> {
    /// Why it cannot be decided anew, if it cannot.
    pub(super) fn why_not(&self) -> Option<&'static str> {
        self.why_not
    }

    /// Keeps a request.
    pub(super) fn add(
        &mut self,
        snapshot: &'s Snapshot,
        (selected, now): (&[SelectedLimit<'s>], Time),
        request: &Request,
        status: Option<StatusCode>,
    ) {
        if self.why_not.is_some() {
            return;
        }
        if let Err(why) = self.try_add(snapshot, (selected, now), request, status) {
            *self = Self { why_not: Some(why), ..Self::default() };
        }
    }

    fn try_add(
        &mut self,
        snapshot: &'s Snapshot,
        (selected, now): (&[SelectedLimit<'s>], Time),
        request: &Request,
        status: Option<StatusCode>,
    ) -> Result<(), &'static str> {
        const LARGE: &str = "some costs are above four billion";
        let small = |number: u64| u32::try_from(number).map_err(|_| LARGE);
        if self.requests.len() + self.asks.len() >= MOST {
            return Err(
                "there are too many requests to decide them again and again: replay a part of the log",
            );
        }
        for one in selected {
            if one.limit.fair.is_some() || one.limit.penalty.is_some() {
                return Err("limits with `fair` or `penalty` are beside them");
            }
            let known = self.limits.iter().position(|(limit, _)| Arc::ptr_eq(limit, one.limit));
            let limit = match known {
                Some(limit) => limit,
                None => {
                    let which = Which::find(snapshot, one.index, one.limit);
                    self.limits.push((one.limit, which.ok_or("identities have rates of their own")?));
                    self.limits.len() - 1
                }
            };
            let limit = u32::try_from(limit).map_err(|_| LARGE)?;
            self.asks.push(RecordedAsk {
                key: one.ask.key,
                cost: small(one.ask.cost)?,
                base: small(one.ask.base)?,
                limit,
            });
        }
        let micros = request.duration.map(|(duration, _)| duration.as_nanos() / 1_000);
        self.requests.push(Recorded {
            at: now,
            sent: small(request.bytes.unwrap_or(0))?,
            received: small(request.received.unwrap_or(0))?,
            micros: micros
                .and_then(|micros| std::num::NonZeroU32::new(u32::try_from(micros).unwrap_or(u32::MAX))),
            status: status.map_or(0, |status| status.as_u16()),
            asks: u16::try_from(selected.len()).map_err(|_| LARGE)?,
        });
        Ok(())
    }

    /// How many keys the limit with this index refuses something under another configuration, whose limits are new and differ from
    /// those of the recording in their numbers only. Keys with numbers of their own do not count.
    pub(super) fn refused_keys(&self, snapshot: &Snapshot, limit: usize) -> Option<usize> {
        let limits: Option<Vec<&Arc<Limit>>> =
            self.limits.iter().map(|(_, which)| which.of(snapshot)).collect();
        let limits = limits?;
        let mut refused: HashSet<u64> = HashSet::new();
        let mut in_flight: BinaryHeap<Reverse<Ending>> = BinaryHeap::new();
        let (mut next, mut asks) = (0, Vec::new());
        for request in &self.requests {
            while in_flight.peek().is_some_and(|Reverse(ending)| ending.at <= request.at) {
                in_flight.pop(); // which releases its places
            }
            let recorded = &self.asks[next..next + usize::from(request.asks)];
            next += recorded.len();
            asks.clear();
            asks.extend(recorded.iter().map(|ask| {
                let limit = &limits[ask.limit as usize].counted;
                Ask::new(limit, ask.key, ask.cost.into(), request.at).with_base(ask.base.into())
            }));
            let mut decision = decide(&asks, false);
            for (ask, verdict) in recorded.iter().zip(&decision.verdicts) {
                if verdict.answer.is_err() && self.limits[ask.limit as usize].1 == Which::Main(limit) {
                    refused.insert(ask.key.get());
                }
            }
            let status = StatusCode::from_u16(request.status).ok();
            let answered = Answered::of(snapshot, status, request.sent.into(), request.received.into());
            answered.settle(&mut decision.holds, request.at);
            if decision.holds.has_places() {
                let took = request
                    .micros
                    .map_or(Span::ZERO, |micros| Span::from_nanos(u64::from(micros.get()) * 1_000));
                let at = request.at.plus(decision.delay).plus(took);
                in_flight.push(Reverse(Ending::new(at, decision.holds)));
            }
        }
        Some(refused.len())
    }
}
