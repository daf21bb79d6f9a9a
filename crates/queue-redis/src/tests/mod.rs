//! The cases of `queue-sqlite` that hold for every store, and what is special about Redis. The clock of the server is the one that a
//! test chooses.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)] // tests wait for processes

mod clocks;
pub(crate) mod common;
#[path = "../../../queue-sqlite/tests/it/ends.rs"]
mod ends;
mod leases;
#[path = "../../../queue-sqlite/tests/it/model.rs"]
mod model;
#[path = "../../../queue-sqlite/tests/it/turns.rs"]
mod turns;

/// The function `now` of the scripts, which reads the clock of the test instead of that of the server.
pub(crate) fn with_chosen_clock(common: String) -> String {
    let start = common.find("local function now()").unwrap();
    let end = start + common[start..].find("\nend\n").unwrap();
    let chosen = "local function now()\n    return tonumber(redis.call('GET', 'clock'))";
    format!("{}{chosen}{}", &common[..start], &common[end..])
}
