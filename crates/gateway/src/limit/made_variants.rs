//! The variants of a limit that requests have needed so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rules::Slots;
use sluicegate_base::append_map::AppendMap;
use sluicegate_config::BoundedRate;

/// The most rates that identities name for one limit; those with further rates have its default rate.
pub(super) const MOST_RATES: usize = 10_000;

/// What a rule makes of a limit of type `L`.
pub enum Variant<L> {
    /// It does not apply.
    Exempt,
    /// It has other numbers, or another mode.
    Limit {
        /// The limit as it then is.
        limit: Arc<L>,
        /// Whether the rule has a rate.
        has_rate: bool,
    },
    /// It stays as it is: the limit cannot have these numbers any more, because it has changed since the rule was made.
    Unchanged,
}

/// The variants for keys that have rules, by the effect of the rule.
pub(super) struct RuledVariants<L>(Slots<Variant<L>>);

/// The variants for rates that identities name, by the rate and by the rule that changes them further.
pub(super) struct RatedVariants<L> {
    made: AppendMap<(BoundedRate, Option<u32>), Option<Arc<L>>, MOST_RATES>,
    /// Whether there were more.
    full: AtomicBool,
}

impl<L> Default for RuledVariants<L> {
    fn default() -> Self {
        Self(Slots::default())
    }
}

impl<L> RuledVariants<L> {
    /// The variant for the effect with this index.
    #[inline]
    pub(super) fn of_effect(&self, index: u32, make: impl FnOnce() -> Variant<L>) -> &Variant<L> {
        self.0.get_or_init(index, make)
    }

    /// Those with numbers or a mode of their own.
    pub(super) fn limits(&self) -> impl Iterator<Item = &Arc<L>> {
        self.0.iter().filter_map(|variant| match variant {
            Variant::Limit { limit, .. } => Some(limit),
            Variant::Exempt | Variant::Unchanged => None,
        })
    }
}

impl<L> Default for RatedVariants<L> {
    fn default() -> Self {
        Self { made: AppendMap::default(), full: AtomicBool::new(false) }
    }
}

impl<L> RatedVariants<L> {
    /// The variant for a rate; `None` if there are too many, `Some(None)` if the limit cannot have that rate.
    pub(super) fn of_rate(
        &self,
        rate: &(BoundedRate, Option<u32>),
        make: impl Fn() -> Option<Arc<L>>,
    ) -> Option<&Option<Arc<L>>> {
        self.made.get_or_insert(rate, make)
    }

    /// Whether it is the first time that there were too many.
    pub(super) fn is_first_beyond(&self) -> bool {
        !self.full.swap(true, Ordering::Relaxed)
    }

    /// Those that there are.
    pub(super) fn limits(&self) -> impl Iterator<Item = &Arc<L>> {
        self.made.values().flatten()
    }
}
