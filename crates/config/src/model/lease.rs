//! Which limits are leased, and how.

use sluicegate_leases::{Terms, reserved};
use sluicegate_limiter::{Quota, Span};

use crate::model::cost::Cost;
use crate::model::limit::{LimitConfig, Mode};

use crate::model::sync::{Sync, SyncMode};

/// With `sync: auto`, a gateway leases only so many tokens at once or more: fewer save little.
const AUTO_LEAST: u64 = 32;
/// With `sync: leased`. One token is no lease.
const LEASED_LEAST: u64 = 2;
/// All leased tokens of a limit last at least so long at its rate: with fewer, gateways would wait for calls.
const SHORTEST: Span = Span::from_millis(10);

/// Why a limit is not leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unleased {
    /// The file says `exact`.
    Exact,
    /// It refuses nobody, and so it has to see every request.
    Shadow,
    /// Bans count refusals.
    Bans,
    /// Costs are known after the answer.
    LateCosts,
    /// The instants of a sliding_log.
    Log,
    /// Its error budget, divided by the gateways, is too small.
    TooSmall,
    /// So few tokens may be leased that a gateway would wait for calls.
    TooFast,
}

impl Unleased {
    /// The reason, in words that follow "exact: ".
    pub const fn why(self) -> &'static str {
        match self {
            Self::Exact => "the store decides about each request",
            Self::Shadow => "it only counts",
            Self::Bans => "bans count the refusals of all gateways",
            Self::LateCosts => "its costs are known after the answer",
            Self::Log => "a sliding_log has the instant of each request",
            Self::TooSmall => "its error budget, divided by the gateways, is too small for leases",
            Self::TooFast => "the tokens of the error budget last less than 10 ms",
        }
    }
}

impl LimitConfig {
    /// How the tokens of this limit are leased, with the quota that the store then enforces in place of `quota`.
    ///
    /// # Errors
    /// Why they are not, if a store counts it.
    pub fn lease(&self, quota: &Quota) -> Result<(Quota, Terms), Unleased> {
        let Sync { mode, budget, strict, gateways } = self.sync;
        let least = match mode {
            SyncMode::Exact => return Err(Unleased::Exact),
            SyncMode::Auto => AUTO_LEAST,
            SyncMode::Leased => LEASED_LEAST,
        };
        match () {
            () if self.mode != Mode::Enforce => return Err(Unleased::Shadow),
            () if self.ban.is_some() => return Err(Unleased::Bans),
            () if matches!(&self.cost, Cost::Detailed(cost) if cost.settles()) => {
                return Err(Unleased::LateCosts);
            }
            () if matches!(quota, Quota::SlidingLog(..)) => return Err(Unleased::Log),
            () => {}
        }
        let terms = Terms::new(quota, budget, strict).at_least(least);
        if terms.share(gateways) == 0 {
            return Err(Unleased::TooSmall);
        }
        if terms.lasts() < SHORTEST {
            return Err(Unleased::TooFast);
        }
        Ok((if strict { reserved(*quota, budget) } else { *quota }, terms))
    }
}
