//! The rate limit headers of a route for requests whose limits have numbers of their own, by a rule or by the identity of
//! the sender: made once for each combination of variants.

use smallvec::SmallVec;

use super::StaticHeaders;
use sluicegate_base::append_map::AppendMap;

/// The largest number of combinations; requests with further ones get the headers of the limits as they are configured.
const MOST: usize = 1 << 16;

/// What tells combinations apart: the addresses of the variants, and the plan.
pub type Combination = SmallVec<[usize; 4]>;

/// The headers by combination.
#[derive(Default)]
pub struct RuledHeaders(AppendMap<Combination, StaticHeaders, MOST>);

impl RuledHeaders {
    /// The headers for a combination; `None` if there are too many.
    pub fn get(&self, combination: &Combination, make: impl Fn() -> StaticHeaders) -> Option<&StaticHeaders> {
        self.0.get_or_insert(combination, make)
    }
}
