//! A route of a configuration in force.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use crate::limit::{Limit, SelectedLimit};
use crate::respond::{Combination, RuledHeaders, StaticHeaders};
use sluicegate_config::{
    Action, LimitConfig, Mode, Part, PartSource, RateSource, Reference, Reject, RouteConfig, UriTemplate,
    Variable,
};
use sluicegate_upstream::ForwardPolicy;

/// A route, with everything that can be computed before a request arrives.
pub struct Route {
    /// Its name.
    pub name: String,
    /// Its limits, without those that are off.
    pub limits: Vec<RouteLimit>,
    /// The action for admitted requests.
    pub target: Target,
    /// The rate limit headers that all responses share.
    pub static_headers: StaticHeaders,
    /// The same for each plan that a limit of the route has a variant for, by the name of the plan.
    pub static_headers_by_plan: Vec<(String, StaticHeaders)>,
    /// The configured response to refused requests, in place of the default.
    pub reject: Option<Reject>,
    /// How requests are forwarded.
    pub forward: ForwardPolicy,
    /// Whether anything needs to know the user.
    pub wants_user: bool,
    /// The rate limit headers for requests whose keys have rules.
    ruled_headers: RuledHeaders,
}

/// A limit of a route.
pub struct RouteLimit {
    /// The limit.
    pub limit: Arc<Limit>,
    /// Its index in [`Snapshot::limits`](super::Snapshot::limits).
    pub index: usize,
    /// What a request costs on this route, if that differs from others.
    pub cost: Option<u64>,
    /// Whether its key, quota and cost do not depend on the authenticated identity of the sender.
    pub identity_independent: bool,
}

/// The action for admitted requests.
pub enum Target {
    /// It is forwarded.
    Upstream {
        /// An index into the configuration's upstreams.
        index: usize,
        /// Whether the path goes out as it came in.
        original_path: bool,
    },
    /// The client is sent elsewhere.
    Redirect {
        /// The status.
        status: StatusCode,
        /// Where to.
        to: UriTemplate,
    },
    /// It is answered by the gateway.
    Answer {
        /// The status.
        status: StatusCode,
        /// The body.
        body: Bytes,
        /// Its type.
        content_type: HeaderValue,
    },
    /// The client is answered the state of its own limits, which spends nothing.
    Usage,
}

impl Route {
    /// The route of a configuration with these limits. `known_keys`: API keys are checked against the known consumers.
    pub(super) fn new(
        config: &RouteConfig,
        limits: &[Arc<Limit>],
        wants_user: bool,
        known_keys: bool,
    ) -> Self {
        let asked = config.limits.iter().filter(|limit| limits[limit.index].config.mode != Mode::Off);
        let asked = asked.map(|&Reference { index, .. }| RouteLimit {
            limit: Arc::clone(&limits[index]),
            index,
            cost: limits[index].config.cost.on_route(&config.name),
            identity_independent: is_identity_independent(&limits[index].config, known_keys),
        });
        let limits: Vec<RouteLimit> = asked.collect();
        let by_user = |limit: &LimitConfig| {
            let plan = !limit.plans.is_empty() || !limit.exempt.plans.is_empty();
            let rate =
                limit.identity_rate.as_ref().is_some_and(|rate| matches!(rate.source, RateSource::Claim(_)));
            let share = limit
                .fair
                .as_ref()
                .is_some_and(|fair| !fair.weights.is_empty() || fair.by.parts().any(Part::is_of_user));
            plan || rate || share || limit.key.parts().any(Part::is_of_user)
        };
        let wants_user = wants_user
            || limits.iter().any(|l| by_user(&l.limit.config))
            || config.variables().any(Variable::is_of_user);
        let mut plans: Vec<&String> =
            limits.iter().flat_map(|l| &l.limit.plans).map(|(name, _)| name).collect();
        plans.sort();
        plans.dedup();
        let headers_for =
            |plan| StaticHeaders::new(config.headers, limits.iter().map(|l| l.limit.for_plan(plan)));
        let static_headers_by_plan =
            plans.into_iter().map(|plan| (plan.clone(), headers_for(Some(plan)))).collect();
        let static_headers = headers_for(None);
        Self {
            name: config.name.clone(),
            target: Target::new(&config.action),
            static_headers,
            static_headers_by_plan,
            limits,
            reject: config.reject.clone(),
            forward: ForwardPolicy {
                max_body: config.max_body,
                overrides: matches!(config.action, Action::Forward { overrides: true, .. }),
            },
            wants_user,
            ruled_headers: RuledHeaders::default(),
        }
    }

    /// The rate limit headers that all responses to clients on this plan share.
    pub fn static_headers_for(&self, plan: Option<&str>) -> &StaticHeaders {
        let of_plan = plan.and_then(|plan| self.static_headers_by_plan.iter().find(|(name, _)| name == plan));
        of_plan.map_or(&self.static_headers, |(_, headers)| headers)
    }

    /// The same for a request some of whose limits are variants that rules have made.
    #[cold]
    pub fn static_headers_for_rules(
        &self,
        plan: Option<&str>,
        selected: &[SelectedLimit<'_>],
    ) -> &StaticHeaders {
        let without = self.static_headers_for(plan);
        let ruled = |selected: &&SelectedLimit<'_>| selected.limit.counted.of_single_keys;
        let mut combination: Combination =
            selected.iter().filter(ruled).map(|selected| Arc::as_ptr(selected.limit) as usize).collect();
        combination.push(std::ptr::from_ref(without) as usize);
        let made = self.ruled_headers.get(&combination, || {
            let limits = self.limits.iter().map(|of_route| {
                let ruled = selected.iter().filter(ruled).find(|selected| selected.index == of_route.index);
                ruled.map_or_else(|| of_route.limit.for_plan(plan), |selected| selected.limit)
            });
            StaticHeaders::new(without.families, limits)
        });
        made.unwrap_or(without)
    }
}

impl Target {
    fn new(action: &Action) -> Self {
        match action {
            Action::Forward { upstream, original_path, .. } => {
                Self::Upstream { index: upstream.index, original_path: *original_path }
            }
            Action::Usage => Self::Usage,
            Action::Redirect { status, to } => Self::Redirect { status: *status, to: to.clone() },
            Action::Respond { status, body, content_type } => Self::Answer {
                status: *status,
                body: Bytes::from(body.clone()),
                content_type: content_type.clone(),
            },
        }
    }
}

/// Whether key, quota and cost of a limit do not depend on the authenticated identity of the sender. `known_keys`: API keys
/// are checked against the known consumers.
fn is_identity_independent(limit: &LimitConfig, known_keys: bool) -> bool {
    let needs_proof = |part: &Part| match part.source() {
        PartSource::Token | PartSource::Consumer => true,
        PartSource::ApiKey => known_keys,
        PartSource::Address
        | PartSource::Nothing
        | PartSource::Route
        | PartSource::PathParameter
        | PartSource::Header
        | PartSource::Query
        | PartSource::Cookie
        | PartSource::Certificate
        | PartSource::Question => false,
    };
    let for_some = !limit.plans.is_empty() || !limit.exempt.plans.is_empty();
    let named = limit.identity_rate.is_some() || limit.cost.is_checked() || limit.fair.is_some();
    let waits = limit.penalty.is_some(); // a request above the limit is not refused
    !for_some && !named && !waits && limit.exempt.consumers.is_empty() && !limit.key.parts().any(needs_proof)
}
