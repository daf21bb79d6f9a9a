//! The explanation of a request that was refused.

use http::{HeaderValue, Version, header};
use sluicegate_wire::{Headers, RequestHead};

use super::{ExplainedLimit, Explanation};
use crate::snapshot::Snapshot;
use sluicegate_observe::refusals::Refusal;

impl Explanation {
    /// Why a request was refused. `snapshot` is the configuration in force, which may be a later one.
    pub fn of_refusal(refusal: &Refusal, snapshot: &Snapshot) -> Self {
        let request = &refusal.request;
        let same = request.generation == snapshot.generation;
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
        let reported = request.reported.and_then(|at| limits.get(at)).map(|limit| limit.name.clone());
        limits.sort_by_key(|limit| limit.candidate);
        let route = request.route.and_then(|route| snapshot.routes.get(route)).filter(|_| same);
        let route = route.map(|route| route.name.clone());
        let lines = refusal.headers.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r\n")?; // the last one may be cut
            let at = line.windows(2).position(|pair| pair == b": ")?;
            Some((text(&line[..at]), text(&line[at + 2..]))).filter(|(name, _)| name != "x-request-id")
        });
        let passed_over = match head(refusal).filter(|_| same) {
            Some(parts) => snapshot.passed_over(&parts, request.listener, route.as_deref()),
            None => Vec::new(),
        };
        let at = i128::from(request.at.as_nanos());
        Self {
            request_id: Some(request.id.as_str().to_owned()),
            at: jiff::Timestamp::from_nanosecond(at).ok().map(|at| at.to_string()),
            client: Some(request.client),
            client_why: "as it was when the request was served".to_owned(),
            consumer: (!refusal.consumer.is_empty()).then(|| text(&refusal.consumer)),
            plan: None,
            outcome: if request.route.is_none() { "unmatched" } else { "refused" }.to_owned(),
            reason: request.reason.map(|reason| reason.name().to_owned()),
            detail: (!same).then(|| "the configuration has changed since".to_owned()),
            limit: reported,
            limits,
            passed_over,
            status: Some(request.status),
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
    let (method, target) = (refusal.request.method.clone(), (&target).into());
    Some(RequestHead { method, target, version: Version::HTTP_11, headers })
}
