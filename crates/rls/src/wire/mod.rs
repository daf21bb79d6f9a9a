//! The messages of the services, byte by byte: what Envoy and other proxies send, and what they read.
//!
//! Only the fields that this crate uses are declared; others are skipped while a message is decoded. Field numbers are those of
//! the published protos, and `tests/golden.rs` compares them with bytes that another implementation encoded.
//!
//! [`frame`] is the framing of gRPC, [`status`] its codes, [`services`] the methods; [`decode`] bounds what a message may contain
//! before anything is allocated for it.

pub mod authorization;
pub mod decode;
pub mod frame;
pub mod health;
pub mod ratelimit;
pub mod services;
pub mod status;
pub mod well_known;
