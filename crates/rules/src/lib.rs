//! Rules: other numbers of a limit for one key or for the keys of a pattern, changed while the gateway runs.
//!
//! | module | |
//! | --- | --- |
//! | `rule` | a rule as operators write it and as stores keep it |
//! | `json` | its JSON form: reading with messages that name the field, merge patches |
//! | `check`, `times` | what is wrong with a rule, whatever the configuration; its times |
//! | `key` | the key of a request as rules see it; the texts that name it |
//! | `pattern`, `glob` | a key text that stands for many keys; how exact it is |
//! | `patterns` | all patterns of one limit, indexed |
//! | `choose` | the total order of rules: which one applies to a key now, and until when that is known |
//! | `cache`, `slots` | what was chosen, per key, bounded, with a time to live |
//! | `store` | batches of changes, what became of them, the log of changes: what every store takes and gives |

mod cache;
mod check;
mod choose;
mod compiled;
mod glob;
mod json;
mod key;
mod pattern;
mod patterns;
mod rule;
mod slots;
mod store;
mod times;

pub use self::cache::{Lookup, Token, VerdictCache};
pub use self::check::{
    MAX_ID_LENGTH, MAX_KEY_BYTES, MAX_NOTE_BYTES, MAX_PRIORITY, MAX_STARS, MIN_PRIORITY, Mistake,
};
pub use self::choose::{Choice, choose};
pub use self::compiled::Compiled;
pub use self::key::{KeyPart, KeyValue, MAX_KEY_PARTS, approximation, canonical, spellings};
pub use self::pattern::{Exactness, Pattern};
pub use self::patterns::{MAX_PATTERNS, MAX_SCANNED_PATTERNS, Patterns, TooManyPatterns};
pub use self::rule::{Rule, RuleMode, Stored};
pub use self::store::{
    Batch, Change, Changes, Effect, Failure, FailureKind, Head, Op, Outcome, Precondition, Write, Written,
};
