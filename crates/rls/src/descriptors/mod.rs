//! The YAML files of envoyproxy/ratelimit: a domain with nested descriptors, and which limit applies to a descriptor of a request.
//!
//! `read` makes a [`Domain`] of a text, `tree` looks descriptors up in it. `unit` and `wildcard` are what the format has in small.

mod metadata;
mod read;
mod tree;
mod unit;
mod wildcard;

pub use read::parse;
pub use tree::{Amount, Domain, Found, Rule, counter_key};
pub use wildcard::matches;
