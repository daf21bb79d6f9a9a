//! Tests that measure time, most of them on real Redis servers: run no more than two of them at once.

mod store_chaos;
mod store_cluster;
mod store_doubt;
mod store_exact;
mod store_faults;
mod store_kinds;
mod store_memory;
mod store_outage;
mod store_sentinel;
mod store_stall;
mod store_state;
mod store_storms;
