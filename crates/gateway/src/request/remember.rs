//! What is remembered of a refused request, for its explanation.

use sluicegate_limiter::Time;
use sluicegate_wire::RequestHead;

use super::verdict::Evaluated;
use crate::snapshot::Snapshot;
use sluicegate_base::incoming::Request;
use sluicegate_base::message::{LocalResponse, RequestId};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_observe::refusals::{RefusalLog, RefusedLimit, RefusedRequest, RefusedTexts};

/// What is known of a refused request besides its limits.
#[derive(Clone, Copy)]
pub(super) struct Refused<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) id: &'a RequestId,
    pub(super) at: Time,
    pub(super) request: Request<'a>,
    pub(super) reason: Option<RefusalReason>,
    pub(super) answer: &'a LocalResponse,
    pub(super) log: &'a RefusalLog,
}

impl<'a> Refused<'a> {
    /// Remembers a request that was refused before its limits were evaluated, on this route.
    pub(super) fn early(self, route: Option<usize>) {
        let limits = std::iter::empty();
        self.log.push(self.request(route, None), self.texts(b""), limits, &self.answer.headers);
    }

    /// Remembers a request that its limits refused.
    pub(super) fn limited(self, evaluated: Evaluated<'_, '_>) {
        let (matched, decided) = (evaluated.matched, evaluated.decided());
        let limits = decided.iter().map(|one| RefusedLimit {
            index: one.selected.index,
            enforced: one.selected.limit.enforces(),
            candidate: one.selected.candidate,
            answer: one.verdict.answer,
            usage: one.verdict.usage,
            cost: one.selected.ask.cost,
            key: &one.selected.ask.text[..],
        });
        let consumer = matched.identity.consumer().unwrap_or_default().as_bytes();
        let request = self.request(Some(matched.route_index), decided.reported());
        self.log.push(request, self.texts(consumer), limits, &self.answer.headers);
    }

    fn request(&self, route: Option<usize>, reported: Option<usize>) -> RefusedRequest {
        RefusedRequest {
            id: self.id.clone(),
            at: self.at,
            generation: self.snapshot.generation,
            listener: self.request.peer.listener,
            route,
            client: self.request.peer.client,
            method: self.request.head.method.clone(),
            reason: self.reason,
            status: self.answer.status.as_u16(),
            reported,
        }
    }

    fn texts<'t>(&self, consumer: &'t [u8]) -> RefusedTexts<'t>
    where
        'a: 't,
    {
        let RequestHead { headers, target, .. } = self.request.head;
        let host = headers.get(b"host".as_slice()).or_else(|| target.authority().map(str::as_bytes));
        RefusedTexts { host: host.unwrap_or_default(), path: target.path().as_bytes(), consumer }
    }
}
