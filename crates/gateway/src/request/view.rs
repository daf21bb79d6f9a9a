//! The configuration in force as one worker sees it.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_limiter::{Time, Usage};

use super::ending::Ending;
use super::limit_selection::{LimitSelection, SkipReason};
use super::verdict::Evaluated;
use crate::limit::{self, Decided, Decision, SelectedLimit, Store};
use crate::process_state::ProcessState;
use crate::snapshot::Snapshot;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_observe::metrics::LimitMetrics;
use sluicegate_observe::refusals::RefusalLog;
use sluicegate_observe::top::WorkerTop;
use sluicegate_route::keys::Fingerprint;
use sluicegate_upstream::Upstream;

/// A snapshot with what one worker resolved of it: the worker's counters, its upstream connections, its connection to the
/// store and its buffer of the access log.
pub struct View {
    /// What all threads share.
    pub(super) process: Arc<ProcessState>,
    /// The configuration in force.
    pub snapshot: Arc<Snapshot>,
    limits: Vec<Arc<LimitMetrics>>,
    tops: Vec<Arc<WorkerTop>>,
    upstreams: Vec<Rc<Upstream>>,
    store: Option<Rc<Store>>,
    /// Where refused requests are remembered.
    pub(super) refusals: Arc<RefusalLog>,
    /// What requests need when they end.
    pub(super) ending: Rc<Ending>,
}

impl View {
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        process: &Arc<ProcessState>,
        worker: usize,
        before: Option<&View>,
    ) -> Self {
        let metrics = &process.metrics;
        let limits = snapshot.limits.iter().map(|limit| metrics.limit(&limit.config.name, worker));
        let tops = snapshot.limits.iter().map(|limit| process.tops.of_worker(&limit.config.name, worker));
        let standing = before.map(|before| &before.upstreams[..]).unwrap_or_default();
        let standing: HashMap<&str, &Rc<Upstream>> =
            standing.iter().map(|old| (old.config().name.as_str(), old)).collect();
        let upstreams = snapshot.upstreams.iter().map(|state| {
            let name = &state.config.name;
            let old = standing.get(name.as_str()).copied();
            if let Some(same) = old.filter(|old| Arc::ptr_eq(old.state(), state)) {
                return Rc::clone(same);
            }
            let seed = process.clock.now().as_nanos() ^ worker as u64;
            Upstream::new(state, metrics.upstream(name, worker), seed, old.map(Rc::as_ref))
        });
        let ending = Ending::new(&snapshot, process, worker, before.map(|before| &*before.ending));
        let before = before.and_then(|before| before.store.as_ref());
        let store = snapshot.store.as_ref().map(|state| process.store(state, worker, before));
        if let Some(before) =
            before.filter(|before| !store.as_ref().is_some_and(|store| Rc::ptr_eq(store, before)))
        {
            before.close();
        }
        Self {
            process: Arc::clone(process),
            store,
            refusals: process.refusals.of_worker(worker, process.workers),
            ending: Rc::new(ending),
            limits: limits.collect(),
            tops: tops.collect(),
            upstreams: upstreams.collect(),
            snapshot,
        }
    }

    /// An upstream of the configuration.
    pub fn upstream(&self, index: usize) -> &Rc<Upstream> {
        &self.upstreams[index]
    }

    /// The store of shared limits, if there is one.
    pub(super) fn store(&self) -> Option<&Rc<Store>> {
        self.store.as_ref()
    }

    /// The store that decides on a request; `None` if all its limits are counted here.
    pub fn store_of(&self, selection: &LimitSelection<'_>) -> Option<&Rc<Store>> {
        self.store.as_ref().filter(|_| selection.is_shared())
    }

    /// Whether one of these limits is known to refuse, without asking them: nothing is charged.
    pub fn may_refuse(&self, selected: &[SelectedLimit<'_>], now: Time) -> bool {
        let is_shared = || selected.iter().any(|one| one.ask.limit.shared.is_some());
        match self.store.as_ref().filter(|_| is_shared()) {
            Some(store) => limit::shared::may_refuse(store, selected, now),
            None => limit::may_refuse(selected),
        }
    }

    /// The state of each enforced limit of a request. Nothing is charged.
    pub async fn usage<'m, 's>(
        &self,
        selected: &'m [SelectedLimit<'s>],
    ) -> Vec<(&'m SelectedLimit<'s>, Usage)> {
        let mut usage = Vec::new();
        for selected in selected.iter().filter(|selected| selected.limit.enforces()) {
            let ask = &selected.ask;
            let peeked = match self.store.as_ref().filter(|_| ask.limit.shared.is_some()) {
                Some(store) => store.peek(ask.limit, ask.key, &ask.text, store.timeout()).await,
                None => None,
            };
            let here = || ask.limit.usage(ask.key, ask.now);
            let banned_for = match &peeked {
                Some(peeked) => peeked.banned_for,
                None => ask.limit.banned_for(ask.key, ask.now),
            };
            let standing = peeked.map(|peeked| peeked.usage).or_else(here);
            let standing = standing.unwrap_or_else(|| ask.limit.fresh(ask.now));
            usage.push((selected, banned_for.map_or(standing, |left| limit::while_banned(standing, left))));
        }
        usage
    }

    /// Counts the verdicts of a request in the metrics.
    pub fn observe(&self, evaluated: Evaluated<'_, '_>) {
        self.observe_limits(evaluated.decided());
        if evaluated.decision().unavailable {
            return;
        }
        for (index, reason) in evaluated.skipped {
            let outcome = match reason {
                SkipReason::Exempt => LimitOutcome::Exempt,
                SkipReason::NoKey => LimitOutcome::Skipped,
                SkipReason::WouldDeny => LimitOutcome::ShadowRefused,
                SkipReason::NotApplicable => continue, // the limit does not cover the request
            };
            self.limits[*index].count(outcome);
        }
    }

    /// Counts the verdicts of limits in the metrics.
    #[inline(always)]
    pub(super) fn observe_limits(&self, decided: Decided<'_, '_>) {
        let selected = decided.selected;
        let Decision { verdicts, admitted, fallen_back, unavailable, .. } = decided.decision;
        if *fallen_back {
            for selected in selected.iter().filter(|one| one.limit.config.shared && !one.candidate) {
                self.limits[selected.index].fell_back(selected.limit.config.on_store_failure);
            }
        }
        if *unavailable {
            return; // there are no verdicts
        }
        debug_assert_eq!(verdicts.len(), selected.len(), "each limit has a verdict");
        for one in decided.iter() {
            let SelectedLimit { index, limit, candidate, ask, fair } = one.selected;
            let metrics = &self.limits[*index];
            if !candidate {
                // A limit with `fair` has one key: whoever takes from it is counted.
                let (key, text) = match fair {
                    Some(fair) => (Fingerprint::from_hash(fair.consumer.key), &fair.text),
                    None => (ask.key, &ask.text),
                };
                self.tops[*index].count(key, text, one.verdict.answer.is_err());
            }
            if let Ok(delay) = one.verdict.answer {
                // Of a candidate, the limit itself is counted. If another limit refused the request, nothing was taken.
                if *candidate || !admitted {
                    continue;
                }
                if limit.enforces() {
                    metrics.delay(delay);
                }
                let warned = limit.warned.as_ref();
                if warned.is_some_and(|warned| warned.crosses(ask.key, one.verdict.usage)) {
                    metrics.warned();
                }
            }
            metrics.count(one.outcome());
        }
    }

    /// Counts what a limit did with a request.
    pub(super) fn count_outcome(&self, limit: usize, outcome: LimitOutcome) {
        self.limits[limit].count(outcome);
    }

    /// Hands the buffered lines of the access log to the thread that writes them.
    pub fn flush_access_log(&self) {
        if let Some(log) = &self.ending.access_log {
            log.flush();
        }
    }

    /// Closes idle connections to upstreams that are old, broken or no longer needed. `now` is in the worker's
    /// milliseconds.
    pub fn reap_upstream_connections(&self, now: u64) {
        for upstream in &self.upstreams {
            upstream.reap(now);
        }
    }
}
