//! What is remembered of a refused request, for its explanation.

use std::net::IpAddr;

use sluicegate_limiter::Time;
use sluicegate_wire::RequestHead;
use smallvec::SmallVec;

use super::verdict::Evaluated;
use crate::message::{LocalResponse, RequestId};
use crate::refusal_reason::RefusalReason;
use crate::refusals::{Refusal, RefusedLimit};
use crate::respond::reported_verdict;
use crate::snapshot::Snapshot;

/// The bytes of a host, a path and a key that are remembered.
const LONGEST: usize = 256;

/// What is known of a refused request besides its limits.
#[derive(Clone, Copy)]
pub(super) struct Refused<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) id: &'a RequestId,
    pub(super) at: Time,
    pub(super) listener: usize,
    pub(super) client: IpAddr,
    pub(super) reason: Option<RefusalReason>,
    pub(super) parts: &'a RequestHead,
    pub(super) answer: &'a LocalResponse,
}

impl Refused<'_> {
    /// A request that was refused before its limits were evaluated, on this route.
    pub(super) fn early(&self, route: Option<usize>) -> Refusal {
        let parts = self.parts;
        let named = parts.headers.get(b"host".as_slice());
        let host = named.or_else(|| parts.target.authority().map(str::as_bytes)).unwrap_or_default();
        Refusal {
            id: self.id.clone(),
            at: self.at,
            generation: self.snapshot.generation,
            listener: self.listener,
            route,
            client: self.client,
            method: parts.method.clone(),
            host: cut(host),
            path: cut(parts.target.path().as_bytes()),
            consumer: SmallVec::new(),
            reason: self.reason,
            status: self.answer.status.as_u16(),
            reported: None,
            limits: SmallVec::new(),
        }
    }

    /// A request that its limits refused.
    pub(super) fn limited(&self, evaluated: Evaluated<'_, '_>) -> Refusal {
        let Evaluated { matched, decision, .. } = evaluated;
        let limits =
            matched.selected.iter().zip(&decision.verdicts).enumerate().map(|(at, (one, verdict))| {
                let ask = matched.asks.get(at);
                RefusedLimit {
                    index: one.index,
                    enforced: one.limit.enforces(),
                    candidate: one.candidate,
                    answer: verdict.answer,
                    usage: verdict.usage,
                    cost: ask.map_or(0, |ask| ask.cost),
                    key: ask.map(|ask| cut(&ask.text)).unwrap_or_default(),
                }
            });
        Refusal {
            consumer: matched.identity.consumer().map(|name| cut(name.as_bytes())).unwrap_or_default(),
            reported: reported_verdict(&matched.selected, decision),
            limits: limits.collect(),
            ..self.early(Some(matched.route_index))
        }
    }
}

/// The first bytes of a text.
fn cut<const N: usize>(text: &[u8]) -> SmallVec<[u8; N]> {
    SmallVec::from_slice(&text[..text.len().min(LONGEST)]) // `from` copies byte by byte
}
