//! Where and how a limit is counted, and by how much it can admit too much: the same figures for `check`, for `/status` and for
//! metrics.

use std::sync::Arc;

use serde::Serialize;
use sluicegate_config::LimitConfig;
use sluicegate_leases::Terms;

use super::Limit;

/// How a limit is counted by so many gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counting {
    /// In this process, by the store for each request, or with leased tokens.
    pub counted: Counted,
    /// Why it is not leased, if a store counts it.
    pub why: Option<&'static str>,
    /// The tokens of one key that a gateway leases at most.
    pub lease: u64,
    /// The most that all gateways together admit above the limit, for one key, in any interval.
    pub over_admission: u64,
}

/// Where a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// In each process on its own.
    Local,
    /// By the store for each request.
    Exact,
    /// With tokens that are paid for in advance.
    Leased,
}

/// How a limit of the file is counted by so many gateways. Of its plans, and of the highest rate that identities can name, the
/// one that can admit the most above its rate counts.
pub fn counting(limit: &LimitConfig, gateways: u32) -> Counting {
    let quotas = std::iter::once(limit.quota)
        .chain(limit.plans.iter().map(|(_, quota)| *quota))
        .chain(limit.highest_of_identities());
    let each = quotas.map(|quota| match limit.lease(&quota) {
        _ if !limit.shared => Counting::not_leased(Counted::Local, None),
        Err(why) => Counting::not_leased(Counted::Exact, Some(why.why())),
        Ok((_, terms)) => Counting::leased(&terms, gateways),
    });
    each.reduce(Counting::worse).unwrap_or_else(|| Counting::not_leased(Counted::Local, None))
}

/// The same for a limit in force, also with the rates of rules that requests have met.
pub fn counting_in_force(limit: &Arc<Limit>, gateways: u32) -> Counting {
    let leased = limit.in_use().filter_map(|limit| limit.counted.leased());
    leased
        .map(|terms| Counting::leased(terms, gateways))
        .fold(counting(&limit.config, gateways), Counting::worse)
}

impl Counting {
    const fn not_leased(counted: Counted, why: Option<&'static str>) -> Self {
        Self { counted, why, lease: 0, over_admission: 0 }
    }

    fn leased(terms: &Terms, gateways: u32) -> Self {
        match terms.share(gateways) {
            0 => Self::not_leased(
                Counted::Exact,
                Some("its error budget, divided by the gateways, is too small for leases"),
            ),
            lease => Self {
                counted: Counted::Leased,
                why: None,
                lease,
                over_admission: terms.over_admission(gateways),
            },
        }
    }

    /// Of two, the one that can admit more.
    fn worse(self, other: Self) -> Self {
        let by = |one: &Self| (one.over_admission, one.lease);
        if by(&other) > by(&self) { other } else { self }
    }
}
