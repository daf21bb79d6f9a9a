//! What a reload changes: which counters are kept, rescaled or lost, which routes and listeners differ.
//!
//! It compares configurations in the form of `GET /config`, so that a file can be compared with what a gateway elsewhere
//! has in force.

mod limits;
mod members;
mod text;

use self::members::{fields, named};
use serde::Serialize;
use serde_json::{Map, Value};

pub use self::limits::{Fate, LimitChange};

/// The differences between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// What becomes of each limit.
    pub limits: Vec<LimitChange>,
    /// The routes.
    pub routes: Changes,
    /// The listeners.
    pub listeners: Changes,
    /// The upstreams.
    pub upstreams: Changes,
    /// The other sections of the file that differ.
    pub settings: Vec<String>,
}

/// Named things that were added, removed or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Names that only the new configuration has.
    pub added: Vec<String>,
    /// Names that only the old one has.
    pub removed: Vec<String>,
    /// Those that both have, with the fields that differ.
    pub changed: Vec<Changed>,
    /// Whether those that both have come in another order.
    #[serde(skip_serializing_if = "is_false")]
    pub reordered: bool,
}

/// A thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Its name.
    pub name: String,
    /// The fields that differ.
    pub fields: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Diff {
    /// Compares two configurations in the form of `GET /config`. `keys` is the number of keys that a limit of the old one
    /// has counted, if that is known.
    pub fn between(old: &Value, new: &Value, keys: impl Fn(&str) -> Option<u64>) -> Self {
        let sections = ["limits", "routes", "listen", "upstreams", "generation"];
        let others = |value: &Value| -> Map<String, Value> {
            let all = value.as_object().into_iter().flatten();
            all.filter(|(name, _)| !sections.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        Self {
            limits: limits::changes(old, new, keys),
            routes: Changes::of(named(&old["routes"]), named(&new["routes"]), true),
            listeners: Changes::of(named(&old["listen"]), named(&new["listen"]), false),
            upstreams: Changes::of(named(&old["upstreams"]), named(&new["upstreams"]), false),
            settings: fields(&others(old).into(), &others(new).into()),
        }
    }

    /// Whether counters are lost.
    pub fn loses(&self) -> bool {
        self.limits.iter().any(|limit| limit.fate == Fate::Lost)
    }
}

impl Changes {
    fn of(old: Vec<(&str, &Value)>, new: Vec<(&str, &Value)>, ordered: bool) -> Self {
        fn find<'v>(all: &[(&str, &'v Value)], name: &str) -> Option<&'v Value> {
            all.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
        }
        let only = |these: &[(&str, &Value)], others: &[(&str, &Value)]| -> Vec<String> {
            let names = these.iter().filter(|(name, _)| find(others, name).is_none());
            names.map(|(name, _)| (*name).to_owned()).collect()
        };
        let changed = new.iter().filter_map(|(name, value)| {
            let fields = fields(find(&old, name)?, value);
            (!fields.is_empty()).then(|| Changed { name: (*name).to_owned(), fields })
        });
        let both = |these: &[(&str, &Value)], others: &[(&str, &Value)]| -> Vec<String> {
            let names = these.iter().filter(|(name, _)| find(others, name).is_some());
            names.map(|(name, _)| (*name).to_owned()).collect()
        };
        Self {
            added: only(&new, &old),
            removed: only(&old, &new),
            changed: changed.collect(),
            reordered: ordered && both(&old, &new) != both(&new, &old),
        }
    }

    fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}
