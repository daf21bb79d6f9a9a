//! Where and how a limit is counted, and by how much it can admit too much: the same figures for `check`, for `/status` and for
//! metrics.

use serde::Serialize;
use sluicegate_config::LimitConfig;

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

/// How a limit is counted by so many gateways. Of its plans, the one that can admit the most above its rate counts.
pub fn counting(limit: &LimitConfig, gateways: u32) -> Counting {
    let not_leased = |counted, why| Counting { counted, why, lease: 0, over_admission: 0 };
    if !limit.shared {
        return not_leased(Counted::Local, None);
    }
    let quotas = std::iter::once(&limit.quota).chain(limit.plans.iter().map(|(_, quota)| quota));
    let each = quotas.map(|quota| match limit.lease(quota) {
        Err(why) => not_leased(Counted::Exact, Some(why.why())),
        Ok((_, terms)) if terms.share(gateways) == 0 => not_leased(
            Counted::Exact,
            Some("its error budget, divided by the gateways, is too small for leases"),
        ),
        Ok((_, terms)) => Counting {
            counted: Counted::Leased,
            why: None,
            lease: terms.share(gateways),
            over_admission: terms.over_admission(gateways),
        },
    });
    each.max_by_key(|one| (one.over_admission, one.lease)).unwrap_or(not_leased(Counted::Exact, None))
}
