//! What is recorded of requests, and who may look at it.
//!
//! - [`access_log`], [`process_log`], [`trace`]: lines and trace ids; [`telemetry`]: spans and metrics for a collector (OTLP)
//! - [`metrics`]: what each worker counts, and its exposition for Prometheus
//! - [`history`], [`top`], [`refusals`], [`cut_answers`]: the last hour, each in a fixed amount of memory
//! - [`shown_key`]: keys as operators see them

pub mod access_log;
pub mod cut_answers;
pub mod history;
pub mod metrics;
pub mod process_log;
pub mod refusals;
pub mod shown_key;
pub mod telemetry;
pub mod top;
pub mod trace;
