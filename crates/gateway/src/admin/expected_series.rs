//! Which counters a configuration lets expect, so that they are exposed at 0 before their first event.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_limiter::Quota;

use crate::limit::Limit;
use crate::snapshot::{Route, Snapshot, Target};
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::{ListenerConfig, Mode, OnFailure, OnMissing, OnStoreFailure, RouteConfig};
use sluicegate_observe::metrics::{ExpectedSeries, Refusal};

/// The series that a configuration lets expect.
pub(super) struct Expected<'s> {
    snapshot: &'s Snapshot,
    routes: HashMap<&'s str, (&'s Route, &'s RouteConfig)>,
    limits: HashMap<&'s str, &'s Arc<Limit>>,
}

impl<'s> Expected<'s> {
    pub(super) fn of(snapshot: &'s Snapshot) -> Self {
        let routes = snapshot.routes.iter().map(Arc::as_ref).zip(&snapshot.config.routes);
        let limits = snapshot.limits.iter();
        Self {
            snapshot,
            routes: routes.map(|(route, config)| (route.name.as_str(), (route, config))).collect(),
            limits: limits.map(|limit| (limit.config.name.as_str(), limit)).collect(),
        }
    }

    fn listener(&self, name: &str) -> Option<&ListenerConfig> {
        self.snapshot.config.listeners.iter().find(|listener| listener.name == name)
    }
}

impl ExpectedSeries for Expected<'_> {
    fn code(&self, route: &str, code: u16) -> bool {
        let Some((route, _)) = self.routes.get(route) else { return matches!(code, 400 | 404) };
        let served = match &route.target {
            Target::Answer { status, .. } | Target::Redirect { status, .. } => status.as_u16(),
            Target::Upstream { .. } | Target::Usage => 200,
        };
        let refuses = || route.limits.iter().any(|limit| limit.limit.enforces());
        code == served || (code == 429 && refuses())
    }

    fn reason(&self, route: &str, reason: RefusalReason) -> bool {
        let Some((route, config)) = self.routes.get(route) else {
            return matches!(reason, RefusalReason::NoRoute | RefusalReason::Malformed);
        };
        let any = |is: fn(&Limit) -> bool| {
            route.limits.iter().any(|limit| limit.limit.enforces() && is(&limit.limit))
        };
        let consumers = self.snapshot.config.api_key.consumers.as_ref();
        let forwards = matches!(route.target, Target::Upstream { .. });
        match reason {
            RefusalReason::Limit => any(|_| true),
            RefusalReason::Ban => any(|limit| limit.counted.bans.is_some()),
            RefusalReason::Store => {
                any(|limit| limit.config.shared && limit.config.on_store_failure == OnStoreFailure::Closed)
            }
            RefusalReason::List => !config.access.deny.is_empty() || !config.access.allow.is_empty(),
            RefusalReason::Unauthenticated => {
                route.wants_user
                    || consumers.is_some_and(|consumers| consumers.required)
                    || any(|limit| limit.config.on_missing == OnMissing::Deny)
            }
            RefusalReason::Forbidden => {
                route.wants_user || consumers.is_some_and(|consumers| consumers.required)
            }
            RefusalReason::Check => config.check,
            RefusalReason::AuthUnavailable => {
                let introspection = self.snapshot.config.introspection.as_ref().filter(|_| route.wants_user);
                let services = introspection.map(|introspection| &introspection.service).into_iter();
                let check = self.snapshot.config.check.as_ref().filter(|_| config.check);
                services
                    .chain(check.map(|check| &check.service))
                    .any(|service| service.on_failure != OnFailure::Anonymous)
            }
            RefusalReason::TooLarge => forwards && route.forward.max_body.is_some(),
            RefusalReason::Upstream | RefusalReason::UpstreamTimeout => forwards,
            _ => false,
        }
    }

    fn outcome(&self, limit: &str, outcome: LimitOutcome) -> bool {
        let Some(limit) = self.limits.get(limit).filter(|limit| limit.config.mode != Mode::Off) else {
            return false;
        };
        match outcome {
            LimitOutcome::Admitted => true,
            LimitOutcome::Refused => limit.enforces(),
            LimitOutcome::ShadowRefused => !limit.enforces(),
            LimitOutcome::Queued => limit.config.queue.is_some(),
            LimitOutcome::Exempt => limit.config.exempt != Default::default(),
            LimitOutcome::Skipped => limit.config.on_missing == OnMissing::Skip,
            LimitOutcome::CandidateRefused => limit.candidate.is_some(),
        }
    }

    fn delays(&self, limit: &str) -> bool {
        self.limits.get(limit).is_some_and(|limit| matches!(limit.config.quota, Quota::LeakyBucket(..)))
    }

    fn policy(&self, limit: &str, policy: OnStoreFailure) -> bool {
        let limit = self.limits.get(limit).filter(|limit| limit.config.shared);
        limit.is_some_and(|limit| limit.config.on_store_failure == policy)
    }

    fn refused_connection(&self, listener: &str, reason: Refusal) -> bool {
        reason != Refusal::ProxyHeader
            || self.listener(listener).is_some_and(|listener| listener.proxy_protocol)
    }

    fn handshakes(&self, listener: &str) -> bool {
        self.listener(listener).is_some_and(|listener| listener.tls.is_some())
    }

    fn store(&self) -> bool {
        self.snapshot.store.is_some()
    }
}
