//! What a running gateway does: `GET /live`, the last hour, `GET /limits/{limit}/top`, its busiest keys, and
//! `GET /limits/{limit}/bans`, its banned ones.

use http::StatusCode;
use serde_json::json;
use sluicegate_limiter::Span;

use super::query::parameter;
use super::{Admin, Answer, problem, reply};
use crate::found_keys::{KeyFinder, NotFound};
use sluicegate_base::clock::rfc3339;
use sluicegate_observe::top::{Counted, Rank, merged, published};

/// The keys that are told if the request does not say how many, and the most.
const USUAL: usize = 50;
const MOST: usize = 1_024;

impl Admin {
    pub(super) fn live(&self, query: Option<&str>) -> Answer {
        let since = match parameter(query, "since").map(|since| since.parse()) {
            None => 0,
            Some(Ok(since)) => since,
            Some(Err(_)) => {
                return problem(StatusCode::BAD_REQUEST, "`since` is the `time` of an earlier answer");
            }
        };
        let snapshot = self.shared.snapshot.load_full();
        let most = |name: &str| {
            let listener = snapshot.config.listeners.iter().find(|listener| listener.name == name)?;
            Some(listener.max_connections)
        };
        reply(&self.shared.history.json(&self.shared.metrics, since, most))
    }

    pub(super) async fn top(&self, limit: &str, query: Option<&str>) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let Some(known) = snapshot.limit(limit) else {
            return problem(StatusCode::NOT_FOUND, &format!("there is no limit called `{limit}`"));
        };
        let by = parameter(query, "by").unwrap_or_else(|| Rank::Refused.name().to_owned());
        let Some(rank) = Rank::ALL.iter().copied().find(|rank| rank.name() == by) else {
            return problem(StatusCode::BAD_REQUEST, &format!("`by` is one of {}", Rank::NAMES.join(", ")));
        };
        let most = match parameter(query, "most").map(|most| most.parse::<usize>()) {
            None => USUAL,
            Some(Ok(most @ 1..=MOST)) => most,
            Some(_) => return problem(StatusCode::BAD_REQUEST, &format!("`most` is between 1 and {MOST}")),
        };
        let shown = snapshot.shown_keys();
        let fair_by = known.fair.as_ref().map(|fair| &fair.config().by);
        let wanted = match parameter(query, "key") {
            None => None,
            Some(text) => {
                let finder = KeyFinder::new(&snapshot, limit, fair_by.unwrap_or(&known.config.key));
                match finder.find(&text, &self.seen_keys(&snapshot, known)) {
                    Ok(keys) => {
                        Some(keys.iter().flatten().filter_map(|(_, key)| shown.text(key)).collect::<Vec<_>>())
                    }
                    Err(NotFound::NotSeen(_)) => Some(vec![text]), // another gateway may have seen it
                    Err(NotFound::NoKey(why)) => return problem(StatusCode::BAD_REQUEST, &why),
                }
            }
        };
        let mut all = vec![self.shared.tops.ranking(limit, rank).shown(MOST, snapshot.show_in_top())];
        let store = self.store.borrow().clone().filter(|_| known.config.shared);
        let others = match store {
            Some(store) => store.published().await.unwrap_or_default(), // then only this gateway's are told
            None => Vec::new(),
        };
        all.extend(others.iter().filter_map(|text| published(text, limit, rank)));
        let mut keys = merged(&all, if wanted.is_some() { usize::MAX } else { most });
        if let Some(wanted) = wanted {
            keys.retain(|one| one.key.as_ref().is_some_and(|key| wanted.contains(key)));
            keys.truncate(most);
        }
        let mut value = json!({ "limit": limit, "by": rank.name(), "gateways": all.len(), "keys": keys });
        if let Some(by) = fair_by {
            value["fair_by"] = json!(by);
        }
        reply(&value)
    }

    /// The keys that a limit bans, as far as this gateway knows. Bans do not have the keys in full: those are told that are among
    /// the most refused ones of the last hour, and the others are counted.
    pub(super) fn bans(&self, limit: &str) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let Some(known) = snapshot.limit(limit) else {
            return problem(StatusCode::NOT_FOUND, &format!("there is no limit called `{limit}`"));
        };
        let Some(bans) = &known.counted.bans else {
            return problem(
                StatusCode::NOT_FOUND,
                &format!("the limit `{limit}` bans nobody: it has no `ban`"),
            );
        };
        let now = self.shared.clock.now();
        let shown = snapshot.shown_keys();
        let ranking = self.shared.tops.ranking(limit, Rank::Refused);
        let banned = ranking.keys.iter().filter_map(|Counted { key, text, .. }| {
            let left = bans.left(*key, now)?;
            let mut ban = json!({ "key": shown.text(text), "banned_for": seconds(left), "until": rfc3339(now.plus(left)) });
            if let Some(consumer) = snapshot.owner_of_key(text) {
                ban["consumer"] = consumer.into();
            }
            Some(ban)
        });
        let keys: Vec<_> = banned.take(MOST).collect();
        let all = bans.banned(now).max(keys.len());
        reply(&json!({ "limit": limit, "banned": all, "others": all - keys.len(), "keys": keys }))
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
