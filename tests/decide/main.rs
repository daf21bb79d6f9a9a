//! Tests of decisions that need no process: configurations, their messages, and requests that the library decides at times
//! that the test chooses.

#![allow(missing_docs, clippy::unwrap_used)]

/// The parts of the harness of `tests/edge` that need no process.
#[path = "../harness"]
mod harness {
    #![allow(dead_code, unreachable_pub, clippy::disallowed_methods, clippy::disallowed_types)]

    pub mod issuer;
    mod time;

    pub use time::{Stopwatch, patience};
}

mod config;
mod config_mutations;
mod config_reference;
mod config_schema;
mod foreign_words;
mod gateway;
mod hostile_keys;
mod links;
mod tokens;
