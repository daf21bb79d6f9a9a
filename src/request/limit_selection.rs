//! Selects the limits that apply to a request, with the key and the cost for each.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use sluicegate_fair_shares::Consumer;
use sluicegate_limiter::Time;
use smallvec::SmallVec;

use crate::auth::Identity;
use crate::fair_shares::FairShares;
use crate::keys::{self, Fingerprint, KeySecret, KeyText, Subject};
use crate::limit::{Ask, FairAsk, Limit, SelectedLimit, Variant};
use crate::lists::{self, AddressList};
use crate::request::cost::cost;
use crate::request::early_reject::EarlyReject;
use crate::request::verdict::{Matched, SkipReason};
use crate::route::{LaxMatch, preflight};
use crate::rules::{Effect, EffectId, KeyQuestion, Known, RuleAnswer};
use crate::snapshot::{RulesInForce, Snapshot};
use crate::tls::TlsSession;
use sluicegate_config::{Exempt, OnMissing, When};
use sluicegate_wire::RequestHead;

/// A request whose route is known.
pub(crate) struct RoutedRequest<'s, 'r, 'n> {
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) tls: Option<&'r TlsSession>,
    pub(crate) parts: &'r RequestHead,
    pub(crate) now: Time,
    /// The index of the route.
    pub(crate) route_index: usize,
    /// Earlier routes that a lenient reading of the path matches: their limits apply too.
    pub(crate) lax_matches: &'r [LaxMatch<'n>],
    pub(crate) client: IpAddr,
    pub(crate) host: &'r str,
    /// The path in normal form.
    pub(crate) path: &'r Cow<'r, str>,
    pub(crate) params: &'r [(&'r str, &'r str)],
    /// The rules of its keys that had to be asked for.
    pub(crate) rules: &'r [RuleAnswer],
    /// A limit, and the key that the request had there by the word of a log.
    pub(crate) logged_key: Option<&'r (String, String)>,
}

/// Which limits of a route are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All: the sender is authenticated, or need not be.
    All,
    /// Those whose key an unauthenticated request has.
    Unauthenticated,
    /// Those that do not depend on the identity of the sender.
    IdentityIndependent,
}

/// The limits that apply to a request, and the checks to run.
#[derive(Default)]
pub(crate) struct LimitSelection<'s> {
    pub(crate) selected: SmallVec<[SelectedLimit<'s>; 2]>,
    skipped: SmallVec<[(usize, SkipReason); 2]>,
    /// The keys whose rules are not known.
    pub(crate) unknown: Vec<KeyQuestion>,
}

/// What a rule makes of a limit for a request.
enum Ruled<'s> {
    Limit(&'s Arc<Limit>),
    Exempt,
    /// The rule of the key has to be asked for.
    Unknown,
}

impl<'s> RoutedRequest<'s, '_, '_> {
    /// Whether a route forwards this request as a CORS preflight request. Browsers send those without credentials, so they
    /// need no authentication and are exempt from limits.
    #[inline]
    pub(crate) fn is_exempt_preflight(&self, route: usize) -> bool {
        self.snapshot.config.routes[route].matches.preflight
            && preflight(&self.parts.method, &self.parts.headers).is_some()
    }

    /// The key under a limit that a log says, if it is of this limit, or else that of the request.
    #[cold]
    fn key_of_log(
        &self,
        limit: &Limit,
        subject: &Subject<'_>,
        (of, key): &(String, String),
        whole: Option<&mut KeyText>,
    ) -> Option<Fingerprint> {
        let (spec, secret) = (&limit.config.key, &self.snapshot.secret);
        let said = match *of == limit.config.name {
            true => keys::from_text(spec, key, subject.ipv6_prefix, secret).into_iter().next(),
            false => None,
        };
        match said {
            Some((fingerprint, text)) => {
                whole.into_iter().for_each(|whole| whole.extend_from_slice(&text));
                Some(fingerprint)
            }
            None => keys::fingerprint(spec, subject, secret, whole),
        }
    }

    /// The parts of the request that keys are made of.
    #[inline(always)]
    fn subject<'a>(&'a self, identity: &'a Identity<'_>) -> Subject<'a> {
        let config = &self.snapshot.config;
        Subject {
            client: self.client,
            ipv6_prefix: config.client_ip.ipv6_prefix,
            api_key: &config.api_key,
            known_key: identity.key.is_some(),
            consumer: identity.consumer(),
            host: self.host,
            method: &self.parts.method,
            path: self.path,
            folded: !config.routes[self.route_index].matches.exact_spelling,
            query: self.parts.target.query(),
            headers: &self.parts.headers,
            route: &self.snapshot.routes[self.route_index].name,
            params: self.params,
            token: identity.token.as_deref(),
            certified: self.tls.and_then(|tls| tls.client.as_ref()),
        }
    }

    /// Selects the limits of the route, and of the routes that a lenient reading of the path matches.
    ///
    /// # Errors
    /// If a limit requires a key that the request lacks.
    #[inline(always)]
    pub(crate) fn select(
        &self,
        selection: &mut LimitSelection<'s>,
        identity: &Identity<'s>,
        scope: Scope,
    ) -> Result<(), EarlyReject> {
        let subject = self.subject(identity);
        // For the limits of both routes, the path is the one that the earlier route matches.
        for lax in self.lax_matches {
            let subject = Subject {
                path: &lax.path,
                params: &lax.params,
                folded: true,
                route: &self.snapshot.routes[lax.route].name,
                ..subject.clone()
            };
            selection.add_route(self, identity, lax.route, &subject, scope)?;
        }
        selection.add_route(self, identity, self.route_index, &subject, scope)
    }

    /// The matched request. Always inlined, so that the large result is built in place.
    #[inline(always)]
    pub(crate) fn matched(&self, identity: Identity<'s>, selection: LimitSelection<'s>) -> Matched<'s> {
        let route = &self.snapshot.routes[self.route_index];
        let affinity =
            self.snapshot.affinity(route).and_then(|key| keys::affinity(key, &self.subject(&identity)));
        let normal_path = match self.path {
            Cow::Borrowed(_) => None,
            Cow::Owned(path) => Some(path.clone()),
        };
        let LimitSelection { selected, skipped, .. } = selection;
        let (route_index, client) = (self.route_index, self.client);
        Matched { route, route_index, client, identity, normal_path, affinity, selected, skipped }
    }
}

impl<'s> LimitSelection<'s> {
    /// Adds the limits of one route, except those that are selected already.
    #[inline]
    fn add_route(
        &mut self,
        request: &RoutedRequest<'s, '_, '_>,
        identity: &Identity<'s>,
        route_index: usize,
        subject: &Subject<'_>,
        scope: Scope,
    ) -> Result<(), EarlyReject> {
        let RoutedRequest { snapshot, parts, now, .. } = *request;
        let free = request.is_exempt_preflight(route_index);
        let plan = identity.plan();
        let lists = &snapshot.config.resources.lists;
        for limit_of_route in &snapshot.routes[route_index].limits {
            let index = limit_of_route.index;
            let identity_independent = limit_of_route.identity_independent;
            if scope == Scope::IdentityIndependent && !identity_independent {
                continue;
            }
            if self.selected.iter().any(|selected| selected.index == index) {
                continue; // by the earlier route
            }
            let limit = limit_of_route.limit.for_plan(plan);
            let mut skip = |reason| self.skipped.push((index, reason));
            if limit.config.when.as_ref().is_some_and(|when| !is_covered(when, parts)) {
                skip(SkipReason::NotApplicable);
                continue;
            }
            if free || is_exempt(&limit.config.exempt, lists, subject.client, identity, plan) {
                skip(SkipReason::Exempt);
                continue;
            }
            let mut text = KeyText::new();
            let whole = limit.config.whole_key.then_some(&mut text);
            let key = match request.logged_key {
                None => keys::fingerprint(&limit.config.key, subject, &snapshot.secret, whole),
                Some(logged) => request.key_of_log(limit, subject, logged, whole),
            };
            let key = match (key, limit.config.on_missing) {
                (Some(key), _) if limit.exempt.contains(&key) => {
                    skip(SkipReason::Exempt);
                    continue;
                }
                (Some(key), _) if !limit.only.is_empty() && !limit.only.contains(&key) => {
                    skip(SkipReason::NotApplicable);
                    continue;
                }
                (Some(key), _) => key,
                (None, _) if !limit.only.is_empty() => {
                    skip(SkipReason::NotApplicable);
                    continue;
                }
                // The key may appear with authentication. The entry that requests without a key share is only for those
                // that are authenticated, or need not be.
                (None, _) if scope != Scope::All && !identity_independent => continue,
                (None, OnMissing::Deny) if scope != Scope::All => continue,
                (None, OnMissing::Shared) => {
                    text.clear(); // the entry of requests without a key has no text
                    limit.missing
                }
                (None, OnMissing::Skip) => {
                    skip(SkipReason::NoKey);
                    continue;
                }
                (None, OnMissing::Deny) if !limit.enforces() => {
                    skip(SkipReason::WouldDeny);
                    continue;
                }
                (None, OnMissing::Deny) => {
                    return Err(EarlyReject::KeyMissing {
                        route: route_index,
                        limit: limit.config.name.clone(),
                        of_user: keys::lacks_user(&limit.config.key, subject),
                    });
                }
            };
            let is_missing = key == limit.missing;
            let limit = match &snapshot.rules {
                Some(rules) if rules.limits[index].is_active() && !is_missing => {
                    match self.rule(rules, request, (index, limit, key), subject, identity) {
                        Ruled::Limit(limit) => limit,
                        Ruled::Exempt => {
                            self.skipped.push((index, SkipReason::Exempt));
                            continue;
                        }
                        // Whether it refuses is not known.
                        Ruled::Unknown if scope == Scope::IdentityIndependent => continue,
                        Ruled::Unknown => limit,
                    }
                }
                _ if limit.config.identity_rate.is_some() && !is_missing => {
                    with_identity_rate(limit, identity, None).unwrap_or(limit)
                }
                _ => limit,
            };
            let (cost, base) = cost(&limit.config.cost, limit_of_route.cost, parts, identity);
            let candidate = limit_of_route.limit.candidate.as_ref();
            if let Some(candidate) = candidate.filter(|_| Arc::ptr_eq(limit, &limit_of_route.limit)) {
                let ask = Ask { text: text.clone(), base, ..Ask::new(&candidate.counted, key, cost, now) };
                self.selected.push(SelectedLimit {
                    index,
                    limit: candidate,
                    candidate: true,
                    ask,
                    fair: None,
                });
            }
            let fair = limit_of_route.limit.fair.as_ref();
            let fair = fair.map(|fair| fair_ask(limit, fair, subject, &snapshot.secret, plan));
            let ask = Ask { text, base, ..Ask::new(&limit.counted, key, cost, now) };
            self.selected.push(SelectedLimit { index, limit, candidate: false, ask, fair });
        }
        Ok(())
    }
}

impl<'s> LimitSelection<'s> {
    /// The limit as the rule of the key changes it.
    #[inline(never)]
    fn rule(
        &mut self,
        in_force: &'s RulesInForce,
        request: &RoutedRequest<'s, '_, '_>,
        (index, limit, key): (usize, &'s Arc<Limit>, Fingerprint),
        subject: &Subject<'_>,
        identity: &Identity<'_>,
    ) -> Ruled<'s> {
        let (rules, ruled) = (&in_force.rules, &in_force.limits[index]);
        let question = || {
            let mut text = KeyText::new();
            keys::fingerprint(&limit.config.key, subject, &request.snapshot.secret, Some(&mut text));
            KeyQuestion { limit: Arc::clone(ruled), key, text }
        };
        let effect = match RuleAnswer::find(request.rules, ruled, key) {
            Some(effect) => effect,
            None => match rules.known(ruled, key, request.now) {
                Known::Effect(effect) => effect,
                Known::Aging(effect) => {
                    rules.refresh(question());
                    effect
                }
                Known::Unknown => {
                    self.unknown.push(question());
                    return Ruled::Unknown;
                }
            },
        };
        let unchanged = || with_identity_rate(limit, identity, None).unwrap_or(limit);
        let Some(id) = effect else { return Ruled::Limit(unchanged()) };
        Ruled::Limit(match limit.with_effect(id, || rules.effect(id)) {
            Variant::Exempt => return Ruled::Exempt,
            Variant::Limit { limit: ruled, has_rate: true } => ruled,
            Variant::Limit { limit: ruled, .. } => {
                with_identity_rate(limit, identity, Some((id, &|| rules.effect(id)))).unwrap_or(ruled)
            }
            Variant::Unchanged => unchanged(),
        })
    }
}

/// Asks a limit for the share of the consumer that sends the request.
#[inline(never)]
fn fair_ask<'s>(
    limit: &'s Limit,
    shares: &'s Arc<FairShares>,
    subject: &Subject<'_>,
    secret: &KeySecret,
    plan: Option<&str>,
) -> Box<FairAsk<'s>> {
    let config = shares.config();
    let mut text = KeyText::new();
    let key = keys::fingerprint(&config.by, subject, secret, Some(&mut text));
    // Requests without the key have one share together, without a text.
    let key = key.unwrap_or_else(|| {
        text.clear();
        limit.missing
    });
    let consumer = Consumer { key: key.get(), weight: config.weight(plan) };
    Box::new(FairAsk { shares, consumer, text })
}

/// The limit with the rate that the identity of the sender names; `None` if it names none. `rule` is the effect of a rule
/// of the key that leaves the rate as it is.
fn with_identity_rate<'s>(
    limit: &'s Arc<Limit>,
    identity: &Identity<'_>,
    rule: Option<(EffectId, &dyn Fn() -> Effect)>,
) -> Option<&'s Arc<Limit>> {
    let of_identity = limit.config.identity_rate.as_ref()?;
    let text = identity.rate(&of_identity.source)?;
    match of_identity.read(text) {
        Some(rate) => limit.with_identity_rate(rate, rule),
        None => {
            let (name, source) = (&limit.config.name, &of_identity.source);
            tracing::debug!("limit {name}: {source} is not a rate: {text:?}");
            None
        }
    }
}

/// Whether the `when` conditions of a limit cover the request.
fn is_covered(when: &When, parts: &RequestHead) -> bool {
    let method = when.methods.is_empty() || when.methods.contains(&parts.method);
    let header = |(name, wanted): &(HeaderName, Option<HeaderValue>)| {
        let mut values = parts.headers.get_all(name);
        match wanted {
            Some(wanted) => values.any(|value| value == wanted.as_bytes()),
            None => values.next().is_some(),
        }
    };
    method && when.headers.iter().all(header)
}

/// Whether a limit exempts the client by its address, consumer or plan.
fn is_exempt(
    exempt: &Exempt,
    lists: &[Arc<AddressList>],
    client: IpAddr,
    identity: &Identity<'_>,
    plan: Option<&str>,
) -> bool {
    lists::is_exempt(exempt, lists, client)
        || identity.consumer().is_some_and(|consumer| exempt.consumers.iter().any(|name| name == consumer))
        || plan.is_some_and(|plan| exempt.plans.iter().any(|name| name.value == plan))
}
