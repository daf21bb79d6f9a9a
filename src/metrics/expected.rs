//! Which counters are shown at 0: those that the configuration lets expect. A rate over a counter that only appears with
//! its first event misses that event; and to show all there might ever be would be a scrape of mostly zeros.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_limiter::Quota;

use super::worker_counters::Outcome;
use crate::config::{Mode, OnMissing, OnStoreFailure, RouteConfig};

use crate::limit::Limit;
use crate::respond::Reason;
use crate::snapshot::{Route, Snapshot, Target};

/// What a configuration lets expect.
pub(super) struct Expected<'s> {
    snapshot: &'s Snapshot,
    routes: HashMap<&'s str, (&'s Route, &'s RouteConfig)>,
    limits: HashMap<&'s str, &'s Arc<Limit>>,
}

impl<'s> Expected<'s> {
    pub(super) fn of(snapshot: &'s Snapshot) -> Self {
        let routes = snapshot.routes.iter().zip(&snapshot.config.routes);
        let limits = snapshot.limits.iter();
        Self {
            snapshot,
            routes: routes.map(|(route, config)| (route.name.as_str(), (route, config))).collect(),
            limits: limits.map(|limit| (limit.config.name.as_str(), limit)).collect(),
        }
    }

    /// Whether requests of a route are answered with this status as a rule.
    pub(super) fn code(&self, route: &str, code: u16) -> bool {
        let Some((route, _)) = self.routes.get(route) else { return matches!(code, 400 | 404) };
        let served = match &route.target {
            Some(Target::Answer { status, .. } | Target::Redirect { status, .. }) => status.as_u16(),
            Some(Target::Upstream { .. }) | None => 200,
        };
        let refuses = || route.limits.iter().any(|limit| limit.limit.enforces());
        code == served || (code == 429 && refuses())
    }

    /// Whether the gateway may refuse requests of a route for this reason.
    pub(super) fn reason(&self, route: &str, reason: Reason) -> bool {
        let Some((route, config)) = self.routes.get(route) else {
            return matches!(reason, Reason::NoRoute | Reason::Malformed);
        };
        let any = |is: fn(&Limit) -> bool| {
            route.limits.iter().any(|limit| limit.limit.enforces() && is(&limit.limit))
        };
        let consumers = self.snapshot.config.api_key.consumers.as_ref();
        let forwards = matches!(route.target, Some(Target::Upstream { .. }));
        match reason {
            Reason::Limit => any(|_| true),
            Reason::Ban => any(|limit| limit.bans.is_some()),
            Reason::Store => {
                any(|limit| limit.config.shared && limit.config.on_store_failure == OnStoreFailure::Closed)
            }
            Reason::List => !config.access.deny.is_empty() || !config.access.allow.is_empty(),
            Reason::Unauthenticated => {
                route.wants_user
                    || consumers.is_some_and(|consumers| consumers.required)
                    || any(|limit| limit.config.on_missing == OnMissing::Deny)
            }
            Reason::Forbidden => route.wants_user || consumers.is_some_and(|consumers| consumers.required),
            Reason::TooLarge => forwards && route.max_body.is_some(),
            Reason::Upstream | Reason::UpstreamTimeout => forwards,
            _ => false,
        }
    }

    /// Whether a limit may say this of a request: an index into the outcomes.
    pub(super) fn outcome(&self, limit: &str, outcome: usize) -> bool {
        let Some(limit) = self.limits.get(limit).filter(|limit| limit.config.mode != Mode::Off) else {
            return false;
        };
        let exempt = &limit.config.exempt;
        [
            (Outcome::Admitted, true),
            (Outcome::Refused, limit.enforces()),
            (Outcome::ShadowRefused, !limit.enforces()),
            (Outcome::Exempt, *exempt != Default::default()),
            (Outcome::Skipped, limit.config.on_missing == OnMissing::Skip),
            (Outcome::CandidateRefused, limit.candidate.is_some()),
        ]
        .into_iter()
        .any(|(one, expected)| expected && one as usize == outcome)
    }

    /// Whether a limit holds requests back.
    pub(super) fn delays(&self, limit: &str) -> bool {
        self.limits.get(limit).is_some_and(|limit| matches!(limit.config.quota, Quota::LeakyBucket(..)))
    }

    /// Whether a limit decides by this policy, an index, while the store is away.
    pub(super) fn policy(&self, limit: &str, policy: usize) -> bool {
        let limit = self.limits.get(limit).filter(|limit| limit.config.shared);
        limit.is_some_and(|limit| limit.config.on_store_failure as usize == policy)
    }
}
