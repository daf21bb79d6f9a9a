//! 4: which limits of a route a request is under, and what each is asked.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use sluicegate_limiter::Time;
use smallvec::SmallVec;

use crate::auth::Identity;
use crate::config::{Exempt, ListConfig, OnMissing, When};
use crate::keys::{self, KeyText, Subject};
use crate::limit::Ask;
use crate::request::cost::cost;
use crate::request::early_reject::Unjudged;
use crate::request::verdict::{AskedLimit, Found, Spared};
use crate::route::{Near, preflight};
use crate::server::tls::TlsSession;
use crate::snapshot::Snapshot;
use sluicegate_wire::RequestHead;

/// A request that has come to its route.
pub(crate) struct Arrival<'s, 'r, 'n> {
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) tls: Option<&'r TlsSession>,
    pub(crate) parts: &'r RequestHead,
    pub(crate) now: Time,
    /// The route's index.
    pub(crate) route_index: usize,
    /// The routes that it nearly has.
    pub(crate) near: &'r [Near<'n>],
    pub(crate) client: IpAddr,
    pub(crate) host: &'r str,
    /// The path in normal form.
    pub(crate) path: &'r Cow<'r, str>,
    pub(crate) params: &'r [(&'r str, &'r str)],
}

/// Which limits of a route are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All: the request has proved who sent it, as far as it has to.
    All,
    /// Those that have a key without a proof.
    WithoutProof,
    /// Those that are asked the same whoever sent the request.
    Open,
}

/// What the limits of a request are asked.
#[derive(Default)]
pub(crate) struct Asking<'s> {
    asked: SmallVec<[AskedLimit<'s>; 2]>,
    pub(crate) asks: SmallVec<[Ask<'s>; 2]>,
    spared: SmallVec<[(usize, Spared); 2]>,
}

impl<'s> Arrival<'s, '_, '_> {
    /// Whether a route lets such requests in without credentials: a browser sends none with its question whether it may
    /// ask, so it can have none.
    #[inline]
    pub(crate) fn goes_free(&self, route: usize) -> bool {
        self.snapshot.config.routes[route].matches.preflight
            && preflight(&self.parts.method, &self.parts.headers).is_some()
    }

    /// The request as keys see it.
    #[inline(always)]
    fn subject<'a>(&'a self, identity: &'a Identity<'_>) -> Subject<'a> {
        let config = &self.snapshot.config;
        Subject {
            client: self.client,
            ipv6_prefix: config.client_ip.ipv6_prefix,
            api_key: &config.api_key,
            consumer: identity.consumer.map(|consumer| consumer.name),
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

    /// What the limits in `scope` are asked.
    ///
    /// # Errors
    /// When a limit wants a key that the request lacks.
    #[inline(always)]
    pub(crate) fn ask(
        &self,
        asking: &mut Asking<'s>,
        identity: &Identity<'s>,
        scope: Scope,
    ) -> Result<(), Unjudged> {
        let subject = self.subject(identity);
        // What nearly is another path is that path to the limits of both routes.
        for near in self.near {
            let subject = Subject {
                path: &near.path,
                params: &near.params,
                folded: true,
                route: &self.snapshot.routes[near.route].name,
                ..subject.clone()
            };
            asking.ask(self, identity, near.route, &subject, scope)?;
        }
        asking.ask(self, identity, self.route_index, &subject, scope)
    }

    /// What was found out about the request. Inlined where every request comes by, so that it is built where it stays.
    #[inline(always)]
    pub(crate) fn found(&self, identity: Identity<'s>, asking: Asking<'s>) -> Found<'s> {
        let route = &self.snapshot.routes[self.route_index];
        let affinity =
            self.snapshot.affinity(route).and_then(|key| keys::affinity(key, &self.subject(&identity)));
        let normal_path = match self.path {
            Cow::Borrowed(_) => None,
            Cow::Owned(path) => Some(path.clone()),
        };
        let Asking { asks, asked, spared } = asking;
        let (route_index, client) = (self.route_index, self.client);
        Found { route, route_index, client, identity, normal_path, affinity, asked, asks, spared }
    }
}

impl<'s> Asking<'s> {
    /// Asks the limits of one route, but for those that are asked already.
    #[inline]
    fn ask(
        &mut self,
        arrival: &Arrival<'s, '_, '_>,
        identity: &Identity<'s>,
        route_index: usize,
        subject: &Subject<'_>,
        scope: Scope,
    ) -> Result<(), Unjudged> {
        let Arrival { snapshot, parts, now, .. } = *arrival;
        let free = arrival.goes_free(route_index);
        let plan = identity.plan();
        let lists = &snapshot.config.lists;
        for limit_of_route in &snapshot.routes[route_index].limits {
            let index = limit_of_route.index;
            let open = limit_of_route.open;
            if scope == Scope::Open && !open {
                continue;
            }
            if self.asked.iter().any(|asked| asked.index == index) {
                continue; // for the route that it is nearer to
            }
            let limit = limit_of_route.limit.for_plan(plan);
            let mut spare = |why| self.spared.push((index, why));
            if limit.config.when.as_ref().is_some_and(|when| !concerns(when, parts)) {
                spare(Spared::Elsewhere);
                continue;
            }
            if free || is_exempt(&limit.config.exempt, lists, subject.client, identity, plan) {
                spare(Spared::Exempt);
                continue;
            }
            let mut text = KeyText::new();
            let whole = limit.config.whole_key.then_some(&mut text);
            let key = keys::fingerprint(&limit.config.key, subject, &snapshot.secret, whole);
            let key = match (key, limit.config.on_missing) {
                (Some(key), _) if limit.exempt.contains(&key) => {
                    spare(Spared::Exempt);
                    continue;
                }
                (Some(key), _) if !limit.only.is_empty() && !limit.only.contains(&key) => {
                    spare(Spared::Elsewhere);
                    continue;
                }
                (Some(key), _) => key,
                (None, _) if !limit.only.is_empty() => {
                    spare(Spared::Elsewhere);
                    continue;
                }
                // Nothing says whose request it is. What all share that have no key is not for it: they have proved that
                // they may.
                (None, _) if scope != Scope::All && !open => continue,
                (None, OnMissing::Deny) if scope != Scope::All => continue,
                (None, OnMissing::Shared) => {
                    text.clear(); // no key is written with nothing
                    limit.missing
                }
                (None, OnMissing::Skip) => {
                    spare(Spared::Skipped);
                    continue;
                }
                (None, OnMissing::Deny) => {
                    return Err(Unjudged::KeyMissing {
                        route: route_index,
                        limit: limit.config.name.clone(),
                        of_user: keys::lacks_user(&limit.config.key, subject),
                    });
                }
            };
            let (cost, base) = cost(&limit.config.cost, limit_of_route.cost, parts);
            let tried = limit_of_route.limit.candidate.as_ref();
            if let Some(tried) = tried.filter(|_| Arc::ptr_eq(limit, &limit_of_route.limit)) {
                self.asks.push(Ask { text: text.clone(), base, ..Ask::new(&tried.counted, key, cost, now) });
                self.asked.push(AskedLimit { index, limit: tried, candidate: true });
            }
            self.asks.push(Ask { text, base, ..Ask::new(&limit.counted, key, cost, now) });
            self.asked.push(AskedLimit { index, limit, candidate: false });
        }
        Ok(())
    }
}

/// Whether a limit is about such requests, as far as the key does not say.
fn concerns(when: &When, parts: &RequestHead) -> bool {
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

/// Whether a limit leaves a client alone, whatever its key.
fn is_exempt(
    exempt: &Exempt,
    lists: &[ListConfig],
    client: IpAddr,
    identity: &Identity<'_>,
    plan: Option<&str>,
) -> bool {
    exempt.covers(lists, client)
        || identity.consumer.is_some_and(|consumer| exempt.consumers.iter().any(|name| name == consumer.name))
        || plan.is_some_and(|plan| exempt.plans.iter().any(|name| name == plan))
}
