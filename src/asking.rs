//! 4: which limits of a route a request is under, and what each is asked.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use sluicegate_limiter::Time;
use smallvec::SmallVec;

use crate::auth::Identity;
use crate::config::{Exempt, ListConfig, OnMissing, When};
use crate::cost::cost;
use crate::key::{KeyText, Subject};
use crate::limit::Ask;
use crate::message::RequestHead;
use crate::pipeline::{AskedLimit, Spared, Unjudged};
use crate::snapshot::Snapshot;

/// A request that is judged.
pub(crate) struct Judging<'s, 'r> {
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) parts: &'r RequestHead,
    pub(crate) now: Time,
    pub(crate) identity: &'r Identity<'s>,
}

/// What the limits of a request are asked.
#[derive(Default)]
pub(crate) struct Asking<'s> {
    pub(crate) asked: SmallVec<[AskedLimit<'s>; 2]>,
    pub(crate) asks: SmallVec<[Ask<'s>; 2]>,
    pub(crate) spared: SmallVec<[(usize, Spared); 2]>,
}

impl<'s> Asking<'s> {
    /// Asks the limits of one route, but for those that are asked already. `free` says that none of them counts.
    ///
    /// # Errors
    /// When a limit wants a key that the request lacks.
    pub(crate) fn ask(
        &mut self,
        judging: &Judging<'s, '_>,
        (route_index, free): (usize, bool),
        subject: &Subject<'_>,
    ) -> Result<(), Unjudged> {
        let Judging { snapshot, parts, now, identity } = *judging;
        let plan = identity.plan();
        let lists = &snapshot.config.lists;
        for limit_of_route in &snapshot.routes[route_index].limits {
            let index = limit_of_route.index;
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
            let key = limit.config.key.fingerprint(subject, &snapshot.secret, whole);
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
                        of_user: limit.config.key.lacks_user(subject),
                    });
                }
            };
            let (cost, base) = cost(&limit.config.cost, limit_of_route.cost, parts);
            let tried = limit_of_route.limit.candidate.as_ref();
            if let Some(tried) = tried.filter(|_| Arc::ptr_eq(limit, &limit_of_route.limit)) {
                self.asks.push(Ask { text: text.clone(), base, ..Ask::new(tried, key, cost, now) });
                self.asked.push(AskedLimit { index, limit: tried, candidate: true });
            }
            self.asks.push(Ask { text, base, ..Ask::new(limit, key, cost, now) });
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
