//! The state of one key, and its pardon: `/limits/{limit}/keys/{key}`.

use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use sluicegate_limiter::{Span, Usage};

use super::actor::Asking;
use super::{Admin, Answer, problem, reply};
use crate::keys::{Fingerprint, KeyText};
use crate::limit::{Limit, Peeked, Store, Variant};
use crate::rules::KeyQuestion;
use crate::snapshot::Snapshot;
use sluicegate_config::Part;

/// The answer if the store does not tell.
const NO_STORE: &str = "the store, which counts this limit, does not answer";

/// A key that an operator asks for.
struct Asked<'s> {
    snapshot: &'s Snapshot,
    limit: &'s Arc<Limit>,
    /// As it was written, decoded.
    text: String,
    /// What the text can mean.
    readings: Vec<(Fingerprint, KeyText)>,
}

/// What is known of a key.
struct Found {
    known: bool,
    usage: Usage,
    banned_for: Option<Span>,
}

impl Admin {
    /// What a key has left.
    pub(super) async fn key(&self, name: &str, key: &str) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let asked = match Asked::new(&snapshot, name, key) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let limit = asked.limit;
        let plan = self.plan_of(&asked);
        let variant = limit.for_plan(plan.flatten());
        let ruled = Self::ruled(&snapshot, variant, &asked.readings).await;
        let found = match self.store_of(limit) {
            Some(store) => key_in_store(&store, &ruled, &asked.readings, plan.is_none()).await,
            None => Some(self.key_here((limit, variant, &ruled), plan.is_some(), &asked.readings)),
        };
        let Some(Found { known, usage, banned_for }) = found else {
            return problem(StatusCode::SERVICE_UNAVAILABLE, NO_STORE);
        };
        let mut value = json!({
            "limit": name,
            "key": asked.text,
            "known": known,
            "capacity": usage.capacity,
            "remaining": usage.remaining,
            "reset": usage.reset.as_nanos() as f64 / 1e9,
            "banned_for": banned_for.unwrap_or(Span::ZERO).as_nanos() as f64 / 1e9,
        });
        match plan {
            _ if limit.plans.is_empty() => {}
            Some(plan) => value["plan"] = plan.into(),
            None => value["variants"] = self.variants(&asked).await,
        }
        reply(&value)
    }

    /// Resets what a key has used, and ends its ban.
    pub(super) async fn pardon(&self, name: &str, key: &str, by: &Asking) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let asked = match Asked::new(&snapshot, name, key) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let pardoned = match self.store_of(asked.limit) {
            Some(store) => pardoned_in_store(&store, &asked).await,
            None => {
                let all = asked.limit.all();
                let all = all.flat_map(|limit| asked.readings.iter().map(move |(key, _)| (limit, *key)));
                Some(all.filter(|(limit, key)| limit.counted.pardon(*key)).count() > 0)
            }
        };
        let Some(pardoned) = pardoned else { return problem(StatusCode::SERVICE_UNAVAILABLE, NO_STORE) };
        if pardoned {
            let shown = asked.readings.first().and_then(|(_, text)| snapshot.shown_keys().text(text));
            self.audit_pardon(&snapshot, by, name, shown.as_deref().unwrap_or("(none)"));
        }
        reply(&json!({ "limit": name, "key": asked.text, "pardoned": pardoned }))
    }

    /// The store, if it counts this limit.
    fn store_of(&self, limit: &Limit) -> Option<Rc<Store>> {
        self.store.borrow().as_ref().filter(|_| limit.config.shared).map(Rc::clone)
    }

    /// The plan that a key is on, `Some(None)` for none: by the file of the consumers, or by what this gateway has counted. `None`
    /// if neither tells: the plan of a token, for example, is known while a request has it.
    fn plan_of<'s>(&self, asked: &Asked<'s>) -> Option<Option<&'s str>> {
        let Asked { snapshot, limit, text, readings } = asked;
        if limit.plans.is_empty() {
            return Some(None);
        }
        let consumers = snapshot.config.known_consumers().map(|(_, known)| known);
        let consumer = consumers.and_then(|known| {
            let parts = crate::keys::parts_from_text(&limit.config.key, text);
            parts.into_iter().find_map(|(part, value)| match part {
                Part::Consumer => known.named(value),
                Part::ApiKey => known.find(value.as_bytes()),
                _ => None,
            })
        });
        if let Some(consumer) = consumer {
            // A plan that the limit does not have leaves its own numbers.
            return Some(consumer.plan.filter(|plan| limit.plans.iter().any(|(name, _)| name == plan)));
        }
        let now = self.shared.clock.now();
        let counts =
            |limit: &Limit| readings.iter().any(|(key, _)| limit.counted.counters.usage(*key, now).is_some());
        let mut counted = limit.plans.iter().filter(|(_, limit)| counts(limit));
        match (counted.next(), counted.next(), counts(limit)) {
            // The limit itself also remembers the answers of a store to other questions.
            (Some((plan, _)), None, own) if !own || limit.config.shared => Some(Some(plan)),
            (None, _, true) if !limit.config.shared => Some(None),
            _ => None,
        }
    }

    /// What a key would have left on each plan, and on none.
    async fn variants(&self, asked: &Asked<'_>) -> Value {
        let limit = asked.limit;
        let own = std::iter::once((None, limit));
        let plans = limit.plans.iter().map(|(name, limit)| (Some(name), limit));
        let mut all = Vec::new();
        for (plan, variant) in own.chain(plans) {
            let found = match self.store_of(limit) {
                Some(store) => key_in_store(&store, variant, &asked.readings, true).await,
                None => Some(self.key_here((limit, variant, variant), true, &asked.readings)),
            };
            let usage = found.map(|found| found.usage);
            all.push(json!({
                "plan": plan,
                "capacity": variant.config.quota.capacity(),
                "remaining": usage.map(|usage| usage.remaining),
            }));
        }
        Value::Array(all)
    }

    /// A key of a limit that is counted in this process. If it is not certain that it is counted by `variant`, the first one that
    /// knows it speaks.
    fn key_here(
        &self,
        (limit, variant, ruled): (&Arc<Limit>, &Arc<Limit>, &Limit),
        is_certain: bool,
        readings: &[(Fingerprint, KeyText)],
    ) -> Found {
        let now = self.shared.clock.now();
        let usage_of =
            |limit: &Arc<Limit>| readings.iter().find_map(|(key, _)| limit.counted.counters.usage(*key, now));
        let usage = match is_certain {
            true => usage_of(variant),
            false => limit.all().filter(|one| one.enforces() || !limit.enforces()).find_map(usage_of),
        };
        let banned_for = readings.iter().find_map(|(key, _)| limit.counted.banned_for(*key, now));
        Found {
            known: usage.is_some() || banned_for.is_some(),
            usage: usage.unwrap_or(ruled.counted.fresh(now)),
            banned_for,
        }
    }

    /// What a key of a limit that a store counts has left, by the store; `None` if it does not answer. The key is that of a rule.
    pub(super) async fn left_in_store(
        &self,
        snapshot: &Snapshot,
        limit: &Arc<Limit>,
        (text, readings): (&str, &[(Fingerprint, KeyText)]),
    ) -> Option<Usage> {
        let store = self.store_of(limit)?;
        let asked = Asked { snapshot, limit, text: text.to_owned(), readings: readings.to_vec() };
        let plan = self.plan_of(&asked);
        let ruled = Self::ruled(snapshot, limit.for_plan(plan.flatten()), readings).await;
        Some(key_in_store(&store, &ruled, readings, plan.is_none()).await?.usage)
    }

    /// The limit as the rule of a key changes it.
    async fn ruled(
        snapshot: &Snapshot,
        limit: &Arc<Limit>,
        readings: &[(Fingerprint, KeyText)],
    ) -> Arc<Limit> {
        let Some(rules) = snapshot.rules() else { return Arc::clone(limit) };
        let ruled = rules.limit(&limit.config.name);
        let question = |(key, text): &(Fingerprint, KeyText)| KeyQuestion {
            limit: Arc::clone(&ruled),
            key: *key,
            text: text.clone(),
        };
        let questions: Vec<KeyQuestion> = readings.iter().map(question).collect();
        let answers = rules.load(&questions).await;
        match answers.iter().find_map(|answer| answer.effect) {
            None => Arc::clone(limit),
            Some(id) => match limit.with_effect(id, || rules.effect(id)) {
                Variant::Limit { limit, .. } => Arc::clone(limit),
                Variant::Exempt | Variant::Unchanged => Arc::clone(limit),
            },
        }
    }
}

impl<'s> Asked<'s> {
    /// The key that is asked for by this text, percent-encoded.
    #[allow(clippy::result_large_err, reason = "an answer is made once for each request of an operator")]
    fn new(snapshot: &'s Snapshot, name: &str, key: &str) -> Result<Self, Answer> {
        let Some(limit) = snapshot.limit(name) else {
            return Err(problem(StatusCode::NOT_FOUND, &format!("there is no limit called `{name}`")));
        };
        let text = sluicegate_config::percent_decode(key);
        let prefix = snapshot.config.client_ip.ipv6_prefix;
        let readings = crate::keys::from_text(&limit.config.key, &text, prefix, &snapshot.secret);
        if readings.is_empty() {
            let why = format!(
                "`{text}` cannot be a key of `{name}`; a composite key is its values joined by commas"
            );
            return Err(problem(StatusCode::BAD_REQUEST, &why));
        }
        Ok(Self { snapshot, limit, text, readings })
    }
}

/// A key of a limit that a store counts; `None` if it does not answer. `is_other` says that the key may have the quota of another
/// variant.
async fn key_in_store(
    store: &Rc<Store>,
    limit: &Limit,
    readings: &[(Fingerprint, KeyText)],
    is_other: bool,
) -> Option<Found> {
    let mut found: Option<Peeked> = None;
    for (key, text) in readings {
        let peeked = match is_other {
            true => store.peek_under(&limit.counted, *key, text, Span::SECOND).await?,
            false => store.peek(&limit.counted, *key, text, Span::SECOND).await?,
        };
        let known = peeked.known;
        found = found.filter(|_| !known).or(Some(peeked));
        if known {
            break;
        }
    }
    found.map(|Peeked { known, usage, banned_for, .. }| Found { known, usage, banned_for })
}

/// Pardons a key of a limit that a store counts; `None` if it does not answer.
async fn pardoned_in_store(store: &Rc<Store>, asked: &Asked<'_>) -> Option<bool> {
    let mut pardoned = false;
    for (key, text) in &asked.readings {
        let forget = |name: &str| asked.snapshot.forget(name);
        for limit in asked.limit.all() {
            pardoned |= store.pardon(&limit.counted, *key, text, forget).await?;
        }
    }
    Some(pardoned)
}
