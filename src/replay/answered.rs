//! What a log says of the answer to a request, and what the request costs by that.

use http::StatusCode;
use sluicegate_counters::{Ask, Holds};
use sluicegate_limiter::Time;
use sluicegate_wire::Headers;

use super::Request;
use sluicegate_gateway::request::cost::settled;
use sluicegate_gateway::snapshot::Snapshot;

/// The answer to a request.
#[derive(Clone, Copy)]
pub(super) struct Answered<'s> {
    snapshot: &'s Snapshot,
    /// `None` if it is not known: then a request costs what it was said to cost before.
    status: Option<StatusCode>,
    sent: u64,
    received: u64,
}

impl<'s> Answered<'s> {
    /// The answer with this status.
    pub(super) fn new(snapshot: &'s Snapshot, request: &Request, status: Option<StatusCode>) -> Self {
        Self::of(snapshot, status, request.bytes.unwrap_or(0), request.received.unwrap_or(0))
    }

    /// An answer of so many bytes to a request of so many bytes.
    pub(super) fn of(snapshot: &'s Snapshot, status: Option<StatusCode>, sent: u64, received: u64) -> Self {
        Self { snapshot, status, sent, received }
    }

    /// The cost without bytes, and what the answer says besides; `None` if it costs nothing. Logs do not have the headers of answers.
    fn known(&self, status: StatusCode, limit: usize, base: u64) -> Option<(u64, u64)> {
        let none = Headers::new();
        let cost = self.snapshot.late_cost(limit);
        cost.map_or(Some((base, 0)), |cost| settled(cost, base, (status, &none), || {}))
    }

    /// Changes charges to the final cost.
    pub(super) fn settle(&self, holds: &mut Holds, now: Time) {
        let Some(status) = self.status else { return };
        holds.answered(|late, base| self.known(status, late.limit, base));
        holds.settle(now, self.sent, self.received);
    }

    /// What a request costs in the end.
    pub(super) fn cost(&self, ask: &Ask<'_>) -> u64 {
        let Some((late, status)) = ask.limit.late_cost().zip(self.status) else { return ask.cost };
        let bytes = if late.response_bytes { self.sent } else { 0 }
            + if late.request_bytes { self.received } else { 0 };
        let known = self.known(status, late.limit, ask.base);
        known.map_or(0, |(base, said)| base.saturating_add(said).saturating_add(bytes))
    }
}
