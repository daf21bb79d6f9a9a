//! Rules that several gateways share: `rules: {redis: true}`, in the Redis that holds their shared counters.
//!
//! | module | |
//! | --- | --- |
//! | `redis_rules` | READ FIRST: the store, its operations, and what it says of changes that others make |
//! | `names`, `entry` | the keys in Redis, with the form of their values; a rule as such a value |
//! | `script`, `lua/` | what runs on the server, each at one moment |
//! | `write`, `read`, `page` | one batch; one question; pages of several limits, merged |
//! | `ear`, `news`, `follower` | the connection that listens; what is heard; what that means for those who remember rules |
//! | `error` | what can go wrong |

mod ear;
mod entry;
mod error;
mod follower;
mod names;
mod news;
mod page;
mod read;
mod redis_rules;
mod script;
mod write;

pub use self::error::MAX_CHANGES;
pub use self::error::{ReadError, WriteError};
pub use self::follower::Event;
pub use self::redis_rules::RedisRules;
