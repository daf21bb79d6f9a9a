//! The end of an admitted request: places are freed, and late costs are settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::response;
use sluicegate_counters::{Fingerprint, Holds, RemoteHold};
use sluicegate_limiter::Usage;

use crate::built::Shared;

/// What an admitted request holds.
pub(crate) type RequestHolds = Holds<dyn RemoteHold + Send>;

/// Counts the cost of a response while its body is sent: the tokens of a model's answer, for example.
///
/// The service puts a clone into the extensions of its response. The cost is settled when the body has ended or was dropped, for
/// the limits with a [late cost](crate::Limit::late_cost).
#[derive(Clone, Debug, Default)]
pub struct CostMeter(Arc<AtomicU64>);

impl CostMeter {
    /// A meter at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds to the cost.
    pub fn add(&self, cost: u64) {
        _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |total| Some(total.saturating_add(cost)));
    }

    /// The cost until now.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A limit of a request whose cost is settled late.
pub(crate) struct LateLimit {
    pub(crate) limit: usize,
    pub(crate) key: Fingerprint,
}

/// An admitted request from its response to its end. Dropping it ends the request.
pub(crate) struct Ending {
    holds: RequestHolds,
    metered: Option<Metered>,
}

/// Costs that are known when the body has ended.
struct Metered {
    meter: CostMeter,
    shared: Arc<Shared>,
    /// The limits, with the costs that the head of the response says.
    costs: Vec<(usize, Option<u64>)>,
}

impl Ending {
    /// Settles the costs that the head of the response says. Returns what the request holds until its body has ended, if
    /// anything.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        mut holds: RequestHolds,
        late: &[LateLimit],
        response: &response::Parts,
    ) -> Option<Self> {
        if !late.is_empty() {
            let said = |limit: usize| shared.limits[limit].late.as_ref().and_then(|cost| cost(response));
            let costs: Vec<_> = late.iter().map(|late| (late.limit, said(late.limit))).collect();
            if let Some(meter) = response.extensions.get::<CostMeter>()
                && costs.iter().any(|(_, cost)| cost.is_none())
            {
                let metered = Metered { meter: meter.clone(), shared: Arc::clone(shared), costs };
                return Some(Self { holds, metered: Some(metered) });
            }
            settle(&mut holds, shared, &costs, None);
        }
        holds.has_places().then_some(Self { holds, metered: None })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(Metered { meter, shared, costs }) = self.metered.take() {
            settle(&mut self.holds, &shared, &costs, Some(meter.total()));
        }
    }
}

/// Settles late costs. Those that the response does not say are `metered`, or else stay what was reserved.
fn settle(holds: &mut RequestHolds, shared: &Shared, costs: &[(usize, Option<u64>)], metered: Option<u64>) {
    holds.answered(|late, reserve| {
        let said = costs.iter().find(|(limit, _)| *limit == late.limit).and_then(|(_, cost)| *cost);
        Some((said.or(metered).unwrap_or(reserve), 0))
    });
    holds.settle(shared.clock.now(), 0, 0);
}

/// What the key of a late limit has left after it was settled.
pub(crate) fn settled_usage(shared: &Shared, late: &[LateLimit], limit: usize) -> Option<Usage> {
    let late = late.iter().find(|one| one.limit == limit)?;
    Some(shared.limits[limit].usage(late.key, shared.clock.now()))
}
