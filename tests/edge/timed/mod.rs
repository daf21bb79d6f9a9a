//! Tests that measure time, on real Redis servers: no more than two of them run at once (see
//! tests/harness/permits.rs).

mod cancellations;
mod regions;
mod store_chaos;
mod store_cluster;
mod store_doubt;
mod store_exact;
mod store_far;
mod store_faults;
mod store_foreign;
mod store_kinds;
mod store_leased;
mod store_memory;
mod store_outage;
mod store_rules;
mod store_sentinel;
mod store_stall;
mod store_state;
mod store_storms;
