//! What is wrong with a rule, whatever the configuration says about its limit.

use std::fmt;

use jiff::Timestamp;
use sluicegate_limiter::Time;

use crate::Rule;

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

/// 2500-01-01 00:00:00 UTC in seconds since the Unix epoch, the last time that a rule can name.
const IN_2500: i64 = 16_725_225_600;

/// Something that is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The field of the rule.
    pub field: &'static str,
    /// What is wrong and what to do, as one sentence without a full stop.
    pub detail: String,
}

/// Writes the detail.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Rule {
    /// Looks for everything that is wrong independently of the configuration. Whether the limit exists, and its rate
    /// can be read, is not looked at.
    ///
    /// # Errors
    /// All mistakes, in the order of the fields.
    pub fn check(&self) -> Result<(), Vec<Mistake>> {
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

/// The time that a field names; `None` if it is absent.
pub(crate) fn time_of(field: &str, text: Option<&str>) -> Result<Option<Time>, String> {
    let Some(text) = text else { return Ok(None) };
    let time: Timestamp = text
        .parse()
        .map_err(|_| format!("`{field}` is no time in RFC 3339; write it like `2026-12-24T00:00:00Z`"))?;
    u64::try_from(time.as_nanosecond())
        .ok()
        .map(Time::from_nanos)
        .filter(|_| time.as_second() < IN_2500)
        .map(Some)
        .ok_or_else(|| format!("`{field}` is not between 1970 and 2500"))
}
