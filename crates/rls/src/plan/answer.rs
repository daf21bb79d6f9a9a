//! The response of what was decided.

use std::collections::HashMap;
use std::time::Duration;

use super::domains::{Ask, AskedLimit, Plan, Planned};
use super::metadata;
use super::quota::quota_group;
use crate::descriptors::{Amount, Rule};
use crate::wire::ratelimit::{Code, DescriptorStatus, RateLimit, RateLimitResponse, Unit};
use crate::wire::status::{Code as GrpcCode, Status};
use crate::wire::{ratelimit, well_known};

/// What a limit has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it admits the hits. For a limit in shadow mode this is what it would do.
    pub admitted: bool,
    /// Hits that are left.
    pub remaining: u64,
    /// Until all hits are there again.
    pub reset: Duration,
}

/// A descriptor's status for a limit that decided.
pub fn status(outcome: Outcome, shadow: bool, limit: RateLimit) -> DescriptorStatus {
    let code = if outcome.admitted || shadow { Code::Ok } else { Code::OverLimit };
    DescriptorStatus {
        code: code as i32,
        current_limit: Some(limit),
        limit_remaining: u32::try_from(outcome.remaining).unwrap_or(u32::MAX),
        duration_until_reset: Some(well_known::Duration::rounded_up(outcome.reset)),
    }
}

impl Plan<'_> {
    /// The response. `outcomes` has what was decided of each of [`Plan::asks`], in the same order.
    ///
    /// The request is refused if a limit refuses it, or all groups of limits with `quota_mode` do: see [`quota_group`].
    ///
    /// # Errors
    /// There is not one outcome for each ask.
    pub fn answer(&self, outcomes: &[Outcome]) -> Result<RateLimitResponse, Status> {
        if outcomes.len() != self.asks.len() {
            return Err(Status::new(GrpcCode::Internal, "not all limits have decided"));
        }
        let statuses: Vec<_> =
            self.descriptors.iter().map(|planned| self.descriptor(*planned, outcomes)).collect();
        let mut refused = false;
        // Whether a group refuses.
        let mut groups: HashMap<String, bool> = HashMap::new();
        for ask in &self.asks {
            let over = statuses[ask.descriptor].code == Code::OverLimit as i32;
            match self.rule(ask) {
                Some(rule) if rule.quota_mode => {
                    *groups.entry(quota_group(&self.request.descriptors[ask.descriptor])).or_default() |=
                        over;
                }
                _ => refused |= over,
            }
        }
        refused |= !groups.is_empty() && groups.values().all(|over| *over);
        let overall = if refused { Code::OverLimit } else { Code::Ok };
        let dynamic_metadata = metadata::of(self, &statuses, &groups);
        Ok(RateLimitResponse {
            overall_code: overall as i32,
            statuses,
            dynamic_metadata,
            ..RateLimitResponse::default()
        })
    }

    fn descriptor(&self, planned: Planned, outcomes: &[Outcome]) -> DescriptorStatus {
        let free = |limit_remaining| DescriptorStatus {
            code: Code::Ok as i32,
            limit_remaining,
            ..DescriptorStatus::default()
        };
        match planned {
            Planned::NoMatch | Planned::Replaced => free(0),
            Planned::Unlimited => free(u32::MAX),
            Planned::Asked(index) => {
                let ask = &self.asks[index];
                let shadow = self.rule(ask).is_some_and(|rule| rule.shadow_mode);
                status(outcomes[index], shadow, self.limit(ask))
            }
        }
    }

    /// The rule that is asked; none for a limit that the request carries.
    pub fn rule(&self, ask: &Ask) -> Option<&Rule> {
        ask.rule().map(|rule| &self.domains.rules()[rule])
    }

    /// The limit that is asked, as responses show it.
    pub fn limit(&self, ask: &Ask) -> RateLimit {
        let (amount, name) = match ask.limit {
            AskedLimit::Override { requests_per_unit, unit } => {
                (Amount::Limited { requests_per_unit, unit }, String::new())
            }
            AskedLimit::Rule(rule) => {
                let rule = &self.domains.rules()[rule];
                (rule.amount, rule.name.clone())
            }
        };
        match amount {
            Amount::Limited { requests_per_unit, unit } => {
                RateLimit { requests_per_unit, unit: unit as i32, name }
            }
            Amount::Unlimited => RateLimit { requests_per_unit: u32::MAX, unit: Unit::Unknown as i32, name },
        }
    }
}

impl well_known::Duration {
    /// In whole seconds, so that whoever waits as long does not come too early.
    pub fn rounded_up(duration: Duration) -> Self {
        let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
        Self { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
    }
}

impl ratelimit::RateLimit {
    /// A limit with a period that need not be a unit: then its unit is [`Unit::Unknown`], and proxies do not name one.
    pub fn of_period(requests: u32, seconds: u64, name: impl Into<String>) -> Self {
        Self { requests_per_unit: requests, unit: Unit::of_seconds(seconds) as i32, name: name.into() }
    }
}
