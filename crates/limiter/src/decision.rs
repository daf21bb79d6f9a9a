//! What one limit says of one request.

use crate::gcra::scale_down;
use crate::{Span, Time};

/// A rate-limiting algorithm with its quota. The state of one key is a value of its own.
///
/// `check` never changes anything, and `charge` may only follow a `check` that admitted the same cost at the
/// same time: between the two the caller asks the other limits of the request.
pub trait Algorithm {
    /// What is kept for a key. The default is a key that was never seen.
    type State: Default;

    /// Whether `cost` is admitted at `now`, and how long the request is then to be held (zero for all but
    /// the leaky bucket).
    ///
    /// # Errors
    /// The refusal, with the time after which the same cost is admitted if nobody else spends the key.
    fn check(&self, state: &Self::State, now: Time, cost: u64) -> Result<Span, Refusal>;

    /// Takes `cost`, which `check` has admitted at `now`. The receipt is what [`refund`](Self::refund) needs.
    fn charge(&self, state: &mut Self::State, now: Time, cost: u64) -> Receipt;

    /// Notes a request that this limit itself refused. Only a sliding log that counts them does anything.
    fn refused(&self, _state: &mut Self::State, _now: Time, _cost: u64) {}

    /// Asks for `cost` where no other limit has a say: `check`, then `charge` or `refused`, then `standing`.
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

    /// Charges `cost` for a request that was admitted earlier and turned out to cost so much more than was taken then.
    /// It is never refused: what the key does not have is a debt that later requests wait for.
    fn settle(&self, state: &mut Self::State, now: Time, cost: u64) {
        self.charge(state, now, cost);
    }

    /// What a charge of `cost` with this receipt put into the state. A part of what was charged is the last part of it.
    fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        Charge { amount: cost.into(), at: receipt.number() }
    }

    /// Gives back a charge, however long ago it was made: what has come back by itself meanwhile is not given twice.
    /// If nobody else was charged since, the key then answers as if the charge had never been; otherwise nobody is
    /// admitted who would not have been without it. `others` are the charges of the key that may still be given back:
    /// those behind this one move up.
    fn take_back<'c>(
        &self,
        state: &mut Self::State,
        now: Time,
        charge: Charge,
        others: impl Iterator<Item = &'c mut Charge>,
    );

    /// Gives back `cost`, which was charged with this receipt under this quota, where no other charge of the key will
    /// ever be given back.
    fn refund(&self, state: &mut Self::State, now: Time, cost: u64, receipt: Receipt) {
        self.take_back(state, now, self.charged(cost, receipt), std::iter::empty());
    }

    /// Carries charges that may still be given back over from `old`, as [`rescale`](Self::rescale) does with their
    /// `state`, which is told as it was before that.
    fn carry(&self, _old: &Self, _state: &Self::State, _now: Time, _charges: &mut [Charge]) {}

    /// What is left at `now`.
    fn usage(&self, state: &Self::State, now: Time) -> Usage;

    /// The whole requests that are owed at `now`, rounded up: as many as the key has less than the full allowance, and those
    /// that late costs took beyond it.
    fn owed(&self, state: &Self::State, now: Time) -> u64 {
        let Usage { remaining, capacity, .. } = self.usage(state, now);
        capacity.saturating_sub(remaining)
    }

    /// Whether the state holds no debt at `now`, so that forgetting it changes no later answer.
    fn is_idle(&self, state: &Self::State, now: Time) -> bool;

    /// Carries a standing state over from `old`, the same limit with another quota.
    fn rescale(&self, old: &Self, state: &mut Self::State, now: Time);
}

/// What a limit says in one step: the delay and what it takes to undo the charge, or the refusal; and what is left.
pub type Acquired = (Result<(Span, Receipt), Refusal>, Usage);

/// Where a charge stands in the state of its key. It means something to the algorithm that gave it, and to nobody
/// else, but it is a number that can be kept and sent anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt(u128);

/// A charge as it stands in the state of its key, in the units of the quota that the state was last scaled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// How much: ticks of a bucket, otherwise requests.
    pub(crate) amount: u128,
    /// Where: the tick at which it is paid, the window or the instant in which it was made.
    pub(crate) at: u128,
}

/// Why a limit says no, and when it would say yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same cost is admitted after this time, and not a nanosecond earlier.
    Until(Span),
    /// Admitted as soon as another request ends, which nobody can foretell.
    Busy,
    /// The cost is above what the limit could ever hold.
    Never,
    /// The key is banned for this long, whatever it has left; see [`Ban`](crate::Ban).
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
    /// The receipt that was told as this number.
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }

    /// The receipt as a number.
    pub const fn number(self) -> u128 {
        self.0
    }
}

impl Charge {
    /// A charge of which nothing is left.
    pub(crate) const NONE: Self = Self { amount: 0, at: 0 };

    /// How much it is: ticks of a bucket, otherwise requests or places.
    pub const fn amount(self) -> u128 {
        self.amount
    }

    /// Where it is: the tick at which it is paid, the number of its window, or its instant in nanoseconds.
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
    /// The wait that the refusal names, if it names one.
    pub const fn retry_after(self) -> Option<Span> {
        match self {
            Self::Until(span) | Self::Banned(span) => Some(span),
            Self::Busy | Self::Never => None,
        }
    }
}
