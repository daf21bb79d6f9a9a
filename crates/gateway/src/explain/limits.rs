//! The limits of an explained request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_counters::{KeyState, RemoteBan, RemoteState};
use sluicegate_limiter::{Refusal, Span, Usage};

use crate::limit::{Ask, SelectedLimit};
use crate::request::limit_selection::SkipReason;
use crate::request::verdict::Evaluated;
use crate::rules::KeyQuestion;
use crate::snapshot::Snapshot;
use sluicegate_base::limit_outcome::LimitOutcome;

/// One limit of an explained request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedLimit {
    /// Its name.
    pub name: String,
    /// The key that the request is counted under; `None` if it has none.
    pub key: Option<String>,
    /// The id of the rule that changes the limit for this key.
    pub rule: Option<String>,
    /// The units that the key has left before this request.
    pub remaining: Option<u64>,
    /// The seconds until all of the quota is back.
    pub reset: Option<f64>,
    /// The largest number of units.
    pub capacity: Option<u64>,
    /// What the request costs.
    pub cost: Option<u64>,
    /// `admitted`, `refused`, `shadow_refused`, `candidate_refused`, `exempt` or `skipped`.
    pub outcome: String,
    /// The seconds until the limit would admit the request, if it refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// Whether it is the candidate of the limit, which is never enforced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub candidate: bool,
    /// More about the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl ExplainedLimit {
    /// The numbers of a state.
    pub(super) fn set_usage(&mut self, usage: Usage) {
        self.remaining = Some(usage.remaining);
        self.capacity = Some(usage.capacity);
        self.reset = Some(seconds(usage.reset));
    }

    /// What the limit says.
    pub(super) fn set_answer(&mut self, answer: Result<Span, Refusal>, (enforced, candidate): (bool, bool)) {
        self.candidate = candidate;
        self.outcome = LimitOutcome::of(answer.is_ok(), enforced, candidate).name().to_owned();
        match answer {
            Ok(delay) if !delay.is_zero() => {
                self.why = Some(format!("it is held for {} s", seconds(delay)));
            }
            Ok(_) => {}
            Err(refusal) => {
                self.retry_after = refusal.retry_after().map(seconds);
                self.why = match refusal {
                    Refusal::Never => Some("it costs more than the limit can ever admit".to_owned()),
                    Refusal::Banned(_) => Some("the key is banned".to_owned()),
                    Refusal::Busy | Refusal::Until(_) => None,
                };
            }
        }
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

impl Snapshot {
    /// The limits of an evaluated request. `states` are those that a store returned.
    pub(super) async fn explained(
        &self,
        evaluated: Evaluated<'_, '_>,
        states: &[Option<(RemoteState, Option<RemoteBan>)>],
    ) -> Vec<ExplainedLimit> {
        let shown = self.shown_keys();
        let mut all = Vec::new();
        for (at, decided) in evaluated.decided().iter().enumerate() {
            let one = decided.selected;
            let ask = &one.ask;
            let usage = match states.get(at).and_then(Option::as_ref) {
                Some((state, _)) => state.usage(ask.at),
                None => {
                    let known = ask.limit.usage(ask.key, ask.at);
                    known.unwrap_or_else(|| ask.limit.fresh(ask.at))
                }
            };
            let text = (!one.lacks_key()).then(|| shown.text(&ask.text)).flatten();
            let mut limit = ExplainedLimit {
                name: one.limit.config.name.clone(),
                key: text,
                rule: self.rule_of(one).await,
                cost: Some(ask.cost),
                ..ExplainedLimit::default()
            };
            limit.set_usage(usage);
            limit.set_answer(decided.verdict.answer, (one.limit.enforces(), one.candidate));
            if one.lacks_key() {
                limit.why =
                    limit.why.or(Some("the request lacks the key: all such requests share one".to_owned()));
            }
            all.push(limit);
        }
        all.sort_by_key(|limit| limit.candidate); // behind those that decide
        for (index, reason) in evaluated.skipped {
            let (outcome, why) = match reason {
                SkipReason::Exempt => (LimitOutcome::Exempt, "the client, its plan or its key is exempt"),
                SkipReason::NoKey => {
                    (LimitOutcome::Skipped, "the request lacks the key, and `on_missing` is `skip`")
                }
                SkipReason::WouldDeny => {
                    (LimitOutcome::ShadowRefused, "the request lacks the key, and `on_missing` is `deny`")
                }
                SkipReason::NotApplicable => (LimitOutcome::Skipped, "`when` does not cover the request"),
            };
            all.push(ExplainedLimit {
                name: self.limits[*index].config.name.clone(),
                outcome: outcome.name().to_owned(),
                why: Some(why.to_owned()),
                ..ExplainedLimit::default()
            });
        }
        all
    }

    /// The id of the rule that changes a limit for a key, if there is one and the rules can be read.
    async fn rule_of(&self, one: &SelectedLimit<'_>) -> Option<String> {
        let Ask { key, text, now, .. } = &one.ask;
        let in_force = self.rules.as_ref().filter(|_| !one.candidate && !text.is_empty())?;
        let limit = &in_force.limits[one.index];
        if !limit.is_active() {
            return None;
        }
        let (rules, now) = (Arc::clone(&in_force.rules), *now);
        let question = KeyQuestion { limit: Arc::clone(limit), key: *key, text: text.clone() };
        let read = sluicegate_base::boxed_future::spawn_blocking(move || rules.rule_of(&question, now)).await;
        read.ok()?.ok()?
    }
}
