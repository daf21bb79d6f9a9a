//! What has to be decided for a request, and the answer that it gets.
//!
//! [`Domains::plan`] says which limits apply; whoever has the counters decides each of [`Plan::asks`]; [`Plan::answer`] makes the
//! response of the [`Outcome`]s.

mod answer;
mod domains;
mod metadata;
mod quota;

pub use answer::{Outcome, status};
pub use domains::{Ask, AskedLimit, Domains, Hits, Plan, Planned};
pub use quota::quota_group;
