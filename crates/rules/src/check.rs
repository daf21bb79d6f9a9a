//! What is wrong with a rule, whatever the configuration says about its limit.

use std::fmt;

use sluicegate_limiter::Time;

use crate::Rule;
use crate::times::{new_time_of, time_of};

/// The most characters of an id.
pub const MAX_ID_LENGTH: usize = 128;
/// The most bytes of a key text.
pub const MAX_KEY_BYTES: usize = 1_024;
/// The most bytes of a note.
pub const MAX_NOTE_BYTES: usize = 1_024;
/// The most `*` in a key text.
pub const MAX_STARS: usize = 32;
/// The lowest priority.
pub const MIN_PRIORITY: i32 = -1_000_000;
/// The highest priority.
pub const MAX_PRIORITY: i32 = 1_000_000;

/// Something that is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The field of the rule.
    pub field: &'static str,
    /// What is wrong and what to do, as one sentence without a full stop.
    pub detail: String,
}

/// Reads the time of a field.
type ReadTime = fn(&str, Option<&str>) -> Result<Option<Time>, String>;

/// Writes the detail.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Rule {
    /// Looks for everything that is wrong with a new rule, independently of the configuration. Whether the limit exists,
    /// and its rate can be read, is not looked at.
    ///
    /// # Errors
    /// All mistakes, in the order of the fields.
    pub fn check(&self) -> Result<(), Vec<Mistake>> {
        self.check_with(new_time_of)
    }

    /// The same of a rule from a store, whose times may have other forms than those of RFC 3339.
    pub(crate) fn check_stored(&self) -> Result<(), Vec<Mistake>> {
        self.check_with(time_of)
    }

    fn check_with(&self, time_of: ReadTime) -> Result<(), Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mut add = |field, detail| mistakes.push(Mistake { field, detail });
        if let Some(detail) = wrong_id(&self.id) {
            add("id", detail);
        }
        if self.limit.is_empty() {
            add("limit", "`limit` is missing; name the limit that the rule changes".into());
        }
        if let Some(detail) = wrong_key(&self.key) {
            add("key", detail);
        }
        for (field, value) in [("burst", self.burst), ("max", self.max)] {
            if value == Some(0) {
                add(field, format!("`{field}` is 0; give at least 1, or leave it out"));
            }
        }
        if let Some((field, detail)) = self.wrong_change() {
            add(field, detail);
        }
        if !(MIN_PRIORITY..=MAX_PRIORITY).contains(&self.priority) {
            let detail = format!(
                "`priority` is {}; give a number between {MIN_PRIORITY} and {MAX_PRIORITY}",
                self.priority
            );
            add("priority", detail);
        }
        match (time_of("from", self.from.as_deref()), time_of("until", self.until.as_deref())) {
            (Ok(Some(from)), Ok(Some(until))) if until < from => {
                add("until", "`until` is before `from`".into());
            }
            (Ok(Some(from)), Ok(Some(until))) if until == from => {
                add("until", "`until` is equal to `from`, so the rule would never be in force".into());
            }
            (from, until) => {
                from.err().into_iter().for_each(|detail| add("from", detail));
                until.err().into_iter().for_each(|detail| add("until", detail));
            }
        }
        if self.note.len() > MAX_NOTE_BYTES {
            add("note", too_long("note", self.note.len(), MAX_NOTE_BYTES));
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// A rule changes something, and one that exempts a key changes nothing else.
    fn wrong_change(&self) -> Option<(&'static str, String)> {
        let changes = [
            ("rate", self.rate.is_some()),
            ("burst", self.burst.is_some()),
            ("max", self.max.is_some()),
            ("mode", self.mode.is_some()),
        ];
        let first = changes.into_iter().find(|(_, given)| *given);
        match (first, self.exempt) {
            (None, false) => {
                let detail = "the rule changes nothing; give `rate`, `burst`, `max`, `mode` or `exempt`";
                Some(("rate", detail.into()))
            }
            (Some((field, _)), true) => {
                let detail = format!("`exempt` makes `{field}` meaningless; remove one of them");
                Some(("exempt", detail))
            }
            _ => None,
        }
    }
}

fn wrong_id(id: &str) -> Option<String> {
    const ALLOWED: &str = "letters, digits and `-_.:@`";
    let foreign = |c: &char| !c.is_ascii_alphanumeric() && !"-_.:@".contains(*c);
    let length = id.chars().count();
    match id {
        "" => Some(format!("`id` is missing; give 1 to {MAX_ID_LENGTH} characters: {ALLOWED}")),
        // Clients remove them from the path of a URL, so the rule could not be reached.
        "." | ".." => Some(format!("`id` is `{id}`, which cannot stand in a URL; choose another")),
        _ if length > MAX_ID_LENGTH => {
            Some(format!("`id` has {length} characters; at most {MAX_ID_LENGTH} are allowed"))
        }
        _ => id
            .chars()
            .find(foreign)
            .map(|c| format!("`id` has the character `{}`; only {ALLOWED} are allowed", c.escape_debug())),
    }
}

fn wrong_key(key: &str) -> Option<String> {
    let stars = key.matches('*').count();
    if key.is_empty() {
        Some("`key` is missing; give a key such as `k1` or a pattern such as `merchant-*`".into())
    } else if key.len() > MAX_KEY_BYTES {
        Some(too_long("key", key.len(), MAX_KEY_BYTES))
    } else if key.chars().any(char::is_control) {
        Some("`key` has a control character; remove it".into())
    } else if stars > MAX_STARS {
        Some(format!("`key` has {stars} `*`; at most {MAX_STARS} are allowed"))
    } else {
        None
    }
}

fn too_long(field: &str, bytes: usize, most: usize) -> String {
    format!("`{field}` has {bytes} bytes; at most {most} are allowed")
}
