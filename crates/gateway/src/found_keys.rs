//! Finds the keys of a limit that an operator means: by the key as requests have it, by the text or the digest that is shown of it,
//! or by the consumer whose API key it is.

use std::borrow::Cow;

use crate::snapshot::Snapshot;
use sluicegate_auth::{Consumer, Consumers};
use sluicegate_base::file_watch::{hex, sha256};
use sluicegate_config::{KeySpec, Part, ValueForm};
use sluicegate_observe::shown_key::ShownKeys;
use sluicegate_route::keys::{self, Fingerprint, KeyText, parts_of};

/// The keys that a message lists.
const LISTED: usize = 5;
/// What stands before the digits of a digest.
const MARK: &[u8] = b"sha256:";

/// The keys that a text means, each with the ways to read it, best first.
pub(crate) type Meant = Vec<Vec<(Fingerprint, KeyText)>>;

/// Why no key is found.
#[derive(Debug)]
pub(crate) enum NotFound {
    /// The text cannot be a key of the limit.
    NoKey(String),
    /// It stands for keys that are not known here.
    NotSeen(String),
}

/// Finds keys of a limit, or of its `fair.by`.
pub(crate) struct KeyFinder<'s> {
    snapshot: &'s Snapshot,
    limit: &'s str,
    spec: &'s KeySpec,
    consumers: Option<&'s Consumers>,
    shown: ShownKeys<'s>,
}

impl<'s> KeyFinder<'s> {
    /// Finds keys with this specification. Messages name the limit.
    pub(crate) fn new(snapshot: &'s Snapshot, limit: &'s str, spec: &'s KeySpec) -> Self {
        let consumers = snapshot.config.known_consumers().map(|(_, known)| known);
        Self { snapshot, limit, spec, consumers, shown: ShownKeys::new(&snapshot.config) }
    }

    /// The keys that the text means. `seen` are those that requests had, each once: a digest and a consumer's name find only these, because
    /// neither tells the key itself.
    ///
    /// # Errors
    /// Why there is none, and what can be written.
    pub(crate) fn find(&self, text: &str, seen: &[KeyText]) -> Result<Meant, NotFound> {
        let Self { snapshot, spec, .. } = self;
        let shown = self.each(seen, |key| self.shown.text(key).is_some_and(|shown| shown == text));
        if !shown.is_empty() {
            return Ok(shown);
        }
        let parts = spec.alternatives();
        let values: Vec<&str> = if parts.len() == 1 { vec![text] } else { text.split(',').collect() };
        if values.len() != parts.len() {
            return Err(NotFound::NoKey(self.forms(text) + &self.near(&values, seen)));
        }
        let values: Vec<Cow<'_, str>> =
            values.into_iter().zip(parts).map(|(value, part)| self.with_consumer(value, part)).collect();
        let named = || self.each(seen, |key| self.is_named(key, &values));
        if values.iter().any(|value| digest(self.bare(value)).is_some()) {
            let named = named();
            if !named.is_empty() {
                return Ok(named);
            }
        }
        let mut readings =
            keys::from_text(spec, &values.join(","), snapshot.config.client_ip.ipv6_prefix, &snapshot.secret);
        readings.retain(|(_, key)| self.can_be_sent(key));
        if !readings.is_empty() {
            return Ok(vec![readings]);
        }
        let named = named();
        if !named.is_empty() {
            return Ok(named);
        }
        Err(match values.iter().find_map(|value| self.stands_for(value)) {
            Some(what) => NotFound::NotSeen(format!(
                "{what} is among the busiest keys of `{}` within the last hour on this gateway: write the key itself",
                self.limit
            )),
            None => NotFound::NoKey(self.forms(text)),
        })
    }

    /// Those of the keys that are meant, each with one reading. Keys of an earlier configuration of the limit are left out.
    fn each(&self, seen: &[KeyText], is_meant: impl Fn(&KeyText) -> bool) -> Meant {
        let found = seen.iter().filter(|key| is_meant(key));
        let reading = |key: &KeyText| {
            Some(vec![(keys::fingerprint_of_text(self.spec, key, &self.snapshot.secret)?, key.clone())])
        };
        found.filter_map(reading).collect()
    }

    /// Whether each value names the part of a key.
    fn is_named(&self, key: &[u8], values: &[Cow<'_, str>]) -> bool {
        parts_of(key).zip(values).all(|((part, own), value)| self.names(value, &part, own))
    }

    /// A value without the name of a part of the key before it.
    fn bare<'t>(&self, value: &'t str) -> &'t str {
        self.spec.parts().fold(value, |text, part| keys::without_name(part, text))
    }

    /// Whether a text names the value of a part.
    fn names(&self, text: &str, part: &Part, value: &[u8]) -> bool {
        let bare = keys::without_name(part, text);
        let by_digest = || {
            let digest = digest(bare).filter(|_| self.shown.is_secret(part));
            digest.is_some_and(|digest| hex(&sha256(value)).starts_with(&digest))
        };
        let by_owner = || {
            let known = self.consumers.filter(|_| *part == Part::ApiKey);
            let owner = known.and_then(|known| known.find(value));
            owner.is_some_and(|owner| owner.name == keys::without_name(&Part::Consumer, bare))
        };
        let prefix = self.snapshot.config.client_ip.ipv6_prefix;
        keys::is_meant(part, value, text, prefix) || by_digest() || by_owner()
    }

    /// A value for a part that is the consumer: the consumer's name in place of its API key, or of the digest of one.
    fn with_consumer<'t>(&self, value: &'t str, alternatives: &[Part]) -> Cow<'t, str> {
        let Some(known) = self.consumers.filter(|_| alternatives.contains(&Part::Consumer)) else {
            return Cow::Borrowed(value);
        };
        match meant_consumer(known, value) {
            Some(owner) => Cow::Owned(format!("{}:{}", Part::Consumer.name(), owner.name)),
            None => Cow::Borrowed(value),
        }
    }

    /// Whether requests can have a key: an API key is a known one where keys are known. What has the form of a shown digest is taken
    /// for one.
    fn can_be_sent(&self, key: &[u8]) -> bool {
        parts_of(key).all(|(part, value)| match (&part, self.consumers) {
            (Part::ApiKey, Some(known)) => known.find(value).is_some(),
            _ => !self.shown.is_secret(&part) || !value.starts_with(MARK) || !is_digest(value),
        })
    }

    /// What a value stands for, if it is a digest or a consumer's name, in a message that no key is found.
    fn stands_for(&self, value: &str) -> Option<String> {
        let bare = self.bare(value);
        let name = keys::without_name(&Part::Consumer, bare);
        let has_owner = self.spec.parts().any(|part| *part == Part::ApiKey);
        match self.consumers.filter(|_| has_owner).and_then(|known| known.named(name)) {
            Some(_) => Some(format!("no API key of `{name}`")),
            None => digest(bare).map(|_| format!("no key with the digest `{bare}`")),
        }
    }

    /// The keys that have one of the values, in a message about a text with fewer or more values than the key has.
    fn near(&self, values: &[&str], seen: &[KeyText]) -> String {
        let has = |key: &KeyText| {
            parts_of(key).any(|(part, own)| values.iter().any(|value| self.names(value, &part, own)))
        };
        let near = self.each(seen, has).into_iter().flatten().filter_map(|(_, key)| self.shown.text(&key));
        let near: Vec<String> = near.take(LISTED).map(|key| format!("`{key}`")).collect();
        match near.is_empty() {
            true => String::new(),
            false => format!("; keys with such a value: {}", near.join(" ")),
        }
    }

    /// What can be written in place of a text that is not a key.
    fn forms(&self, text: &str) -> String {
        let form = |part: &Part| match part {
            part if part.values() == ValueForm::Address => "an address".to_owned(),
            Part::ApiKey if self.consumers.is_some() => {
                "an API key, its digest or the name of its consumer".to_owned()
            }
            Part::Consumer if self.consumers.is_some() => {
                "the name of a consumer, one of its API keys or the digest of one".to_owned()
            }
            part if self.shown.is_secret(part) => format!("the value of `{part}` or its digest"),
            part => format!("the value of `{part}`"),
        };
        let each = self.spec.alternatives().iter();
        let each = each.map(|alternatives| alternatives.iter().map(form).collect::<Vec<_>>().join(", or "));
        let (name, each) = (self.limit, each.collect::<Vec<_>>());
        match each.len() {
            1 => format!("`{text}` cannot be a key of `{name}`; write {}", each.join("")),
            count => format!(
                "`{text}` cannot be a key of `{name}`, which has {count} values joined by commas: {}",
                each.join("; ")
            ),
        }
    }
}

impl Snapshot {
    /// Shows keys in `top`: as text, and whose API key it is.
    pub(crate) fn show_in_top(&self) -> impl Fn(&[u8]) -> (Option<String>, Option<String>) {
        let shown = self.shown_keys();
        move |key| (shown.text(key), self.owner_of_key(key))
    }

    /// The consumer whose API key is part of a key, which is shown as a digest.
    pub fn owner_of_key(&self, key: &[u8]) -> Option<String> {
        let (_, known) = self.config.known_consumers()?;
        let mut keys = parts_of(key).filter(|(part, _)| *part == Part::ApiKey);
        keys.find_map(|(_, value)| Some(known.find(value)?.name.to_owned()))
    }
}

/// The consumer that an operator's text means: by its name, by one of its API keys, or by the digest of one.
pub(crate) fn meant_consumer<'c>(known: &'c Consumers, text: &str) -> Option<Consumer<'c>> {
    let bare = keys::without_name(&Part::ApiKey, keys::without_name(&Part::Consumer, text));
    let by_key = || known.find(bare.as_bytes()).or_else(|| known.with_digest(&digest(bare)?));
    known.named(text).or_else(|| known.named(bare)).or_else(by_key)
}

/// The digits of a digest, as it is shown (16) or in full (64), with `sha256:` before it or not.
fn digest(text: &str) -> Option<String> {
    is_digest(text.as_bytes()).then(|| text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase())
}

fn is_digest(text: &[u8]) -> bool {
    let digits = text.strip_prefix(MARK).unwrap_or(text);
    matches!(digits.len(), 16 | 64) && digits.iter().all(u8::is_ascii_hexdigit)
}
