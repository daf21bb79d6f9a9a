//! A limit that applies to a request.

use std::sync::Arc;

use super::Limit;

/// A limit that applies to a request.
#[derive(Clone, Copy)]
pub struct SelectedLimit<'s> {
    /// The index of the limit in the snapshot.
    pub index: usize,
    /// The limit, or its variant for the plan of the request.
    pub limit: &'s Arc<Limit>,
    /// Whether it is the candidate of the limit, which is counted but never enforced.
    pub candidate: bool,
}
