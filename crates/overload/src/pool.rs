//! Several gateways before one upstream: what they measure is put together, and one limit is divided among them.
//!
//! Gateways that each follow the upstream alone cannot find out when nothing waits in it: the others keep it full while one probes.
//! So one of them, the one with the least number, runs the limit with the measurements of all; each gets a part of it by
//! what it has in flight and waiting. When that one is gone, the next goes on with the limit that was told last.

use std::collections::HashMap;

use sluicegate_limiter::Time;

use crate::limit::{Bounds, Limit, Sums};

/// What a gateway tells the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Its number, which no other has.
    pub gateway: u64,
    /// What it has measured since it started.
    pub sums: Sums,
    /// Its requests in flight.
    pub in_flight: u32,
    /// Those that wait.
    pub waiting: u32,
    /// The limit of all gateways together, and the seconds that a request takes when nothing waits in the upstream, as far as it
    /// knows.
    pub limit: f64,
    /// See [`limit`](Self::limit).
    pub base: f64,
}

/// What one gateway knows of all.
#[derive(Clone, Debug)]
pub struct Pool {
    limit: Limit,
    /// The last sums of each gateway, of which the limit knows.
    counted: HashMap<u64, Sums>,
    /// What each gateway had in flight and waiting, smoothed.
    wanted: HashMap<u64, f64>,
}

/// The part of what a gateway wanted before that counts at each exchange.
const KEPT: f64 = 0.5;
/// The limit counts as reached with this part of it in flight: parts of gateways are whole numbers, and one may wait while
/// another has room.
const FULL: f64 = 0.9;

impl Pool {
    /// A gateway that knows of no other yet and begins with this limit of its own.
    pub fn new(bounds: Bounds, limit: f64, base: f64, now: Time) -> Self {
        let mut all = Limit::new(bounds, now);
        all.follow(limit, base, now);
        Self { limit: all, counted: HashMap::new(), wanted: HashMap::new() }
    }

    /// Other bounds.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.limit.set_bounds(bounds);
    }

    /// The limit and the base to tell the others.
    pub fn limit_and_base(&self) -> (f64, f64) {
        self.limit.limit_and_base()
    }

    /// The reports of all gateways, of which `own` is this one's. Returns how many requests this gateway may have in flight.
    pub fn exchanged(&mut self, now: Time, own: &Report, others: &[Report]) -> u32 {
        let all = || std::iter::once(own).chain(others);
        self.counted.retain(|gateway, _| all().any(|report| report.gateway == *gateway));
        self.wanted.retain(|gateway, _| all().any(|report| report.gateway == *gateway));
        let leader = all().min_by_key(|report| report.gateway).unwrap_or(own);
        let mut in_flight = 0;
        for report in all() {
            in_flight += report.in_flight;
            let wants = f64::from(report.in_flight + report.waiting);
            let wanted = self.wanted.entry(report.gateway).or_insert(wants);
            *wanted = *wanted * KEPT + wants * (1.0 - KEPT);
            let before = self.counted.insert(report.gateway, report.sums);
            if leader.gateway == own.gateway {
                // What a gateway measured before it was known says nothing of the time since the last exchange.
                let new = before.map_or_else(Sums::default, |before| report.sums.since(&before));
                self.limit.add(&new);
            }
        }
        if leader.gateway == own.gateway {
            self.limit.look(now, f64::from(in_flight) >= self.limit.limit_and_base().0 * FULL);
        } else {
            self.limit.follow(leader.limit, leader.base, now);
        }
        // Each wants one at least, so that those with nothing to do now may begin.
        let wants = |gateway: &u64| self.wanted.get(gateway).copied().unwrap_or_default() + 1.0;
        let sum: f64 = self.wanted.keys().map(wants).sum();
        let limit = f64::from(self.limit.get());
        let part = match limit - sum {
            // What nobody wants now may be wanted anywhere.
            left if left > 0.0 => wants(&own.gateway) + left / self.wanted.len() as f64,
            _ => limit * wants(&own.gateway) / sum,
        };
        (part.round() as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;

    const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

    fn report(gateway: u64, in_flight: u32, waiting: u32) -> Report {
        Report { gateway, in_flight, waiting, limit: 40.0, base: 0.05, ..Report::default() }
    }

    #[test]
    fn parts_follow_what_gateways_want() {
        let bounds = Bounds { min: 2, max: 1_000, target: None };
        let mut second = Pool::new(bounds, 20.0, 0.0, NOW);
        let (own, others) = (report(2, 10, 5), [report(1, 10, 0), report(3, 0, 0)]);
        // The first one tells 40, of which all want 28: each has a third of the rest, too.
        assert_eq!(second.exchanged(NOW, &own, &others), 20);
        assert_eq!(second.limit_and_base(), (40.0, 0.05));
        // The first is gone: the second goes on from there.
        let now = NOW.plus(Span::from_millis(200));
        assert_eq!(second.exchanged(now, &own, &[report(3, 0, 0)]), 28);
        assert_eq!(second.limit_and_base(), (40.0, 0.05));
        // When more is wanted than there is, parts are in proportion.
        let own = report(2, 20, 39);
        second.exchanged(now, &own, &[report(3, 19, 0)]);
        let parts = (0..20).map(|_| second.exchanged(now, &own, &[report(3, 19, 0)]));
        assert_eq!(parts.last(), Some(30));
    }
}
