//! The encoding of states in slots: the state of a bucket as one word, any other as it is.

use std::collections::HashMap;

use sluicegate_limiter::{
    Acquired, Algorithm, Ban, Concurrency, FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, Tat,
    Time, TokenBucket,
};

/// The word of a debt that does not fit a word.
const OVERLONG: u64 = u64::MAX;
/// The number of ticks by which the base is set before the current time.
pub(super) const BEHIND: u128 = 1 << 62;

/// An algorithm whose states are stored in slots.
///
/// A debt is a tick since the Unix epoch, which needs more than a word if a nanosecond has many ticks. A word is relative to
/// a base that all slots of a table share and that is moved when debts exceed a word; a debt before the base is paid. A debt
/// that still does not fit, of a bucket that takes centuries to drain or counts in billionths of a nanosecond, is kept outside
/// of the slots.
pub(super) trait StateCodec: Algorithm + Clone + PartialEq {
    /// The content of a slot.
    type Word: Default;

    /// The algorithm of a quota, if it is this one.
    fn of(quota: &Quota) -> Option<&Self>;

    /// Takes the state out of its word; `None` if it is kept outside of the slots.
    fn decode(word: &mut Self::Word, base: u128) -> Option<Self::State>;

    /// The result of `look` on the state; `far` finds a state that is kept outside of the slots.
    fn inspect<'f, T>(
        word: &Self::Word,
        base: u128,
        far: impl FnOnce() -> Option<&'f Self::State>,
        look: impl FnOnce(&Self::State) -> T,
    ) -> T
    where
        Self::State: 'f;

    /// The state as a word.
    ///
    /// # Errors
    /// The state, if it does not fit.
    fn encode(state: Self::State, base: u128) -> Result<Self::Word, Self::State>;

    /// Checks and charges the state in a word; `None`, and nothing is changed, if a number does not fit a word.
    fn acquire_word(&self, _word: &mut Self::Word, _base: u128, _now: Time, _cost: u64) -> Option<Acquired> {
        None
    }

    /// The word of a state that is kept outside of the slots.
    fn overlong() -> Self::Word {
        Self::Word::default()
    }

    /// The base that words should have at `now`.
    fn base(&self, _now: Time) -> u128 {
        0
    }

    /// Whether a refusal changes the state.
    fn counts_refusals(&self) -> bool {
        false
    }

    /// Changes a word for a base that is later by `by`.
    fn rebase(_word: &mut Self::Word, _by: u128) {}
}

macro_rules! bucket {
    ($algorithm:ident $(, $acquire_word:item)?) => {
        impl StateCodec for $algorithm {
            type Word = u64;

            $($acquire_word)?

            fn of(quota: &Quota) -> Option<&Self> {
                match quota {
                    Quota::$algorithm(algorithm, ..) => Some(algorithm),
                    _ => None,
                }
            }

            #[inline]
            fn decode(word: &mut u64, base: u128) -> Option<Tat> {
                match *word {
                    0 => Some(Tat::default()),
                    OVERLONG => None,
                    above => Some(Tat::until(base + u128::from(above))),
                }
            }

            #[inline]
            fn inspect<'f, T>(
                word: &u64,
                base: u128,
                far: impl FnOnce() -> Option<&'f Tat>,
                look: impl FnOnce(&Tat) -> T,
            ) -> T {
                let debt = Self::decode(&mut word.clone(), base).or_else(|| far().copied());
                look(&debt.unwrap_or_default())
            }

            #[inline]
            fn encode(debt: Tat, base: u128) -> Result<u64, Tat> {
                match u64::try_from(debt.paid_at().saturating_sub(base)) {
                    Ok(OVERLONG) | Err(_) => Err(debt),
                    Ok(above) => Ok(above),
                }
            }

            fn overlong() -> u64 {
                OVERLONG
            }

            fn base(&self, now: Time) -> u128 {
                self.emission_rate().clock(now).saturating_sub(BEHIND)
            }

            fn rebase(word: &mut u64, by: u128) {
                if *word != OVERLONG {
                    *word = u64::try_from(by).map_or(0, |by| word.saturating_sub(by));
                }
            }
        }
    };
}

macro_rules! as_it_is {
    ($($algorithm:ty $(= $variant:ident)? $(, |$self:ident| $counts_refusals:expr)?;)*) => {$(
        impl StateCodec for $algorithm {
            type Word = Self::State;

            fn of(_quota: &Quota) -> Option<&Self> {
                $(if let Quota::$variant(algorithm, ..) = _quota {
                    return Some(algorithm);
                })?
                None
            }

            $(fn counts_refusals(&self) -> bool {
                let $self = self;
                $counts_refusals
            })?

            fn decode(word: &mut Self::State, _base: u128) -> Option<Self::State> {
                Some(std::mem::take(word))
            }

            #[inline]
            fn acquire_word(&self, word: &mut Self::State, _base: u128, now: Time, cost: u64) -> Option<Acquired> {
                Some(self.acquire(word, now, cost))
            }

            fn inspect<'f, T>(
                word: &Self::State,
                _base: u128,
                _far: impl FnOnce() -> Option<&'f Self::State>,
                look: impl FnOnce(&Self::State) -> T,
            ) -> T
            where
                Self::State: 'f,
            {
                look(word)
            }

            fn encode(state: Self::State, _base: u128) -> Result<Self::State, Self::State> {
                Ok(state)
            }
        }
    )*};
}

bucket!(
    TokenBucket,
    #[inline]
    fn acquire_word(&self, word: &mut u64, base: u128, now: Time, cost: u64) -> Option<Acquired> {
        let mut above = Some(*word).filter(|word| *word != OVERLONG)?;
        let acquired = self.acquire_above(&mut above, base, now, cost)?;
        *word = Some(above).filter(|word| *word != OVERLONG)?;
        Some(acquired)
    }
);
bucket!(LeakyBucket);
as_it_is!(
    FixedWindow = FixedWindow;
    SlidingLog = SlidingLog, |log| log.counts_rejected();
    SlidingWindow = SlidingWindow;
    Concurrency = Concurrency;
    Ban, |_ban| true;
);

/// The states of a table that do not fit a word, by key.
#[allow(
    clippy::box_collection,
    reason = "most tables have none, and a lock and all behind it fit two cache lines"
)]
pub(super) struct Overlong<S>(Option<Box<HashMap<u64, S>>>);

impl<S> Default for Overlong<S> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S: Default> Overlong<S> {
    pub(super) fn put(&mut self, key: u64, state: S) {
        self.0.get_or_insert_default().insert(key, state);
    }

    pub(super) fn take(&mut self, key: u64) -> S {
        self.0.as_mut().and_then(|states| states.remove(&key)).unwrap_or_default()
    }

    pub(super) fn get(&self, key: u64) -> Option<&S> {
        self.0.as_ref().and_then(|states| states.get(&key))
    }

    pub(super) fn drop(&mut self, key: u64) {
        if let Some(states) = &mut self.0 {
            states.remove(&key);
        }
    }
}
