//! The file of rules as the gateway uses it.
#![allow(clippy::disallowed_methods, reason = "tests wait for processes")]

mod common;
mod crash;
mod disk_full;
mod handover;
mod model;
mod reading;
mod refused;
mod threads;
mod writing;
