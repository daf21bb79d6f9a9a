//! The busiest keys of several gateways that share a limit: each tells its own as text, and they are added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Merger, Rank, Ranking, Tops};

/// The keys of a limit that a gateway tells the others: at most so many, and fewer if it has many limits, but some of each.
const PUBLISHED: usize = 128;
const PUBLISHED_OF_ALL: usize = 4_096;
const PUBLISHED_AT_LEAST: usize = 8;

/// Keys as operators are shown them, with their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownTop {
    /// The keys.
    pub keys: Vec<ShownCount>,
    /// The most requests that a key that is not among them can have had.
    pub unseen: u64,
}

/// A key with its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCount {
    /// The key; `None` for requests without it.
    pub key: Option<String>,
    /// The consumer whose API key it is, if consumers are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// Its requests, or more.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

/// What a gateway tells: the keys by limit, by refusals and by requests.
type Published = BTreeMap<String, [ShownTop; 2]>;

impl Ranking {
    /// At most so many keys, as `show` shows them: the text of a key, and its consumer.
    pub fn shown(self, most: usize, show: impl Fn(&[u8]) -> (Option<String>, Option<String>)) -> ShownTop {
        let Self { keys, unseen } = self.cut(most);
        let shown = |one: &super::Counted| {
            let (key, consumer) = show(&one.text);
            ShownCount { key, consumer, count: one.count, error: one.error }
        };
        ShownTop { keys: keys.iter().map(shown).collect(), unseen }
    }
}

impl Tops {
    /// What the other gateways are told of these limits, with their keys as `show` shows them.
    pub fn publish<'l>(
        &self,
        limits: impl Iterator<Item = &'l str>,
        show: impl Fn(&[u8]) -> (Option<String>, Option<String>),
    ) -> String {
        let limits: Vec<&str> = limits.collect();
        let most = (PUBLISHED_OF_ALL / limits.len().max(1)).clamp(PUBLISHED_AT_LEAST, PUBLISHED);
        let ranked = |limit: &str| {
            [Rank::Refused, Rank::Requests].map(|rank| self.ranking(limit, rank).shown(most, &show))
        };
        let all: Published = limits.into_iter().map(|limit| (limit.to_owned(), ranked(limit))).collect();
        serde_json::to_string(&all).unwrap_or_default() // maps with texts as keys can be written
    }
}

/// What another gateway has told of a limit; `None` if that is not readable, or nothing.
pub fn published(text: &str, limit: &str, rank: Rank) -> Option<ShownTop> {
    let mut all: Published = serde_json::from_str(text).ok()?;
    let [refused, requests] = all.remove(limit)?;
    Some(match rank {
        Rank::Refused => refused,
        Rank::Requests => requests,
    })
}

/// The keys of all together, those with the most requests first. Keys of which no request is certain are left out.
pub fn merged(parts: &[ShownTop], most: usize) -> Vec<ShownCount> {
    let mut merger = Merger::new();
    for part in parts {
        merger.add(part.keys.iter().map(|one| (&one.key, one, one.count, one.error)), part.unseen);
    }
    let mut keys: Vec<ShownCount> = merger
        .finish()
        .0
        .map(|(one, count, error)| ShownCount { count, error, ..one.clone() })
        .filter(|one| one.count > one.error)
        .collect();
    keys.sort_unstable_by(|one, other| (other.count, &one.key).cmp(&(one.count, &other.key)));
    keys.truncate(most);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(keys: &[(&str, u64, u64)], unseen: u64) -> ShownTop {
        let one = |(key, count, error): &(&str, u64, u64)| ShownCount {
            key: (!key.is_empty()).then(|| (*key).to_owned()),
            consumer: None,
            count: *count,
            error: *error,
        };
        ShownTop { keys: keys.iter().map(one).collect(), unseen }
    }

    #[test]
    fn gateways_add_up() {
        let parts = [top(&[("a", 10, 0), ("", 7, 1)], 2), top(&[("a", 5, 1), ("b", 6, 0), ("c", 2, 0)], 1)];
        let expected = top(&[("a", 15, 1), ("", 7, 2), ("b", 6, 2)], 0).keys;
        assert_eq!(merged(&parts, 10), expected, "of c no request is certain");
        assert_eq!(merged(&parts, 1), expected[..1]);
        assert_eq!(merged(&[], 10), []);
    }

    #[test]
    fn what_is_told_can_be_read() {
        let tops = Tops::default();
        let worker = tops.of_worker("l", 0);
        let key = sluicegate_route::keys::Fingerprint::from_hash(7);
        (0..3).for_each(|_| worker.count(key, &sluicegate_route::keys::KeyText::from_slice(b"k"), true));
        let text =
            tops.publish(["l"].into_iter(), |key| (Some(String::from_utf8_lossy(key).into_owned()), None));
        let ranked = Some(top(&[("k", 3, 0)], 0));
        assert_eq!(
            (published(&text, "l", Rank::Refused), published(&text, "l", Rank::Requests)),
            (ranked.clone(), ranked)
        );
        for damaged in ["", "{", "[]", "{\"l\": 1}", "{\"m\": []}"] {
            assert_eq!(published(damaged, "l", Rank::Refused), None);
        }
    }
}
