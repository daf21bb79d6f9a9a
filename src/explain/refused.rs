//! The explanation of a request that was refused.

use http::{HeaderValue, Version, header};
use sluicegate_wire::{Headers, RequestHead};

use super::{ExplainedLimit, Explanation};
use crate::refusals::Refusal;
use crate::snapshot::Snapshot;

impl Explanation {
    /// Why a request was refused, with these headers of its answer as HTTP/1.1 writes them. `snapshot` is the configuration in
    /// force, which may be a later one.
    pub fn of_refusal(refusal: &Refusal, headers: &[u8], snapshot: &Snapshot) -> Self {
        let same = refusal.generation == snapshot.generation;
        let shown = snapshot.shown_keys();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = |index: usize| {
            let limit = snapshot.limits.get(index).filter(|_| same);
            limit
                .map_or_else(|| "(of an earlier configuration)".to_owned(), |limit| limit.config.name.clone())
        };
        let mut limits: Vec<ExplainedLimit> = refusal
            .limits
            .iter()
            .map(|one| {
                let mut limit = ExplainedLimit {
                    name: name(one.index),
                    key: shown.text(&one.key),
                    cost: Some(one.cost).filter(|cost| *cost > 0),
                    ..ExplainedLimit::default()
                };
                limit.set_usage(one.usage);
                limit.set_answer(one.answer, (one.enforced, one.candidate));
                limit
            })
            .collect();
        let reported = refusal.reported.and_then(|at| limits.get(at)).map(|limit| limit.name.clone());
        limits.sort_by_key(|limit| limit.candidate);
        let route = refusal.route.and_then(|route| snapshot.routes.get(route)).filter(|_| same);
        let route = route.map(|route| route.name.clone());
        let lines = headers.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r\n")?; // the last one may be cut
            let at = line.windows(2).position(|pair| pair == b": ")?;
            Some((text(&line[..at]), text(&line[at + 2..]))).filter(|(name, _)| name != "x-request-id")
        });
        let passed_over = match head(refusal).filter(|_| same) {
            Some(parts) => snapshot.passed_over(&parts, refusal.listener, route.as_deref()),
            None => Vec::new(),
        };
        let at = i128::from(refusal.at.as_nanos());
        Self {
            request_id: Some(refusal.id.as_str().to_owned()),
            at: jiff::Timestamp::from_nanosecond(at).ok().map(|at| at.to_string()),
            client: Some(refusal.client),
            client_why: "as it was when the request was served".to_owned(),
            consumer: (!refusal.consumer.is_empty()).then(|| text(&refusal.consumer)),
            plan: None,
            outcome: if refusal.route.is_none() { "unmatched" } else { "refused" }.to_owned(),
            reason: refusal.reason.map(|reason| reason.name().to_owned()),
            detail: (!same).then(|| "the configuration has changed since".to_owned()),
            limit: reported,
            limits,
            passed_over,
            status: Some(refusal.status),
            headers: lines.collect(),
            route,
        }
    }
}

/// The parts of its head that are remembered.
fn head(refusal: &Refusal) -> Option<RequestHead> {
    let mut headers = Headers::new();
    headers.append_value(header::HOST, &HeaderValue::from_bytes(&refusal.host).ok()?);
    let target = std::str::from_utf8(&refusal.path).ok()?.parse::<http::uri::PathAndQuery>().ok()?;
    let (method, target) = (refusal.method.clone(), (&target).into());
    Some(RequestHead { method, target, version: Version::HTTP_11, headers })
}
