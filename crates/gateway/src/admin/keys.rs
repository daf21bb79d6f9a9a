//! The state of one key, and its pardon: `/limits/{limit}/keys/{key}`.

use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use sluicegate_limiter::{Span, Usage};

use super::asking::Asking;
use super::{Admin, Answer, problem, reply};
use crate::found_keys::{KeyFinder, NotFound};
use crate::limit::{Limit, Peeked, Store, Variant};
use crate::rules::KeyQuestion;
use crate::snapshot::Snapshot;
use sluicegate_config::Part;
use sluicegate_observe::top::Rank;
use sluicegate_route::keys::{Fingerprint, KeyText, parts_of};

/// The answer if the store does not tell.
const NO_STORE: &str = "the store, which counts this limit, does not answer";

/// A key of a limit.
struct Key<'s> {
    snapshot: &'s Snapshot,
    limit: &'s Arc<Limit>,
    /// The ways to read what the operator has written, best first.
    readings: Vec<(Fingerprint, KeyText)>,
}

/// The keys that an operator asks for.
struct Asked<'s> {
    limit: &'s Arc<Limit>,
    /// As it was written, decoded.
    text: String,
    /// What the text means: one key, or those of a consumer that requests had.
    keys: Vec<Key<'s>>,
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
        let asked = match self.asked(&snapshot, name, key) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let mut states = Vec::new();
        for key in &asked.keys {
            match self.state(key).await {
                Some(state) => states.push(state),
                None => return problem(StatusCode::SERVICE_UNAVAILABLE, NO_STORE),
            }
        }
        let note = note(&snapshot, &asked);
        let mut value = match states.len() {
            1 => states.remove(0),
            _ => json!({ "keys": states }),
        };
        value["limit"] = name.into();
        value["key"] = asked.text.into();
        if let Some(note) = note {
            value["note"] = note.into();
        }
        reply(&value)
    }

    /// What a key has left; `None` if the store that counts it does not answer.
    async fn state(&self, key: &Key<'_>) -> Option<Value> {
        let Key { snapshot, limit, readings } = key;
        let plan = self.plan_of(key);
        let variant = limit.for_plan(plan.flatten());
        let ruled = Self::ruled(snapshot, variant, readings).await;
        let Found { known, usage, banned_for } = match self.store_of(limit) {
            Some(store) => key_in_store(&store, &ruled, readings, plan.is_none()).await?,
            None => self.key_here((limit, variant, &ruled), plan.is_some(), readings),
        };
        let mut value = json!({
            "shown": key.shown(),
            "known": known,
            "capacity": usage.capacity,
            "remaining": usage.remaining,
            "reset": usage.reset.as_nanos() as f64 / 1e9,
            "banned_for": banned_for.unwrap_or(Span::ZERO).as_nanos() as f64 / 1e9,
        });
        if let Some(consumer) = readings.iter().find_map(|(_, text)| snapshot.owner_of_key(text)) {
            value["consumer"] = consumer.into();
        }
        match plan {
            _ if limit.plans.is_empty() => {}
            Some(plan) => value["plan"] = plan.into(),
            None => value["variants"] = self.variants(key).await,
        }
        Some(value)
    }

    /// Resets what a key has used, and ends its ban.
    pub(super) async fn pardon(&self, name: &str, key: &str, by: &Asking) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let asked = match self.asked(&snapshot, name, key) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        if asked.limit.fair.is_some() && !matches!(&*asked.text, "global" | "global:") {
            // `top` ranks who shares the limit: a pardon of one of these would be one of all.
            let why = format!(
                "`{name}` has one key, `global`, which `fair` divides: `{}` is not a key of it",
                asked.text
            );
            return problem(StatusCode::BAD_REQUEST, &why);
        }
        let mut pardoned = Vec::new();
        for key in &asked.keys {
            let is_pardoned = match self.store_of(asked.limit) {
                Some(store) => pardoned_in_store(&store, key).await,
                None => {
                    let all = asked.limit.all();
                    let all = all.flat_map(|limit| key.readings.iter().map(move |(key, _)| (limit, *key)));
                    Some(all.filter(|(limit, key)| limit.counted.pardon(*key)).count() > 0)
                }
            };
            match is_pardoned {
                None => return problem(StatusCode::SERVICE_UNAVAILABLE, NO_STORE),
                Some(false) => {}
                Some(true) => {
                    let shown = key.shown().unwrap_or_else(|| "(none)".to_owned());
                    self.audit_pardon(&snapshot, by, name, &shown);
                    pardoned.push(shown);
                }
            }
        }
        let mut value = json!({ "limit": name, "key": asked.text, "pardoned": !pardoned.is_empty() });
        if let Some(note) = note(&snapshot, &asked) {
            value["note"] = note.into();
            value["keys"] = pardoned.into();
        }
        reply(&value)
    }

    /// The keys that are asked for by this text, percent-encoded.
    #[allow(clippy::result_large_err, reason = "an answer is made once for each request of an operator")]
    fn asked<'s>(&self, snapshot: &'s Snapshot, name: &str, key: &str) -> Result<Asked<'s>, Answer> {
        let Some(limit) = snapshot.limit(name) else {
            return Err(problem(StatusCode::NOT_FOUND, &format!("there is no limit called `{name}`")));
        };
        let text = sluicegate_config::percent_decode(key);
        let finder = KeyFinder::new(snapshot, &limit.config.name, &limit.config.key);
        match finder.find(&text, &self.seen_keys(snapshot, limit)) {
            Ok(keys) => {
                let keys = keys.into_iter().map(|readings| Key { snapshot, limit, readings }).collect();
                Ok(Asked { limit, text, keys })
            }
            Err(NotFound::NoKey(why)) => Err(problem(StatusCode::BAD_REQUEST, &why)),
            Err(NotFound::NotSeen(why)) => Err(problem(StatusCode::NOT_FOUND, &why)),
        }
    }

    /// The keys, or with `fair` those who share the limit, that requests had within the last hour, as far as this gateway knows.
    pub(super) fn seen_keys(&self, snapshot: &Snapshot, limit: &Arc<Limit>) -> Vec<KeyText> {
        let of_top = |rank: &Rank| self.shared.tops.ranking(&limit.config.name, *rank).keys;
        let counted = Rank::ALL.iter().flat_map(of_top).map(|one| one.text);
        let index = snapshot.limits.iter().position(|one| Arc::ptr_eq(one, limit));
        let now = self.shared.clock.now();
        let refused = index.map(|index| self.shared.refusals.keys_of(snapshot.generation, index, now));
        let mut all: Vec<KeyText> = counted.chain(refused.into_iter().flatten()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The store, if it counts this limit.
    fn store_of(&self, limit: &Limit) -> Option<Rc<Store>> {
        self.store.borrow().as_ref().filter(|_| limit.config.shared).map(Rc::clone)
    }

    /// The plan that a key is on, `Some(None)` for none: by the file of the consumers, or by what this gateway has counted. `None`
    /// if neither tells: the plan of a token, for example, is known while a request has it.
    fn plan_of<'s>(&self, key: &Key<'s>) -> Option<Option<&'s str>> {
        let Key { snapshot, limit, readings } = key;
        if limit.plans.is_empty() {
            return Some(None);
        }
        let consumers = snapshot.config.known_consumers().map(|(_, known)| known);
        let consumer = consumers.and_then(|known| {
            let mut parts = readings.iter().flat_map(|(_, text)| parts_of(text));
            parts.find_map(|(part, value)| match part {
                Part::Consumer => known.named(std::str::from_utf8(value).ok()?),
                Part::ApiKey => known.find(value),
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
    async fn variants(&self, key: &Key<'_>) -> Value {
        let Key { limit, readings, .. } = key;
        let own = std::iter::once((None, *limit));
        let plans = limit.plans.iter().map(|(name, limit)| (Some(name), limit));
        let mut all = Vec::new();
        for (plan, variant) in own.chain(plans) {
            let found = match self.store_of(limit) {
                Some(store) => key_in_store(&store, variant, readings, true).await,
                None => Some(self.key_here((limit, variant, variant), true, readings)),
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
        readings: &[(Fingerprint, KeyText)],
    ) -> Option<Usage> {
        let store = self.store_of(limit)?;
        let plan = self.plan_of(&Key { snapshot, limit, readings: readings.to_vec() });
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

impl Key<'_> {
    /// The key as `top`, `explain` and the access log show it.
    fn shown(&self) -> Option<String> {
        self.readings.first().and_then(|(_, text)| self.snapshot.shown_keys().text(text))
    }
}

/// A note if a text means several keys, or a consumer who has more API keys than are found.
fn note(snapshot: &Snapshot, asked: &Asked<'_>) -> Option<String> {
    let Asked { limit, text, keys } = asked;
    let is_by_key = limit.config.key.parts().any(|part| *part == Part::ApiKey);
    let consumers = snapshot.config.known_consumers().filter(|_| is_by_key);
    let name = text.rsplit(':').next().unwrap_or_default();
    let found = match keys.len() {
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    };
    match consumers.map_or(0, |(_, known)| known.keys_of(name)) {
        0 | 1 if keys.len() == 1 => None,
        0 => Some(format!("`{text}` means {found}")),
        own => {
            Some(format!("`{name}` has {own} API keys: requests of the last hour had {found} of the limit"))
        }
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
async fn pardoned_in_store(store: &Rc<Store>, of: &Key<'_>) -> Option<bool> {
    let mut pardoned = false;
    for (key, text) in &of.readings {
        let forget = |name: &str| of.snapshot.forget(name);
        for limit in of.limit.all() {
            pardoned |= store.pardon(&limit.counted, *key, text, forget).await?;
        }
    }
    Some(pardoned)
}
