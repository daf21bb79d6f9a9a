//! The rate limit headers of a route for requests whose keys have rules: made once for each combination of variants.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;

use super::StaticHeaders;
use crate::rules::Slots;

/// The largest number of combinations; requests with further ones get the headers without rules.
const MOST: usize = 1 << 16;

/// What tells combinations apart: the addresses of the variants, and the plan.
pub type Combination = SmallVec<[usize; 4]>;

/// The headers by combination.
#[derive(Default)]
pub struct RuledHeaders {
    numbers: Mutex<HashMap<Combination, u32>>,
    made: Slots<StaticHeaders>,
}

impl RuledHeaders {
    /// The headers for a combination; `None` if there are too many.
    pub fn get(
        &self,
        combination: Combination,
        make: impl FnOnce() -> StaticHeaders,
    ) -> Option<&StaticHeaders> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len();
        let number = match numbers.get(&combination) {
            Some(number) => *number,
            None if next >= MOST => return None,
            None => *numbers.entry(combination).or_insert(u32::try_from(next).ok()?),
        };
        drop(numbers);
        Some(self.made.get_or_init(number, make))
    }
}
