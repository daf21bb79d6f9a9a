//! Reports of requests that were admitted without the store.

use std::rc::Rc;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use sluicegate_counters::{Ask, Hold, Holds};
use sluicegate_limiter::Quota;

use super::connection::Connection;
use super::item::is_stricter;
use super::key_name::{StoreKey, key_prefix};
use super::lease::Lease;
use super::protocol;
use super::scripts::{SCRIPTS, server_error_as_err};
use super::store::Store;
use super::unreported::Report;

/// The number of keys in calls that are in flight at once.
const IN_FLIGHT: usize = 4096;

impl Store {
    /// Records a request that was admitted without the store, for a later report.
    pub fn report_later(self: &Rc<Self>, ask: &Ask<'_>, holds: &mut Holds) {
        let key = StoreKey::of(ask);
        if ask.limit.quota.is_concurrency() {
            // The place here is held already; this is the one in the store, once it is back.
            let lease = Lease::new(Rc::clone(self), key, ask.cost, false);
            holds.push(Hold::places_to_report(ask.limit, ask.key, Box::new(lease)));
        } else {
            self.state.unreported.add(&key, ask.cost);
            self.report_soon(ask);
        }
    }

    /// Reports to a store that was only slow, before anything else is sent to it.
    fn report_soon(self: &Rc<Self>, ask: &Ask<'_>) {
        let Some(connection) = self.connection_of(ask).filter(|connection| connection.is_up()) else {
            return;
        };
        let Some(reporting) = connection.begin_report() else { return };
        let store = Rc::clone(self);
        crate::store::spawn_local(async move {
            let _reporting = reporting;
            tokio::task::yield_now().await; // requests of about the same time share a report
            // Requests that are admitted during a report are in the next one.
            while let Ok(channel) = connection.channel()
                && store.report(&connection, &channel, |_| true).await.is_some_and(|keys| keys > 0)
            {
            }
        });
    }

    /// Reports to a server what this gateway admitted without the store, for the keys that `wanted` selects. The part that
    /// has drained since is not reported. Returns the number of keys if the server has acknowledged all.
    pub(super) async fn report(
        &self,
        connection: &Rc<Connection>,
        channel: &MultiplexedConnection,
        wanted: impl Fn(&StoreKey) -> bool,
    ) -> Option<usize> {
        let now = connection.clock.earliest(self.clock.now());
        let gateways = u64::from(self.state.gateways());
        let reports = self.state.unreported.reports(
            |key| wanted(key) && self.holds_tag(connection, key.tag),
            // The table counts each request once for every gateway; only this gateway's part is reported.
            |key| key.limit.counters.owed(key.key, now).div_ceil(gateways),
        );
        let mut all = true;
        for many in reports.chunks(IN_FLIGHT) {
            let batches = many.chunks(self.batch());
            let calls = batches.map(|batch| self.report_batch(connection, batch, channel.clone()));
            all &= join_all(calls).await.into_iter().all(|acknowledged| acknowledged);
        }
        all.then_some(reports.len())
    }

    /// Sends one call with reports; returns whether the server has acknowledged it. Otherwise the same reports are sent
    /// again later, because it is not known whether they were executed.
    async fn report_batch(
        &self,
        connection: &Rc<Connection>,
        batch: &[Report],
        mut channel: MultiplexedConnection,
    ) -> bool {
        // The server remembers each report by a key of its own, in the slot of the reported key.
        let names = batch.iter().map(|report| report.key.name());
        let report_name = |Report { key, id, .. }: &Report| key.tag.report(key_prefix(&key.limit), id);
        let marks = batch.iter().map(report_name);
        let names: Vec<Vec<u8>> = names.chain(marks).collect();
        let mut call = SCRIPTS.report.call(names.iter().map(Vec::as_slice));
        let quota = |report: &Report| report.key.limit.counters.remote.quota();
        let quotas: Vec<Quota> = batch.iter().map(quota).collect();
        for (report, quota) in batch.iter().zip(&quotas) {
            let argument = protocol::spend_argument(quota, report.amount);
            call.arg(&*protocol::at(argument, quota, || connection.clock.earliest(self.clock.now())));
        }
        let sent = self.clock.now();
        let call = connection.in_script_form(call);
        let answer =
            tokio::time::timeout(self.background_timeout().into(), channel.send_packed_command(&call)).await;
        let reply = match answer.map(server_error_as_err) {
            Ok(Ok(value)) => protocol::StatesReply::read(&value, &quotas.iter().collect::<Vec<_>>()),
            _ => return false,
        };
        let Ok(reply) =
            reply.inspect_err(|malformed| connection.malformed(malformed, sent, self.clock.now()))
        else {
            return false;
        };
        connection.note_reply(self.clock.now());
        let latest = connection.clock.is_latest(reply.now);
        for (report, state) in batch.iter().zip(&reply.keys) {
            let StoreKey { limit, key, .. } = &report.key;
            if !self.state.unreported.acknowledge(report) {
                continue;
            }
            if latest || is_stricter(limit, *key, state, reply.now) {
                limit.relearn(*key, state, reply.now);
            } else {
                limit.counters.pardon(*key); // what is known may be later, or from the time without the store
            }
        }
        true
    }
}
