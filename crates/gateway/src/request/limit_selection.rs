//! Selects the limits that apply to a request, with the key and the cost for each.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use sluicegate_fair_shares::Consumer;
use smallvec::SmallVec;

use crate::limit::{Ask, FairAsk, Limit, SelectedLimit, Variant};
use crate::request::cost::cost;
use crate::request::early_reject::EarlyReject;
use crate::request::inputs::Inputs;
use crate::rules::{Effect, EffectId, KeyQuestion, Known, RuleAnswer};
use crate::snapshot::RulesInForce;
use sluicegate_auth::lists::{self, AddressList};
use sluicegate_auth::{Identified, Identity, KnownSender};
use sluicegate_base::incoming::{Request, Routed};
use sluicegate_config::{Exempt, OnMissing, When};
use sluicegate_route::keys::{self, Fingerprint, KeySecret, KeyText};
use sluicegate_route::{LaxMatch, is_exempt_preflight};
use sluicegate_upstream::fair_shares::FairShares;
use sluicegate_wire::RequestHead;

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

/// The limits that apply to a request, with the checks to run.
#[derive(Default)]
pub struct LimitSelection<'s> {
    /// The limits.
    pub selected: SmallVec<[SelectedLimit<'s>; 2]>,
    /// The limits of the route that do not apply, by their index in the snapshot.
    pub skipped: SmallVec<[(usize, SkipReason); 2]>,
    /// The keys whose rules are not inputs.
    pub(super) unknown: Vec<KeyQuestion>,
}

/// Why a limit of the route is not evaluated for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The client, its plan or its key is exempt.
    Exempt,
    /// The request lacks the key, and the limit skips such requests.
    NoKey,
    /// The request lacks the key. If the limit were enforced, it would be answered 401.
    WouldDeny,
    /// The limit does not cover such requests.
    NotApplicable,
}

/// What a rule makes of a limit for a request.
enum Ruled<'s> {
    Limit(&'s Arc<Limit>),
    Exempt,
    /// The rule of the key has to be asked for.
    Unknown,
}

impl<'s> LimitSelection<'s> {
    /// Selects the limits of the route instead of those that are selected, and of the earlier routes that a lenient reading of the path matches.
    ///
    /// # Errors
    /// If a limit requires a key that the request lacks.
    #[inline(always)]
    pub(crate) fn select(
        &mut self,
        inputs: &Inputs<'s>,
        routed: &Routed<'_>,
        lax_matches: &[LaxMatch<'_>],
        identity: &Identity<'s>,
        scope: Scope,
    ) -> Result<(), EarlyReject> {
        self.selected.clear();
        self.skipped.clear();
        self.unknown.clear();
        // For the limits of both routes, the path is the one that the earlier route matches.
        for lax in lax_matches {
            let (path, params) = (&*lax.path, &*lax.params);
            let routed = Routed { index: lax.route, path, params, folded: true, ..*routed };
            self.add_route(inputs, Identified { routed: &routed, identity }, scope)?;
        }
        self.add_route(inputs, Identified { routed, identity }, scope)
    }

    /// Adds the limits of one route, except those that are selected already.
    #[inline]
    fn add_route(
        &mut self,
        inputs: &Inputs<'s>,
        request: Identified<'_>,
        scope: Scope,
    ) -> Result<(), EarlyReject> {
        let Inputs { snapshot, now, .. } = *inputs;
        let Identified { routed, identity } = request;
        let Request { head, peer } = routed.request;
        let free = is_exempt_preflight(routed);
        let plan = identity.plan();
        let lists = &snapshot.config.resources.lists;
        for limit_of_route in &snapshot.routes[routed.index].limits {
            let index = limit_of_route.index;
            let identity_independent = limit_of_route.identity_independent;
            // A limit with a queue is not known to refuse.
            let is_known = || identity_independent && limit_of_route.limit.config.queue.is_none();
            if scope == Scope::IdentityIndependent && !is_known() {
                continue;
            }
            if self.selected.iter().any(|selected| selected.index == index) {
                continue; // by the earlier route
            }
            let limit = limit_of_route.limit.for_plan(plan);
            let mut skip = |reason| self.skipped.push((index, reason));
            if limit.config.when.as_ref().is_some_and(|when| !is_covered(when, head)) {
                skip(SkipReason::NotApplicable);
                continue;
            }
            if free || is_exempt(&limit.config.exempt, lists, peer.client, identity, plan) {
                skip(SkipReason::Exempt);
                continue;
            }
            let mut text = KeyText::new();
            let whole = limit.config.whole_key.then_some(&mut text);
            let key = match inputs.answers.known_sender() {
                None => keys::fingerprint(&limit.config.key, request, &snapshot.secret, whole),
                Some(known) => known_key(limit, request, &snapshot.secret, known, whole),
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
                        route: routed.index,
                        limit: limit.config.name.clone(),
                        of_user: keys::lacks_user(&limit.config.key, request),
                    });
                }
            };
            let is_missing = key == limit.missing;
            let limit = match &snapshot.rules {
                Some(rules) if rules.limits[index].is_active() && !is_missing => {
                    match self.rule(rules, inputs, (index, limit, key), request) {
                        Ruled::Limit(limit) => limit,
                        Ruled::Exempt => {
                            self.skipped.push((index, SkipReason::Exempt));
                            continue;
                        }
                        // Whether it refuses is not inputs.
                        Ruled::Unknown if scope == Scope::IdentityIndependent => continue,
                        Ruled::Unknown => limit,
                    }
                }
                _ if limit.config.identity_rate.is_some() && !is_missing => {
                    with_identity_rate(limit, identity, None).unwrap_or(limit)
                }
                _ => limit,
            };
            let (cost, base) = cost(&limit.config.cost, limit_of_route.cost, head, identity);
            let candidate = limit_of_route.limit.candidate.as_ref();
            if let Some(candidate) = candidate.filter(|_| Arc::ptr_eq(limit, &limit_of_route.limit)) {
                let ask =
                    Ask::new(&candidate.counted, key, cost, now).with_base(base).with_text(text.clone());
                self.selected.push(SelectedLimit {
                    index,
                    limit: candidate,
                    candidate: true,
                    ask,
                    fair: None,
                });
            }
            let fair = limit_of_route.limit.fair.as_ref();
            let fair = fair.map(|fair| fair_ask(limit, fair, request, &snapshot.secret, plan));
            let ask = Ask::new(&limit.counted, key, cost, now).with_base(base).with_text(text);
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
        inputs: &Inputs<'s>,
        (index, limit, key): (usize, &'s Arc<Limit>, Fingerprint),
        request: Identified<'_>,
    ) -> Ruled<'s> {
        let identity = request.identity;
        let (rules, ruled) = (&in_force.rules, &in_force.limits[index]);
        let question = || {
            let mut text = KeyText::new();
            keys::fingerprint(&limit.config.key, request, &inputs.snapshot.secret, Some(&mut text));
            KeyQuestion { limit: Arc::clone(ruled), key, text }
        };
        let effect = match RuleAnswer::find(&inputs.rules, ruled, key) {
            Some(effect) => effect,
            None => match rules.known(ruled, key, inputs.now) {
                Known::Effect(effect) => effect,
                Known::Aging(effect) => {
                    rules.refresh(question());
                    effect
                }
                Known::Unknown if inputs.without_rules => return Ruled::Unknown,
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

/// The key under a limit that is known of a request without its credentials, or else that of the request.
#[cold]
fn known_key(
    limit: &Limit,
    request: Identified<'_>,
    secret: &KeySecret,
    known: &KnownSender,
    whole: Option<&mut KeyText>,
) -> Option<Fingerprint> {
    let (spec, name) = (&limit.config.key, &limit.config.name);
    let said = match known {
        KnownSender::Logged(logged) => {
            logged.key.as_ref().filter(|(of, _)| of == name).and_then(|(_, key)| {
                let ipv6_prefix = request.routed.config.client_ip.ipv6_prefix;
                keys::from_text(spec, key, ipv6_prefix, secret).into_iter().next()
            })
        }
        KnownSender::Accepted(_, keys) => match keys.iter().find(|(of, _)| of == name) {
            Some((_, text)) if text.is_empty() => return None, // it had none
            Some((_, text)) => keys::fingerprint_of_text(spec, text, secret)
                .map(|fingerprint| (fingerprint, KeyText::from_slice(text))),
            None => None,
        },
    };
    match said {
        Some((fingerprint, text)) => {
            whole.into_iter().for_each(|whole| whole.extend_from_slice(&text));
            Some(fingerprint)
        }
        None => keys::fingerprint(spec, request, secret, whole),
    }
}

/// Asks a limit for the share of the consumer that sends the request.
#[inline(never)]
fn fair_ask<'s>(
    limit: &'s Limit,
    shares: &'s Arc<FairShares>,
    request: Identified<'_>,
    secret: &KeySecret,
    plan: Option<&str>,
) -> Box<FairAsk<'s>> {
    let config = shares.config();
    let mut text = KeyText::new();
    let key = keys::fingerprint(&config.by, request, secret, Some(&mut text));
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
fn is_covered(when: &When, head: &RequestHead) -> bool {
    let method = when.methods.is_empty() || when.methods.contains(&head.method);
    let header = |(name, wanted): &(HeaderName, Option<HeaderValue>)| {
        let mut values = head.headers.get_all(name);
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
