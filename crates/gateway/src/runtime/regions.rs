//! Puts the part of each rate in force that this region may have. No request waits for this.

use sluicegate_limiter::Division;

use super::supervisor::Supervisor;
use crate::resources::LoadedConfig;
use sluicegate_config::LimitConfig;

impl Supervisor {
    /// Connects to the home store of the configuration in force.
    pub(super) fn update_regions(&self) {
        let snapshot = self.shared.snapshot.load();
        self.lending.borrow_mut().follow(snapshot.config.regions.as_ref(), &self.shared);
    }

    /// Gives the limits of a configuration the parts that the region may have now.
    pub(super) fn divide(&self, config: &mut LoadedConfig) {
        config.divisions = self.divisions(config);
    }

    /// The parts that the region may have now, by limit.
    fn divisions(&self, config: &LoadedConfig) -> Vec<Option<Division>> {
        let Some(regions) = &config.regions else { return Vec::new() };
        let (lending, now) = (self.lending.borrow(), self.shared.clock.now());
        let of = |limit: &LimitConfig| {
            let lent = limit.is_lent().then(|| lending.share(regions, &limit.name, now)).flatten();
            let rate = lent.unwrap_or_else(|| regions.floor());
            limit.shared.then(|| regions.division(rate))
        };
        config.limits.iter().map(of).collect()
    }

    /// Puts the parts in force that the region may have now, if they are others than before.
    pub(super) async fn follow_shares(&self) {
        let before = self.shared.snapshot.load_full();
        let current = self.divisions(&before.config);
        if current.iter().enumerate().any(|(limit, division)| *division != before.config.division(limit)) {
            self.put_in_force(before.config.clone(), before.opened(), &before).await;
        }
    }
}
