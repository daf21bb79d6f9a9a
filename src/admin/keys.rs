//! The state of one key, and its pardon: `/limits/{limit}/keys/{key}`.

use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use serde_json::json;
use sluicegate_limiter::{Span, Usage};

use super::{Admin, Answer, problem, reply};
use crate::keys::{Fingerprint, KeyText};
use crate::limit::{Limit, Peeked, Store, Variant};
use crate::rules::KeyQuestion;
use crate::snapshot::Snapshot;

impl Admin {
    pub(super) async fn key(&self, name: &str, key: &str, pardon: bool) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let Some(limit) = snapshot.limit(name) else {
            return problem(StatusCode::NOT_FOUND, &format!("there is no limit called `{name}`"));
        };
        let key = sluicegate_config::percent_decode(key);
        let prefix = snapshot.config.client_ip.ipv6_prefix;
        let readings = crate::keys::from_text(&limit.config.key, &key, prefix, &snapshot.secret);
        if readings.is_empty() {
            let why = format!(
                "`{key}` cannot be a key of `{name}`; a composite key is its values joined by commas"
            );
            return problem(StatusCode::BAD_REQUEST, &why);
        }
        let store = self.store.borrow().as_ref().filter(|_| limit.config.shared).map(Rc::clone);
        let ruled = Self::ruled(&snapshot, limit, &readings).await;
        let found = match &store {
            Some(store) => shared_key(store, &snapshot, (limit, &ruled), &readings, pardon).await,
            None => Some(self.local_key((limit, &ruled), &readings, pardon)),
        };
        match found {
            None => problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "the store, which counts this limit, does not answer",
            ),
            Some(Found::Pardoned(pardoned)) => {
                reply(&json!({ "limit": name, "key": key, "pardoned": pardoned }))
            }
            Some(Found::Key { known, usage, banned_for }) => reply(&json!({
                "limit": name,
                "key": key,
                "known": known,
                "capacity": usage.capacity,
                "remaining": usage.remaining,
                "reset": usage.reset.as_nanos() as f64 / 1e9,
                "banned_for": banned_for.unwrap_or(Span::ZERO).as_nanos() as f64 / 1e9,
            })),
        }
    }

    fn local_key(
        &self,
        (limit, ruled): (&Arc<Limit>, &Limit),
        readings: &[(Fingerprint, KeyText)],
        pardon: bool,
    ) -> Found {
        if pardon {
            let all = limit.all().flat_map(|limit| readings.iter().map(move |(key, _)| (limit, *key)));
            return Found::Pardoned(all.filter(|(limit, key)| limit.counted.pardon(*key)).count() > 0);
        }
        // Whoever is on a plan is counted under that: the first that knows the key speaks.
        let now = self.shared.clock.now();
        let mut variants = limit.all().filter(|variant| variant.enforces() || !limit.enforces());
        let usage = variants
            .find_map(|limit| readings.iter().find_map(|(key, _)| limit.counted.counters.usage(*key, now)));
        let banned_for = readings.iter().find_map(|(key, _)| limit.counted.banned_for(*key, now));
        Found::Key {
            known: usage.is_some() || banned_for.is_some(),
            usage: usage.unwrap_or(ruled.counted.fresh(now)),
            banned_for,
        }
    }

    /// What a key of a limit that a store counts has left, by the store; `None` if it does not answer.
    pub(super) async fn left_in_store(
        &self,
        snapshot: &Snapshot,
        limit: &Arc<Limit>,
        readings: &[(Fingerprint, KeyText)],
    ) -> Option<Usage> {
        let store = self.store.borrow().as_ref().map(Rc::clone)?;
        let ruled = Self::ruled(snapshot, limit, readings).await;
        match shared_key(&store, snapshot, (limit, &ruled), readings, false).await? {
            Found::Key { usage, .. } => Some(usage),
            Found::Pardoned(_) => None,
        }
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

/// What was found under a key, or done to it.
enum Found {
    Pardoned(bool),
    Key { known: bool, usage: Usage, banned_for: Option<Span> },
}

/// The same for a limit that a store counts; `None` if it does not answer.
async fn shared_key(
    store: &Rc<Store>,
    snapshot: &Snapshot,
    (limit, ruled): (&Arc<Limit>, &Limit),
    readings: &[(Fingerprint, KeyText)],
    pardon: bool,
) -> Option<Found> {
    let mut found = None;
    let mut pardoned = false;
    for (key, text) in readings {
        if pardon {
            let forget = |name: &str| snapshot.forget(name);
            for limit in limit.all() {
                pardoned |= store.pardon(&limit.counted, *key, text, forget).await?;
            }
        } else {
            let peeked = store.peek(&ruled.counted, *key, text, Span::SECOND).await?;
            let known = peeked.known;
            found = found.filter(|_| !known).or(Some(peeked));
            if known {
                break;
            }
        }
    }
    match found {
        Some(Peeked { known, usage, banned_for, .. }) => Some(Found::Key { known, usage, banned_for }),
        None => Some(Found::Pardoned(pardoned)),
    }
}
