//! How a shared limit is counted.

use serde::Serialize;
use sluicegate_leases::{ErrorBudget, Terms, reserved};
use sluicegate_limiter::{Quota, Span};

use crate::cost::Cost;
use crate::model::{LimitConfig, Mode};

/// With `sync: auto`, a gateway leases only so many tokens at once or more: fewer save little.
const AUTO_LEAST: u64 = 32;
/// With `sync: leased`. One token is no lease.
const LEASED_LEAST: u64 = 2;
/// All leased tokens of a limit last at least so long at its rate: with fewer, gateways would wait for calls.
const SHORTEST: Span = Span::from_millis(10);

/// How a shared limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sync {
    /// Whether tokens are leased.
    pub mode: SyncMode,
    /// The part of the rate's count that may be paid for and not spent.
    #[serde(serialize_with = "percent")]
    pub budget: ErrorBudget,
    /// Whether leases may admit nothing above the limit.
    pub strict: bool,
    /// The least number of gateways that share the store.
    #[serde(skip)]
    pub gateways: u32,
}

/// Whether tokens are leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// Where the limit is large enough.
    Auto,
    /// The store decides about each request.
    #[default]
    Exact,
    /// Tokens are leased.
    Leased,
}

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

impl SyncMode {
    /// The modes with their names in the file.
    pub const WORDS: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("exact", Self::Exact), ("leased", Self::Leased)];
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

fn percent<S: serde::Serializer>(budget: &ErrorBudget, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}%", f64::from(budget.millionths()) / 1e4))
}
