//! Without the store: each limit follows its own policy, and what was spent is written back afterwards.

use std::rc::Rc;

use futures_util::future::join_all;
use redis::ErrorKind;
use redis::aio::MultiplexedConnection;
use sluicegate_limiter::Time;
use smallvec::SmallVec;

use super::Store;
use super::call::UNHURRIED;
use super::link::Link;
use super::name::Tag;
use super::places::said;
use super::scripts::SCRIPTS;
use super::state::Outstanding;
use super::wire;
use crate::config::OnStoreFailure;
use crate::key::Fingerprint;
use crate::limit::turn::Hold;
use crate::limit::{Ask, Decision, Holds, Verdict, decide_here};

/// Keys that are on their way back at once.
const AT_ONCE: usize = 4096;

/// What is known of spending that could not be written back.
enum Unwritten {
    /// The store has said that it was not.
    Certainly,
    /// There was no answer.
    Perhaps,
}

impl Store {
    /// Decides without the store: `local` limits from the last state that it told, each request counted once for
    /// every live gateway, so that all of them together stay within the limit.
    pub(super) fn fall_back(self: &Rc<Self>, asks: &mut [Ask<'_>], now: Time) -> Decision {
        let policy = |ask: &Ask<'_>| ask.limit.config.on_store_failure;
        let closed = |ask: &Ask<'_>| {
            ask.limit.config.shared && ask.limit.enforces() && policy(ask) == OnStoreFailure::Closed
        };
        if asks.iter().any(closed) {
            let verdicts = asks.iter().map(Verdict::unasked).collect();
            return Decision { verdicts, fallen_back: true, unavailable: true, ..Decision::default() };
        }
        let gateways = self.state.gateways();
        for ask in asks.iter_mut().filter(|ask| ask.limit.config.shared) {
            ask.at = self.link_of(ask).map_or(now, |link| link.clock.at_least(now));
            ask.share = gateways;
        }
        let counted = |ask: &Ask<'_>| !ask.limit.config.shared || policy(ask) == OnStoreFailure::Local;
        let here: SmallVec<[Ask<'_>; 2]> = asks.iter().filter(|ask| counted(ask)).cloned().collect();
        let mut decision = decide_here(&here, true, false);
        if decision.admitted {
            for (ask, verdict) in here.iter().zip(&decision.verdicts) {
                if ask.limit.config.shared && verdict.answer.is_ok() {
                    self.spent(ask, &mut decision.holds);
                }
            }
        }
        let mut verdicts = std::mem::take(&mut decision.verdicts).into_iter();
        let all = asks.iter().map(|ask| match counted(ask) {
            true => verdicts.next().unwrap_or_else(|| Verdict::unasked(ask)),
            false => Verdict::unasked(ask),
        });
        decision.verdicts = all.collect();
        decision.fallen_back = true;
        decision
    }

    /// Notes what was admitted, for the store to hear of later.
    fn spent(self: &Rc<Self>, ask: &Ask<'_>, holds: &mut Holds) {
        let tag = Tag::of(&ask.text);
        if ask.limit.config.quota.is_concurrency() {
            // The place here is held already; this is the one there, once the store is back.
            let lease = self.lease(ask.limit, ask.key, tag, ask.cost, false);
            holds.push(Hold::to_lease(ask.limit, ask.key, lease));
        } else {
            self.state.spent_without(ask.limit, ask.key, tag, ask.cost);
        }
    }

    /// Writes back what this gateway admitted without the store, to the server of `link`. What has come back to the
    /// keys by itself since is not charged again, and no key is charged more than it can hold.
    pub(super) async fn write_back(&self, link: &Rc<Link>, connection: &MultiplexedConnection) {
        let owed = self.state.take_outstanding(|tag| self.holds_tag(link, tag));
        let now = link.clock.at_least(self.clock.now());
        for many in owed.chunks(AT_ONCE) {
            let calls = many
                .chunks(self.batch())
                .map(|batch| self.charge_back(batch, (link, connection.clone()), now));
            for (batch, written) in many.chunks(self.batch()).zip(join_all(calls).await) {
                match written {
                    Ok(()) => {}
                    // It is not written twice: better some spending forgiven than a client charged for nothing.
                    Err(Unwritten::Perhaps) => {
                        batch.iter().for_each(|(key, owed)| _ = owed.limit.counters.pardon(*key));
                    }
                    Err(Unwritten::Certainly) => {
                        for (key, owed) in batch {
                            self.state.spent_without(&owed.limit, *key, owed.tag, owed.cost);
                        }
                    }
                }
            }
        }
    }

    /// Charges some keys for what they spent.
    async fn charge_back(
        &self,
        batch: &[(Fingerprint, Outstanding)],
        (link, mut connection): (&Link, MultiplexedConnection),
        now: Time,
    ) -> Result<(), Unwritten> {
        let gateways = u64::from(self.state.gateways());
        let amounts: Vec<(&Fingerprint, &Outstanding, u64)> = batch
            .iter()
            .map(|(key, owed)| {
                // The table counts every request once for each gateway; this gateway's own part is written.
                let still = owed.limit.counters.owed(*key, now).div_ceil(gateways);
                (key, owed, owed.cost.min(still))
            })
            .filter(|(.., amount)| *amount > 0)
            .collect();
        if amounts.is_empty() {
            return Ok(());
        }
        let names: Vec<Vec<u8>> =
            amounts.iter().map(|(_, owed, _)| owed.tag.name(&owed.limit.names)).collect();
        let mut call = SCRIPTS.spend.call(names.iter().map(Vec::as_slice));
        for (_, owed, amount) in &amounts {
            call.arg(wire::spend_argument(&owed.limit.config.quota, *amount));
        }
        let within = std::time::Duration::from_nanos(UNHURRIED.as_nanos());
        let answer = tokio::time::timeout(within, connection.send_packed_command(&link.spelled(call))).await;
        let value = match answer.map(said) {
            Ok(Ok(value)) => value,
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
                return Err(Unwritten::Certainly);
            }
            _ => return Err(Unwritten::Perhaps),
        };
        let quotas: Vec<_> = amounts.iter().map(|(_, owed, _)| &owed.limit.config.quota).collect();
        let told = wire::Told::read(&value, &quotas).map_err(|_| Unwritten::Perhaps)?;
        for ((key, owed, _), state) in amounts.iter().zip(&told.keys) {
            owed.limit.relearn(**key, state, told.now);
        }
        Ok(())
    }
}
