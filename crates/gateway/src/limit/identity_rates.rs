//! The variants of a limit for the rates that identities name: other numbers, the same counters.

use std::sync::Arc;

use super::Limit;
use super::made_variants::MOST_RATES;
use crate::rules::{Effect, EffectId};
use sluicegate_config::BoundedRate;

impl Limit {
    /// The limit with a rate that an identity names; `None` if it cannot have that rate, or has it already. `rule` is the
    /// effect of a rule of the key that leaves the rate as it is.
    #[inline(never)]
    pub fn with_identity_rate(
        &self,
        rate: BoundedRate,
        rule: Option<(EffectId, &dyn Fn() -> Effect)>,
    ) -> Option<&Arc<Self>> {
        let of_rule = rule.map(|(id, _)| id.index());
        let make = || self.variant_with_rate(rate, rule.map(|(_, effect)| effect()).as_ref());
        let made = self.identity_rates.get_or_init(Box::default);
        let found = made.of_rate(&(rate, of_rule), make);
        if found.is_none() && made.is_first_beyond() {
            tracing::warn!(
                "limit {}: requests have named {MOST_RATES} different rates; those with further ones have its default rate until \
                 the next reload",
                self.config.name
            );
        }
        found?.as_ref()
    }

    #[cold]
    fn variant_with_rate(&self, rate: BoundedRate, effect: Option<&Effect>) -> Option<Arc<Self>> {
        let quota = self.config.with_identity_rate(rate, effect.and_then(|effect| effect.burst));
        let quota = match quota.map(|quota| self.config.of_region(quota)) {
            Ok(quota) if quota == self.config.quota && effect.is_none() => return None,
            Ok(quota) => quota,
            Err(why) => {
                let name = &self.config.name;
                tracing::debug!("limit {name} cannot have the rate {rate}: {}", why.join("; "));
                return None;
            }
        };
        let mode = effect.map_or(self.config.mode, |effect| self.mode_under(effect));
        Some(Arc::new(self.of_single_keys(quota, mode)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluicegate_limiter::Time;

    use crate::resources::parse;
    use crate::snapshot::{Opened, SnapshotBuilder};

    #[test]
    fn rates_beyond_the_bound_are_the_default() {
        let text = "listen: [127.0.0.1:8080]\nauth: {check: {url: 'http://127.0.0.1:9000/'}}\n\
                    limits: {l: {key: ip, rate: 'check:rate', max_rate: 1M/s, default_rate: 5/s, burst: 9}}\n\
                    routes: [{respond: {status: 200}, limits: [l]}]\n";
        let config = parse(text.to_owned(), "gateway.yaml", Path::new("")).config.unwrap();
        let snapshot = SnapshotBuilder::default().build(config, Opened::default(), None, Time::from_nanos(0));
        let limit = &snapshot.limits[0];
        let of_identity = limit.config.identity_rate.as_ref().unwrap();
        let with = |rate: &str| limit.with_identity_rate(of_identity.read(rate).unwrap(), None);
        let first = with("7").unwrap();
        let quota = &first.counted.quota;
        assert_eq!((quota.rate().unwrap().count(), quota.capacity()), (7, 9));
        assert!(with("5").is_none(), "it has this rate already");
        assert!((0..20_000).any(|count| with(&(count + 10).to_string()).is_none()));
        assert!(with("500000").is_none());
        assert!(std::ptr::eq(with("7").unwrap(), first), "known ones stay");
    }

    #[test]
    fn rates_that_are_too_small_for_a_region_keep_their_average() {
        let text = "listen: [127.0.0.1:8080]\nstore: {redis: {url: 'redis://10.0.0.5'}}\n\
                    regions: {name: b, floors: {a: 80%, b: 20%}}\n\
                    auth: {check: {url: 'http://127.0.0.1:9000/'}}\n\
                    limits: {l: {key: ip, rate: 'check:rate', max_rate: 100/min, default_rate: 50/min, cost: 3}}\n\
                    routes: [{respond: {status: 200}, limits: [l]}]\n";
        let config = parse(text.to_owned(), "gateway.yaml", Path::new("")).config.unwrap();
        let snapshot = SnapshotBuilder::default().build(config, Opened::default(), None, Time::from_nanos(0));
        let limit = &snapshot.limits[0];
        let of_identity = limit.config.identity_rate.as_ref().unwrap();
        let part = |rate: &str| {
            let limit = limit.with_identity_rate(of_identity.read(rate).unwrap(), None)?;
            let rate = limit.counted.quota.rate().unwrap();
            Some((rate.count(), rate.period().as_nanos() / 1_000_000_000))
        };
        assert_eq!(part("15/min"), Some((3, 60)), "a fifth");
        assert_eq!(part("14/min"), Some((5, 120)), "a fifth of 28 in two minutes");
        assert_eq!(part("4/min"), Some((3, 240)), "a fifth of 16 in four minutes");
        assert_eq!(part("4/300d"), None, "which has the default rate");
    }
}
