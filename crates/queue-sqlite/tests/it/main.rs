//! A file of queued requests, as a gateway uses it.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)] // tests read clocks

mod common;
mod crash;
mod ends;
mod files;
mod many;
mod model;
mod turns;
