//! The base of the gateway's crates: what several of them use and no other crate has.
//!
//! - [`clock`]: the only module that reads clocks; [`own_load`]: what the process itself uses
//! - [`file`](mod@file), [`file_watch`]: files that a configuration names; [`tls`]: the certificates and keys in them
//! - [`incoming`], [`request_value`], [`message`]: a request as it came in, values in it, responses
//! - [`refusal_reason`], [`cut_reason`], [`limit_outcome`]: the closed sets of names that logs and metrics share ([`named_enum`](mod@named_enum))
//! - [`http_client`]: asks services over HTTP/1.1
//! - [`append_map`], [`boxed_future`], [`critical_task`]: small tools

pub mod append_map;
pub mod boxed_future;
pub mod clock;
pub mod critical_task;
pub mod cut_reason;
pub mod file;
pub mod file_watch;
pub mod http_client;
pub mod incoming;
pub mod limit_outcome;
pub mod message;
pub mod named_enum;
pub mod own_load;
pub mod queue_event;
pub mod refusal_reason;
pub mod request_value;
pub mod tls;
