//! Tokens that were paid for in advance: which keys have some, and the calls that ask for more and give back what was not spent.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_counters::{Ask, KeyState};
use sluicegate_leases::{Grant, Lease, Return, Taken, Terms, tokens_of_worker};
use sluicegate_limiter::{Span, Time, Usage};
use smallvec::{SmallVec, smallvec};

use super::item::{Item, Items, NOBODY};
use super::key_name::StoreKey;
use super::store::Store;
use super::token_leases::{KeyLease, Known};

/// How often tokens are withdrawn whose time is over, and for how long a key without requests is remembered.
const SWEEP: Duration = Duration::from_millis(100);
const UNUSED: Span = Span::SECOND;
impl Store {
    /// Takes tokens that were paid for; `None` if there are not enough. The caller gives them back with [`Self::untake`] if
    /// the request is refused after all.
    #[inline]
    pub fn take(self: &Rc<Self>, ask: &Ask<'_>, now: Time) -> Option<Taken> {
        let leases = self.worker_leases.borrow();
        let Known { lease: known, own } = leases.known.get(&(ask.limit.counters.id, ask.key))?;
        if known.is_gone.load(Ordering::Acquire) || !known.is_of(ask.limit) {
            return None;
        }
        let more = || ask.limit.leased().map_or(0, |terms| self.of_worker(terms));
        let taken = own.take(&known.lease, now, ask.cost, more)?;
        if taken.ask {
            self.ask_for_more(known, now);
        }
        Some(taken)
    }

    /// Gives back what [`Self::take`] has taken.
    pub fn untake(&self, ask: &Ask<'_>, taken: &Taken) {
        if let Some(known) = self.worker_leases.borrow().known.get(&(ask.limit.counters.id, ask.key)) {
            known.own.give_back(&known.lease.lease, taken);
        }
    }

    /// There was no token for a request: asks for some if such requests come often.
    pub fn missed(self: &Rc<Self>, ask: &Ask<'_>, now: Time) {
        let id = (ask.limit.counters.id, ask.key);
        let mut leases = self.worker_leases.borrow_mut();
        let is_current =
            |known: &&Arc<KeyLease>| !known.is_gone.load(Ordering::Acquire) && known.is_of(ask.limit);
        let known = match leases.known.get(&id).map(|known| &known.lease).filter(is_current).cloned() {
            Some(known) => known,
            None if leases.saw(id) => {
                let Some((known, replaced)) = self.state.leases.get_or_add(ask, now) else { return };
                for old in leases.add(id, &known, now).into_iter().chain(replaced) {
                    self.give_back_tokens(&old, old.lease.reclaim_all(now));
                }
                known
            }
            None => return,
        };
        drop(leases);
        known.lease.miss(ask.cost);
        self.ask_for_more(&known, now);
    }

    /// For how long a key is refused without a call, because the store had nothing left for it a moment ago and many requests
    /// come.
    pub fn paused(&self, ask: &Ask<'_>, now: Time) -> Option<Span> {
        let leases = self.worker_leases.borrow();
        leases.known.get(&(ask.limit.counters.id, ask.key))?.lease.lease.paused(now)
    }

    /// The store has refused a request of the key; it admits none for `at_most`, or less if that is unknown.
    pub fn pause(&self, ask: &Ask<'_>, now: Time, at_most: Span) {
        if let Some(known) = self.worker_leases.borrow().known.get(&(ask.limit.counters.id, ask.key)) {
            known.lease.lease.pause(now, at_most);
        }
    }

    /// The threads of this gateway that may take out tokens.
    fn workers(&self) -> u32 {
        self.state.stores.load(Ordering::Relaxed).saturating_sub(1) // one of them serves nobody
    }

    /// How many tokens of a key a worker may take out.
    fn of_worker(&self, terms: &Terms) -> u64 {
        tokens_of_worker(terms.share(self.state.gateways()), self.workers())
    }

    fn ask_for_more(self: &Rc<Self>, known: &Arc<KeyLease>, now: Time) {
        let StoreKey { limit, key, .. } = &known.key;
        if !self.state.membership.may_lease(now) {
            return;
        }
        let Some((terms, connection)) = limit.leased().zip(self.connection_of_tag(known.key.tag)) else {
            return;
        };
        let Some(Usage { remaining, .. }) = limit.usage(*key, connection.clock.earliest(now)) else {
            return; // the store has not told yet
        };
        let of_workers = self.of_worker(terms) * u64::from(self.workers());
        if let Some(tokens) = known.lease.next(now, terms, self.state.gateways(), (remaining, of_workers)) {
            crate::store::spawn_local(Rc::clone(self).ask_for_tokens(Arc::clone(known), tokens));
        }
    }

    /// Charges tokens in the store.
    async fn ask_for_tokens(self: Rc<Self>, known: Arc<KeyLease>, tokens: u64) {
        /// The lease may be asked for again, whatever ends the call.
        struct Asking<'a>(Option<&'a Lease>);
        impl Drop for Asking<'_> {
            fn drop(&mut self) {
                self.0.iter().for_each(|lease| lease.abandon());
            }
        }
        let mut asking = Asking(Some(&known.lease));
        let key = known.key.clone();
        let items: Items = smallvec![Item { key, cost: tokens, base: tokens, for_now: false, many: true }];
        let sent = self.clock.now();
        let only: SmallVec<[usize; 2]> = smallvec![0];
        let Some(outcome) = self.call(&items, only, 1, sent.plus(self.timeout())).await else { return };
        let received = self.clock.now();
        let limit = &known.key.limit;
        let Some((charge, (left, terms))) = outcome
            .charges
            .first()
            .zip(outcome.left.first().zip(limit.leased()))
            .filter(|_| outcome.admitted() == 1)
        else {
            known.lease.pause(received, Span::MAX);
            return;
        };
        let Usage { remaining, reset, .. } = left.usage(outcome.now);
        let window = limit.quota.window_left(outcome.now);
        let before = remaining.saturating_add(tokens);
        let grant =
            Grant { tokens, sent, received, window, before, remaining, reset, receipt: charge.receipt };
        asking.0 = None;
        let over = known.lease.granted(&grant, terms);
        let counts = &limit.counters.leases;
        counts.granted.fetch_add(tokens, Ordering::Relaxed);
        counts.over.fetch_add(over, Ordering::Relaxed);
        if known.is_gone.load(Ordering::Acquire) {
            self.give_back_tokens(&known, known.lease.reclaim_all(received)); // it was replaced during the call
        }
    }

    /// Withdraws tokens whose time is over, and gives them back. One thread of the gateway does this.
    pub(super) async fn sweep_leases(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = self.clock.now();
            for known in self.state.leases.all() {
                self.give_back_tokens(&known, known.lease.reclaim(now));
                if known.lease.is_unused(now, UNUSED) {
                    self.state.leases.remove(&known);
                }
            }
        }
    }

    /// Gives back all tokens, because the gateway ends.
    pub(super) fn end_leases(self: &Rc<Self>) {
        for known in self.state.leases.all() {
            self.give_back_tokens(&known, known.lease.reclaim_all(self.clock.now()));
            self.state.leases.remove(&known);
        }
    }

    fn give_back_tokens(self: &Rc<Self>, known: &KeyLease, unspent: Vec<Return>) {
        for Return { tokens, receipt } in unspent {
            known.key.limit.counters.leases.returned.fetch_add(tokens, Ordering::Relaxed);
            self.refund(&known.key, tokens, (receipt, NOBODY));
        }
    }
}
