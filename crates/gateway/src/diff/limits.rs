//! What becomes of the counters of each limit.

use serde::Serialize;
use serde_json::Value;

use super::members::{fields, named};
use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// What becomes of the counters of a limit.
    Fate {
        /// They count on.
        Kept = "kept",
        /// What each key has used is converted to the new numbers.
        Rescaled = "rescaled",
        /// They start at zero, so that everybody has a full allowance.
        Lost = "lost",
        /// There was no such limit.
        New = "new",
        /// There is no such limit any more.
        Removed = "removed",
    }
}

impl Serialize for Fate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What becomes of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitChange {
    /// The name of the limit.
    pub name: String,
    /// What becomes of its counters.
    pub fate: Fate,
    /// The keys that it has counted; `None` if that is not known, because no gateway was asked.
    pub keys: Option<u64>,
    /// Why, or what changes; empty if nothing does.
    pub why: String,
}

/// The fields on which the meaning of counters depends.
const IDENTITY: [&str; 3] = ["key", "algorithm", "scope"];
/// The fields that change how much of the quota a counter stands for.
const NUMBERS: [&str; 7] = ["rate", "capacity", "slices", "strict", "zone", "max_keys", "plans"];

/// What becomes of the limits of `old`, and which are new.
pub(super) fn changes(old: &Value, new: &Value, keys: impl Fn(&str) -> Option<u64>) -> Vec<LimitChange> {
    let (before, after) = (named(&old["limits"]), named(&new["limits"]));
    let find = |all: &[(&str, &Value)], name: &str| all.iter().any(|(other, _)| *other == name);
    let mut all: Vec<LimitChange> = after
        .iter()
        .map(|(name, limit)| {
            let known = before.iter().find(|(other, _)| other == name);
            let (fate, why) = match known {
                Some((_, was)) => fate(was, limit, (old, new)),
                None => (Fate::New, renamed(&before, &after, limit)),
            };
            let keys = if known.is_some() { keys(name) } else { Some(0) };
            LimitChange { name: (*name).to_owned(), fate, keys, why }
        })
        .collect();
    let removed = before.iter().filter(|(name, _)| !find(&after, name));
    all.extend(removed.map(|(name, _)| LimitChange {
        name: (*name).to_owned(),
        fate: Fate::Removed,
        keys: keys(name),
        why: String::new(),
    }));
    all
}

/// What becomes of the counters of a limit that both configurations have.
fn fate(old: &Value, new: &Value, (before, after): (&Value, &Value)) -> (Fate, String) {
    let mut notes = Vec::new();
    for field in IDENTITY.into_iter().filter(|field| old[*field] != new[*field]) {
        if field != "key" || new["scope"] != "shared" || !has_more_alternatives(old, new) {
            return (Fate::Lost, changed(field, old, new));
        }
        notes.push(changed(field, old, new) + ": keys that are found as before keep their counters in Redis");
    }
    if new["scope"] == "shared"
        && let Some(why) = moved_store(&before["store"]["redis"], &after["store"]["redis"])
    {
        return (Fate::Lost, why.to_owned());
    }
    if let Some(why) = removed_plan(old, new) {
        return (Fate::Lost, why);
    }
    notes.extend(added_plan(old, new));
    let prefix = |config: &Value| config["client_ip"]["ipv6_prefix"].clone();
    let of_address = new["key"].as_str().is_some_and(has_address);
    if of_address && prefix(before) != prefix(after) {
        let why = format!("client_ip.ipv6_prefix was {} and is {}", prefix(before), prefix(after));
        return (Fate::Lost, format!("{why}: clients with IPv6 addresses have other keys"));
    }
    let numbers: Vec<String> = NUMBERS
        .into_iter()
        .filter(|field| match *field {
            "plans" => changes_a_plan(old, new),
            field => old[field] != new[field],
        })
        .map(|field| changed(field, old, new))
        .collect();
    if !numbers.is_empty() {
        return (Fate::Rescaled, [numbers, notes].concat().join("; "));
    }
    let rest = fields(old, new);
    if notes.is_empty() && !rest.is_empty() {
        notes.push(format!("changed: {}", rest.join(", ")));
    }
    (Fate::Kept, notes.join("; "))
}

/// Whether a key has the whole address of the client in it: its IPv6 prefix is a setting for all limits.
fn has_address(key: &str) -> bool {
    key.split(|c: char| !(c.is_ascii_alphanumeric() || "/:_-".contains(c))).any(|part| part == "ip")
}

/// Why the counters in a store are not found again, if they are not.
fn moved_store(old: &Value, new: &Value) -> Option<&'static str> {
    let differs = |field: &str| old[field] != new[field];
    if differs("prefix") {
        return Some("store.redis.prefix changed: the counters in Redis have other names");
    }
    ["server", "sentinel", "cluster", "database"]
        .into_iter()
        .any(differs)
        .then_some("the store is another Redis")
}

/// Whether the alternatives of the key are those of before and more: names in Redis have the part that was found, and not its place.
fn has_more_alternatives(old: &Value, new: &Value) -> bool {
    let parts = |limit: &Value| -> Option<Vec<String>> {
        let key = limit["key"].as_str().filter(|key| !key.starts_with('['))?;
        Some(key.split('|').map(|part| part.trim().to_owned()).collect())
    };
    parts(old).zip(parts(new)).is_some_and(|(old, new)| new.starts_with(&old))
}

/// Why counters are lost with a plan that is removed: the plans of a limit that is counted in the process have counters of their own.
fn removed_plan(old: &Value, new: &Value) -> Option<String> {
    let plan = other_plan(old, new)?;
    Some(format!("the plan `{plan}` is removed: keys on it start at zero"))
}

/// What becomes of keys on a plan that is added. All others keep their counters.
fn added_plan(old: &Value, new: &Value) -> Option<String> {
    let plan = other_plan(new, old)?;
    Some(format!("the plan `{plan}` is added: keys on it start at zero"))
}

/// Whether a plan that both limits have has other numbers.
fn changes_a_plan(old: &Value, new: &Value) -> bool {
    let differs =
        |(plan, numbers): &(&str, &Value)| new["plans"].get(*plan).is_some_and(|new| new != *numbers);
    named(&old["plans"]).iter().any(differs)
}

/// A plan that only the first of two limits has, if their plans have counters of their own.
fn other_plan(limit: &Value, other: &Value) -> Option<String> {
    let local = limit["scope"] != "shared" || other["scope"] != "shared";
    let plans = named(&limit["plans"]);
    let plan = plans.iter().find(|(plan, _)| other["plans"].get(*plan).is_none())?;
    local.then(|| plan.0.to_owned())
}

/// A hint if a limit that is new looks like one that is removed.
fn renamed(before: &[(&str, &Value)], after: &[(&str, &Value)], limit: &Value) -> String {
    let gone =
        before.iter().find(|(name, was)| *was == limit && !after.iter().any(|(other, _)| other == name));
    gone.map_or_else(String::new, |(name, _)| {
        format!("it equals `{name}`, which is removed: counters do not follow a new name")
    })
}

/// A changed field with both values.
fn changed(field: &str, old: &Value, new: &Value) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Object(_) => "others".to_owned(),
        value => value.to_string(),
    };
    format!("{field} was {} and is {}", shown(&old[field]), shown(&new[field]))
}
