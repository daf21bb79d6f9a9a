//! A configuration in force: everything that can be resolved once is resolved here, not per request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use sluicegate_limiter::Time;
use sluicegate_wire::h2::FloodLimits;
use sluicegate_wire::headers::NameCase;

use crate::access_log::Names;
use crate::auth::check::Check;
use crate::auth::introspection::Introspection;
use crate::auth::jwt::Jwt;
use crate::client_connection::ListenerState;
use crate::keys::KeySecret;
use crate::limit::{Limit, SelectedLimit, StoreState};
use crate::resources::LoadedConfig;
use crate::respond::{Combination, RuledHeaders, StaticHeaders};
use crate::route::{RouteQuery, RouteTable, preflight};
use crate::rules::{RuledLimit, Rules};
use crate::store_settings::settings;
use crate::tls::UpstreamTls;
use crate::upstream::{ForwardPolicy, Underscores, UpstreamState};
use sluicegate_config::{
    Action, CorsConfig, Cost, DetailedCost, H2Config, HeaderChange, KeySpec, LimitConfig, Mode, Part,
    RateSource, RedisConfig, Reference, Reject, RouteConfig, UpstreamConfig, UriTemplate, Variable,
};

/// A configuration in force. Immutable; a reload makes another.
pub struct Snapshot {
    /// Counts the configurations of this process, from 1.
    pub generation: u64,
    /// What the file says.
    pub config: LoadedConfig,
    /// The names in it.
    pub names: Arc<Names>,
    /// The state of each listener for new connections, in the order of the file.
    pub listener_states: Vec<Arc<ListenerState>>,
    /// Finds the index of a request's route.
    pub table: RouteTable,
    /// The flood limits of HTTP/2 connections; a connection keeps the limits that it began with.
    pub flood_limits: Arc<FloodLimits>,
    /// The routes.
    pub routes: Vec<Route>,
    /// All limits, used or not, in the order of the file.
    pub limits: Vec<Arc<Limit>>,
    /// The secret that keys are hashed with, the same for the life of the process.
    pub secret: KeySecret,
    /// The shared state of the upstreams, in the order of the file.
    pub upstreams: Vec<Arc<UpstreamState>>,
    /// The shared state of the store.
    pub store: Option<Arc<StoreState>>,
    /// Headers on which routes, limits and credentials depend: a client cannot have them removed with `Connection`.
    pub reserved: Vec<HeaderName>,
    /// Whether there is any CORS policy, of a route or at the top level.
    pub has_cors: bool,
    /// The case in which names of response headers are written over HTTP/1.1; `None` for lower case.
    pub header_case: Option<Arc<NameCase>>,
    /// Which request headers with underscores in their names may pass.
    pub underscores: Underscores,
    /// Verifies user tokens.
    pub jwt: Option<Arc<Jwt>>,
    /// Asks an issuer about tokens that are not verified here.
    pub introspection: Option<Arc<Introspection>>,
    /// Has requests checked outside.
    pub check: Option<Arc<Check>>,
    /// Rules for single keys.
    pub rules: Option<RulesInForce>,
}

/// Rules for single keys, and the limits that may have some.
pub struct RulesInForce {
    /// What is known of them.
    pub rules: Arc<Rules>,
    /// The limits in the order of the file.
    pub limits: Vec<Arc<RuledLimit>>,
}

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
    /// Its index in [`Snapshot::limits`].
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

/// What the process keeps from one configuration to the next.
#[derive(Default)]
pub struct SnapshotBuilder {
    secret: KeySecret,
    orders: AtomicU64,
}

impl SnapshotBuilder {
    /// The snapshot of `config` that follows `before`. A limit that keeps its name, key, algorithm and
    /// scope keeps its counters, rescaled to the new quota at `now`.
    pub fn build(
        &self,
        config: LoadedConfig,
        rules: Option<Arc<Rules>>,
        before: Option<&Snapshot>,
        now: Time,
    ) -> Snapshot {
        let standing = before.map_or(&[][..], |before| &before.limits);
        let limits = Limit::all_of(&config, standing, &self.secret, &self.orders, now);
        let same_store = |config: &RedisConfig| {
            before
                .and_then(|before| before.store.as_ref())
                .filter(|state| state.can_keep(&settings(config)))
                .map(Arc::clone)
        };
        let new_store = |config: &RedisConfig| {
            // The state that another store reported is not valid for this one.
            let all = limits.iter().flat_map(Limit::all).filter(|limit| limit.config.shared);
            all.for_each(|limit| limit.counted.forget());
            Arc::new(StoreState::new(settings(config)))
        };
        let jwt = config.jwt.as_ref().map(|jwt| {
            Jwt::next(
                (jwt, config.resources.token_keys.as_ref()),
                config.claims(),
                before.and_then(|before| before.jwt.as_ref()),
            )
        });
        let introspection = config.introspection.as_ref().map(|introspection| {
            let before = before.and_then(|before| before.introspection.as_ref());
            Introspection::next(introspection, config.claims(), before)
        });
        let check = config
            .check
            .as_ref()
            .map(|check| Check::next(check, before.and_then(|before| before.check.as_ref())));
        let all_want = jwt.as_ref().is_some_and(|jwt| jwt.concerns_all())
            || introspection.as_ref().is_some_and(|introspection| introspection.concerns_all());
        let known = before.map(|before| &before.upstreams[..]).unwrap_or_default();
        let known: HashMap<&str, &Arc<UpstreamState>> =
            known.iter().map(|state| (state.config.name.as_str(), state)).collect();
        let upstream = |(config, tls): (&UpstreamConfig, &Option<UpstreamTls>)| {
            UpstreamState::next(config, tls.as_ref(), known.get(config.name.as_str()).copied(), now)
        };
        let store = config
            .store
            .as_ref()
            .map(|config| same_store(config).unwrap_or_else(|| new_store(config)))
            .inspect(|store| {
                let shared = limits.iter().flat_map(Limit::all).filter(|limit| limit.config.shared);
                store.track(shared.map(|limit| &limit.counted));
            });
        let reserved = config.reserved_headers();
        let names = Names::next(&config, before.map(|before| &before.names));
        Snapshot {
            has_cors: config.cors.is_some() || config.routes.iter().any(|route| route.cors.is_some()),
            header_case: NameCase::new(config.header_case.iter().map(String::as_str)).map(Arc::new),
            underscores: Underscores::new(&config, &reserved),
            upstreams: config.upstreams.iter().zip(&config.resources.upstreams).map(upstream).collect(),
            store,
            generation: before.map_or(1, |before| before.generation + 1),
            listener_states: ListenerState::all(
                &config.listeners,
                &config.resources.listeners,
                before.map(|before| &before.listener_states[..]),
            ),
            flood_limits: Arc::new(flood_limits(&config.h2)),
            table: RouteTable::new(&config.routes, &config.upstreams),
            routes: config
                .routes
                .iter()
                .map(|route| {
                    let by_user = config.hash_key(route).is_some_and(|key| key.parts().any(Part::is_of_user));
                    Route::new(route, &limits, all_want || by_user, config.api_key.consumers.is_some())
                })
                .collect(),
            limits,
            jwt,
            introspection,
            check,
            secret: self.secret.clone(),
            names,
            reserved,
            rules: rules.map(|rules| RulesInForce {
                limits: config
                    .limits
                    .iter()
                    .map(|limit| rules.limit_of(limit, config.client_ip.ipv6_prefix, &self.secret))
                    .collect(),
                rules,
            }),
            config,
        }
    }
}

impl Route {
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

impl Snapshot {
    /// The rules for single keys.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.as_ref().map(|in_force| Arc::clone(&in_force.rules))
    }

    /// The limit called `name`.
    pub fn limit(&self, name: &str) -> Option<&Arc<Limit>> {
        self.limits.iter().find(|limit| limit.config.name == name)
    }

    /// The cost of requests on the limit with this index, if it is only known after the response.
    pub fn late_cost(&self, limit: usize) -> Option<&DetailedCost> {
        match &self.config.limits.get(limit)?.cost {
            Cost::Detailed(cost) => Some(cost),
            _ => None,
        }
    }

    /// Counts an answer whose cost cannot be read.
    #[cold]
    pub fn unreadable_cost(&self, limit: usize) {
        if let Some(limit) = self.limits.get(limit) {
            limit.counted.counters.unreadable_costs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of keys of a limit and its variants whose counters are not zero at `now`.
    pub fn keys(&self, limit: &Arc<Limit>, now: Time) -> usize {
        let at = match &self.store {
            Some(store) if limit.config.shared => store.clocks_at(now),
            _ => now,
        };
        limit.all().map(|limit| limit.counted.counters.keys(at)).sum()
    }

    /// Drops the state of a limit that a store reported.
    pub fn forget(&self, limit: &str) {
        self.limit(limit).into_iter().flat_map(Limit::all).for_each(|limit| limit.counted.forget());
    }

    /// The header changes for answers of a route, or for requests that match no route.
    pub fn answer_headers(&self, route: Option<usize>) -> &[HeaderChange] {
        route.map_or(&self.config.answer_headers, |route| &self.config.routes[route].shape.answer)
    }

    /// The CORS policy of a route, or for requests that match no route.
    pub fn cors(&self, route: Option<usize>) -> Option<&CorsConfig> {
        let of_route = |index: usize| self.config.routes[index].cors.as_deref();
        if self.has_cors { route.map_or(self.config.cors.as_deref(), of_route) } else { None }
    }

    /// The route of the request that a preflight request announces, if the gateway answers the preflight itself: if
    /// that route, or the route that was `found` for the preflight request, has a CORS policy.
    #[inline]
    pub fn preflight(&self, query: &RouteQuery<'_>, found: Option<usize>) -> Option<Option<usize>> {
        if self.has_cors { self.preflight_of(query, found) } else { None }
    }

    #[inline(never)]
    fn preflight_of(&self, query: &RouteQuery<'_>, found: Option<usize>) -> Option<Option<usize>> {
        let method = Method::from_bytes(preflight(query.method, query.headers)?).ok()?;
        let meant = self.table.find(&RouteQuery { method: &method, ..*query }).map(|(index, _)| index);
        (self.cors(meant).is_some() || self.cors(found).is_some()).then_some(meant)
    }

    /// The upstream that a target leads to.
    pub fn upstream(&self, index: usize) -> &UpstreamConfig {
        &self.config.upstreams[index]
    }

    /// The key by which requests of a route are assigned to a server.
    pub fn affinity(&self, route: &Route) -> Option<&KeySpec> {
        match &route.target {
            Target::Upstream { index, .. } => self.config.upstreams[*index].hashed_by(),
            _ => None,
        }
    }
}

impl Route {
    fn new(config: &RouteConfig, limits: &[Arc<Limit>], wants_user: bool, known_keys: bool) -> Self {
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
}

/// Whether key, quota and cost of a limit do not depend on the authenticated identity of the sender. `known_keys`: API keys
/// are checked against the known consumers.
fn is_identity_independent(limit: &LimitConfig, known_keys: bool) -> bool {
    let needs_proof =
        |part: &Part| part.is_of_user() || *part == Part::Consumer || (known_keys && *part == Part::ApiKey);
    let for_some = !limit.plans.is_empty() || !limit.exempt.plans.is_empty();
    let named = limit.identity_rate.is_some() || limit.cost.is_checked() || limit.fair.is_some();
    let waits = limit.penalty.is_some(); // a request above the limit is not refused
    !for_some && !named && !waits && limit.exempt.consumers.is_empty() && !limit.key.parts().any(needs_proof)
}

/// The default limits with the floors that `config` sets.
fn flood_limits(config: &H2Config) -> FloodLimits {
    // In the order of `AbortReason`.
    let floors = [
        config.resets,
        config.errors,
        config.settings,
        config.pings,
        config.empty_data,
        config.large_heads,
        config.priorities,
        config.window_updates,
        config.others,
    ];
    let mut limits = FloodLimits::default();
    for (budget, floor) in limits.budgets.iter_mut().zip(floors) {
        if let Some(floor) = floor {
            *budget = budget.with_floor(floor);
        }
    }
    limits
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::resources::parse;

    fn config(scope: &str) -> LoadedConfig {
        let text = format!(
            "listen: [127.0.0.1:8080]\nstore: {{redis: {{url: redis://127.0.0.1}}}}\n\
             limits: {{one: {{key: ip, rate: 100/min, scope: {scope}}}}}\n\
             routes: [{{respond: {{status: 200}}, limits: [one]}}]\n"
        );
        parse(text, "gateway.yaml", Path::new("")).config.unwrap()
    }

    #[test]
    fn a_limit_that_moves_into_the_store_or_out_of_it_starts_anew() {
        let snapshots = SnapshotBuilder::default();
        let now = Time::from_nanos(0);
        let first = snapshots.build(config("local"), None, None, now);
        let same = snapshots.build(config("local"), None, Some(&first), now);
        let moved = snapshots.build(config("shared"), None, Some(&same), now);
        let back = snapshots.build(config("local"), None, Some(&moved), now);
        let kept = |a: &Snapshot, b: &Snapshot| {
            Arc::ptr_eq(&a.limits[0].counted.counters, &b.limits[0].counted.counters)
        };
        assert!(kept(&first, &same) && !kept(&same, &moved) && !kept(&moved, &back));
    }
}
