//! The interface of all algorithms, and the answer of one limit to one request.

use crate::arithmetic::scale_down;
use crate::{Span, Time};

/// A rate-limiting algorithm with its quota. The state of a key is a separate value.
///
/// `check` changes nothing, and `charge` may only follow a `check` that admitted the same cost at the same time: between
/// the two the caller checks the other limits of the request.
pub trait Algorithm {
    /// The state of a key. The default is that of a key that was never seen.
    type State: Default + Clone;

    /// Checks whether `cost` is admitted at `now`, and returns the delay of the request (zero for all but the leaky
    /// bucket).
    ///
    /// # Errors
    /// The refusal, with the time after which the same cost is admitted if the key is not charged meanwhile.
    fn check(&self, state: &Self::State, now: Time, cost: u64) -> Result<Span, Refusal>;

    /// Charges `cost`, which `check` has admitted at `now`. [`refund`](Self::refund) needs the receipt.
    fn charge(&self, state: &mut Self::State, now: Time, cost: u64) -> Receipt;

    /// Records a request that this limit itself refused. Only a sliding log with `count_rejected` changes its state.
    fn refused(&self, _state: &mut Self::State, _now: Time, _cost: u64) {}

    /// Decides about `cost` where there is no other limit: `check`, then `charge` or `refused`, then `usage`.
    fn acquire(&self, state: &mut Self::State, now: Time, cost: u64) -> Acquired {
        let answer = match self.check(state, now, cost) {
            Ok(delay) => Ok((delay, self.charge(state, now, cost))),
            Err(refusal) => {
                self.refused(state, now, cost);
                Err(refusal)
            }
        };
        (answer, self.usage(state, now))
    }

    /// Charges the late cost of a request that was admitted earlier. It is never refused: if it exceeds what the key has
    /// left, later requests wait for the difference.
    fn settle(&self, state: &mut Self::State, now: Time, cost: u64) {
        self.charge(state, now, cost);
    }

    /// The charge of `cost` with this receipt, as it is in the state. For a part of it see [`Charge::last_part`].
    fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        Charge { amount: cost.into(), at: receipt.number() }
    }

    /// Refunds a charge, however long ago it was made: the part that has drained or expired meanwhile is not refunded.
    /// If the key was not charged since, it then answers as if the charge had never been made; otherwise it admits no
    /// request that it would not have admitted without the charge. `others` are the charges of the key that may still be
    /// refunded: those that were made after this one are adjusted.
    fn take_back(&self, state: &mut Self::State, now: Time, charge: Charge, others: &mut [Charge]);

    /// Refunds `cost`, which was charged with this receipt under this quota, if no other charge of the key will be
    /// refunded later.
    fn refund(&self, state: &mut Self::State, now: Time, cost: u64, receipt: Receipt) {
        self.take_back(state, now, self.charged(cost, receipt), &mut []);
    }

    /// Converts charges that may still be refunded from the quota `old`, as [`rescale`](Self::rescale) does with the
    /// state. `state` is the state before that.
    fn carry(&self, _old: &Self, _state: &Self::State, _now: Time, _charges: &mut [Charge]) {}

    /// What the key has left at `now`.
    fn usage(&self, state: &Self::State, now: Time) -> Usage;

    /// The debt of the key at `now` in whole requests, rounded up: the used part of its allowance, and late costs beyond
    /// it.
    fn owed(&self, state: &Self::State, now: Time) -> u64 {
        let Usage { remaining, capacity, .. } = self.usage(state, now);
        capacity.saturating_sub(remaining)
    }

    /// Whether the key owes nothing at `now`, so that removing the state changes no later answer.
    fn is_idle(&self, state: &Self::State, now: Time) -> bool;

    /// Converts a state from `old`, the same algorithm with another quota.
    fn rescale(&self, old: &Self, state: &mut Self::State, now: Time);
}

/// The result of [`Algorithm::acquire`]: the delay and the receipt of the charge, or the refusal; and the usage after it.
pub type Acquired = (Result<(Span, Receipt), Refusal>, Usage);

/// The position of a charge in the state of its key. Only the algorithm that returned it can interpret it, but as a number
/// it can be stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt(u128);

/// A charge as it is in the state of its key, in the units of the quota that the state was last converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The amount: ticks of a bucket, otherwise requests.
    pub(crate) amount: u128,
    /// The position: the tick at which it is paid, or the window or the instant in which it was made.
    pub(crate) at: u128,
}

/// Why a limit refuses, and when it would admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same cost is admitted after this time, and not a nanosecond earlier.
    Until(Span),
    /// Admitted as soon as another request ends; the time is not known.
    Busy,
    /// The cost is above the capacity of the limit.
    Never,
    /// The key is banned for this long, independently of its usage; see [`Ban`](crate::Ban).
    Banned(Span),
}

/// What a key has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Requests of cost 1 that would be admitted now, rounded down.
    pub remaining: u64,
    /// The most that `remaining` can be.
    pub capacity: u64,
    /// The time until the full allowance is back, if nothing more is spent.
    pub reset: Span,
}

impl Receipt {
    /// The receipt with this [number](Self::number).
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }

    /// The receipt as a number.
    pub const fn number(self) -> u128 {
        self.0
    }
}

impl Charge {
    /// A charge of nothing.
    pub const NONE: Self = Self { amount: 0, at: 0 };

    /// The amount: ticks of a bucket, otherwise requests or places.
    pub const fn amount(self) -> u128 {
        self.amount
    }

    /// The position: the tick at which it is paid, the number of its window, or its instant in nanoseconds.
    pub const fn at(self) -> u128 {
        self.at
    }

    /// The last part of the charge, which is `cost` of the `whole` that was charged.
    pub fn last_part(self, cost: u64, whole: u64) -> Self {
        if cost >= whole {
            return self;
        }
        Self { amount: scale_down(self.amount, cost.into(), whole.into()), ..self }
    }
}

impl Refusal {
    /// The time after which a retry may be admitted, if it is known.
    pub const fn retry_after(self) -> Option<Span> {
        match self {
            Self::Until(span) | Self::Banned(span) => Some(span),
            Self::Busy | Self::Never => None,
        }
    }
}
