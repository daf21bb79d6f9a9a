//! Rules: other numbers of a limit for one key or for the keys of a pattern, changed while the gateway runs.
//!
//! | module | |
//! | --- | --- |
//! | `rule` | a rule as operators write it and as stores keep it |

mod rule;

pub use self::rule::{Rule, RuleMode, Stored};
