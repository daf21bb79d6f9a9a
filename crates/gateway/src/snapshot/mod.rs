//! A configuration in force: everything that can be resolved once is resolved here, not per request.

mod route;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderName, Method};
use sluicegate_limiter::Time;
use sluicegate_wire::h2::FloodLimits;
use sluicegate_wire::headers::NameCase;

use crate::limit::{Limit, StoreState};
use crate::queue::Queues;
use crate::resources::LoadedConfig;
use crate::rules::{RuledLimit, Rules};
use crate::store_settings::settings;
use sluicegate_auth::check::Check;
use sluicegate_auth::introspection::Introspection;
use sluicegate_auth::jwt::Jwt;
use sluicegate_base::tls::UpstreamTls;
use sluicegate_config::{
    CorsConfig, Cost, DetailedCost, H2Config, HeaderChange, KeySpec, Part, RedisConfig, RouteConfig,
    ServedConfig, UpstreamConfig,
};
use sluicegate_downstream::ListenerState;
use sluicegate_observe::access_log::Names;
use sluicegate_route::keys::KeySecret;
use sluicegate_route::{RouteQuery, RouteTable, preflight};
use sluicegate_upstream::{Underscores, UpstreamState};

pub use self::route::{Route, RouteLimit, Target};

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
    pub table: Arc<RouteTable>,
    /// The flood limits of HTTP/2 connections; a connection keeps the limits that it began with.
    pub flood_limits: Arc<FloodLimits>,
    /// The routes.
    pub routes: Vec<Arc<Route>>,
    /// All limits, used or not, in the order of the file.
    pub limits: Vec<Arc<Limit>>,
    /// The secret that keys are hashed with, the same for the life of the process.
    pub secret: KeySecret,
    /// The shared state of the upstreams, in the order of the file.
    pub upstreams: Vec<Arc<UpstreamState>>,
    /// The shared state of the store.
    pub store: Option<Arc<StoreState>>,
    /// Headers on which routes, limits and credentials depend: a client cannot have them removed with `Connection`.
    pub reserved: Arc<[HeaderName]>,
    /// Whether there is any CORS policy, of a route or at the top level.
    pub has_cors: bool,
    /// The case in which names of response headers are written over HTTP/1.1; `None` for lower case.
    pub header_case: Option<Arc<NameCase>>,
    /// Which request headers with underscores in their names may pass.
    pub underscores: Arc<Underscores>,
    /// Verifies user tokens.
    pub jwt: Option<Arc<Jwt>>,
    /// Asks an issuer about tokens that are not verified here.
    pub introspection: Option<Arc<Introspection>>,
    /// Has requests checked outside.
    pub check: Option<Arc<Check>>,
    /// Rules for single keys.
    pub rules: Option<RulesInForce>,
    /// Where requests above limits are kept until these admit them; `None` if no limit has a queue.
    pub queues: Option<Arc<Queues>>,
}

/// What a configuration names and is opened before it comes into force.
#[derive(Clone, Default)]
pub struct Opened {
    /// Rules for single keys.
    pub rules: Option<Arc<Rules>>,
    /// The queues of limits.
    pub queues: Option<Arc<Queues>>,
}

/// Rules for single keys, and the limits that may have some.
pub struct RulesInForce {
    /// What is known of them.
    pub rules: Arc<Rules>,
    /// The limits in the order of the file.
    pub limits: Vec<Arc<RuledLimit>>,
}

/// What the process keeps from one configuration to the next.
#[derive(Default)]
pub struct SnapshotBuilder {
    secret: KeySecret,
}

impl SnapshotBuilder {
    /// The snapshot of `config` that follows `before`. A limit that keeps its name, key, algorithm and
    /// scope keeps its counters, rescaled to the new quota at `now`. If only other files than gateway.yaml have changed, or
    /// the parts of a region, whatever does not depend on these is shared with `before`.
    pub fn build(
        &self,
        config: LoadedConfig,
        opened: Opened,
        before: Option<&Snapshot>,
        now: Time,
    ) -> Snapshot {
        let Opened { rules, queues } = opened;
        let same_file = before.filter(|before| Arc::ptr_eq(&before.config.config, &config.config));
        let has_same_rules = before.is_some_and(|before| is_same(before.rules().as_ref(), rules.as_ref()));
        let has_same_consumers = before.is_some_and(|before| {
            is_same(before.config.resources.consumers.as_ref(), config.resources.consumers.as_ref())
        });
        // A limit keeps the variants that rules and consumers have made of it.
        let is_current = |limit: &Limit| {
            same_file.is_some()
                && has_same_rules
                && (has_same_consumers || limit.config.identity_rate.is_none())
        };
        let standing = before.map_or(&[][..], |before| &before.limits);
        let limits = Limit::all_of(&config, standing, is_current, &self.secret, now);
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
        let reserved = kept(same_file, |before| &before.reserved, || config.reserved_headers().into());
        let route = |(index, route): (usize, &RouteConfig)| {
            let same = same_file.map(|before| &before.routes[index]);
            let has_same_limits = |same: &&Arc<Route>| {
                same.limits.iter().all(|of_route| Arc::ptr_eq(&of_route.limit, &limits[of_route.index]))
            };
            let new = || {
                let by_user = config.hash_key(route).is_some_and(|key| key.parts().any(Part::is_of_user));
                let known_keys = config.api_key.consumers.is_some();
                Arc::new(Route::new(route, &limits, all_want || by_user, known_keys))
            };
            same.filter(has_same_limits).map_or_else(new, Arc::clone)
        };
        Snapshot {
            has_cors: config.cors.is_some() || config.routes.iter().any(|route| route.cors.is_some()),
            header_case: NameCase::new(config.header_case.iter().map(String::as_str)).map(Arc::new),
            underscores: kept(
                same_file,
                |before| &before.underscores,
                || Arc::new(Underscores::new(&config, &reserved)),
            ),
            upstreams: config.upstreams.iter().zip(&config.resources.upstreams).map(upstream).collect(),
            store,
            generation: before.map_or(1, |before| before.generation + 1),
            listener_states: ListenerState::all(
                &config.listeners,
                &config.resources.listeners,
                before.map(|before| &before.listener_states[..]),
            ),
            flood_limits: Arc::new(flood_limits(&config.h2)),
            table: kept(same_file, |before| &before.table, || Arc::new(RouteTable::new(&config))),
            routes: config.routes.iter().enumerate().map(route).collect(),
            limits,
            jwt,
            introspection,
            check,
            secret: self.secret.clone(),
            names: kept(
                same_file,
                |before| &before.names,
                || Names::next(&config, before.map(|before| &before.names)),
            ),
            reserved,
            queues: queues.filter(|queues| !queues.is_empty()),
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

impl Snapshot {
    /// What was opened for it.
    pub fn opened(&self) -> Opened {
        Opened { rules: self.rules(), queues: self.queues.clone() }
    }

    /// The rules for single keys.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.as_ref().map(|in_force| Arc::clone(&in_force.rules))
    }

    /// How the listener with this index decides for another proxy, if it does.
    pub fn served(&self, listener: usize) -> Option<&ServedConfig> {
        self.config.listeners.get(listener)?.served.as_ref()
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

/// Whether both are one object, or neither is there.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

/// A part of a configuration: that of `before`, if it is given, or a new one.
fn kept<T: ?Sized>(
    before: Option<&Snapshot>,
    part: impl Fn(&Snapshot) -> &Arc<T>,
    new: impl FnOnce() -> Arc<T>,
) -> Arc<T> {
    before.map_or_else(new, |before| Arc::clone(part(before)))
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
        let first = snapshots.build(config("local"), Opened::default(), None, now);
        let same = snapshots.build(config("local"), Opened::default(), Some(&first), now);
        let moved = snapshots.build(config("shared"), Opened::default(), Some(&same), now);
        let back = snapshots.build(config("local"), Opened::default(), Some(&moved), now);
        let kept = |a: &Snapshot, b: &Snapshot| {
            Arc::ptr_eq(&a.limits[0].counted.counters, &b.limits[0].counted.counters)
        };
        assert!(kept(&first, &same) && !kept(&same, &moved) && !kept(&moved, &back));
    }

    /// A changed list, and a changed part of a region, share with the snapshot before what does not depend on them.
    #[test]
    fn what_does_not_depend_on_a_change_is_shared() {
        let text = "listen: [127.0.0.1:8080]\nstore: {redis: {url: redis://127.0.0.1}}\n\
            regions: {name: eu, floors: {eu: 40%, us: 40%}, home: {redis: {url: redis://127.0.0.2}}}\n\
            limits:\n  lent: {key: ip, rate: 100/s, scope: shared}\n  here: {key: ip, rate: 100/s, scope: local}\n\
            routes:\n  - {match: {path: /lent}, respond: {status: 200}, limits: [lent]}\n  \
            - {match: {path: /here}, respond: {status: 200}, limits: [here]}\n";
        let loaded = parse(text.to_owned(), "gateway.yaml", Path::new(""));
        let mut config = loaded.config.ok_or(loaded.rendered).unwrap();
        let snapshots = SnapshotBuilder::default();
        let now = Time::from_nanos(0);
        let first = snapshots.build(config.clone(), Opened::default(), None, now);
        let same = snapshots.build(config.clone(), Opened::default(), Some(&first), now);
        config.divisions = vec![Some(config.regions.as_ref().unwrap().division(500_000)), None];
        let lent = snapshots.build(config, Opened::default(), Some(&same), now);
        let shared = |a: &Snapshot, b: &Snapshot| {
            assert!(Arc::ptr_eq(&a.table, &b.table) && Arc::ptr_eq(&a.names, &b.names));
            [0, 1].map(|at| {
                let shared = Arc::ptr_eq(&a.limits[at], &b.limits[at]);
                assert_eq!(Arc::ptr_eq(&a.routes[at], &b.routes[at]), shared);
                shared
            })
        };
        assert_eq!(shared(&first, &same), [true, true]);
        assert_eq!(shared(&same, &lent), [false, true]);
        let rate = |snapshot: &Snapshot| snapshot.limits[0].config.quota.rate().unwrap().count();
        assert_eq!([rate(&first), rate(&lent)], [40, 50]);
    }
}
