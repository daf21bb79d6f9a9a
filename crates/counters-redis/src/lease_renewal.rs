//! The leases of this worker: they are freed when requests end, renewed until then, and stated again on a new connection.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::Receipt;

use super::connection::Connection;
use super::errors::{LATE, slot_moved};
use super::places::{Places, by_key};
use super::protocol;
use super::scripts::{SCRIPTS, server_error_as_err};
use super::store::Store;

/// The length of a lease, and the interval of renewals.
pub(super) const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
/// The number of calls that are in flight at once.
const IN_FLIGHT: usize = 256;
/// The number of keys in one call, if they need not share a slot.
const BATCH: usize = 64;

impl Store {
    /// Hands freed places to the connections of their servers.
    pub(super) async fn dispatch_freed(self: Rc<Self>) {
        loop {
            self.leases.some_freed.notified().await;
            tokio::task::yield_now().await; // places that are freed at about the same time share a call
            for freed in self.leases.take_freed() {
                // Without a connection nothing is sent: the next connection states the held places again.
                let connection =
                    self.servers.owner_of(self.slot(freed.key.tag)).filter(|connection| connection.is_up());
                if let Some(connection) = connection {
                    connection.freed.borrow_mut().push(freed);
                    connection.some_freed.notify_one();
                }
            }
        }
    }

    /// Frees and renews leases over one connection. Only this task and the calls that take leases send commands about them,
    /// so the server receives them in order. Servers do not wait for each other.
    pub(super) async fn maintain_leases(self: &Rc<Self>, connection: &Rc<Connection>) {
        let mut renew = tokio::time::interval(RENEW);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = connection.some_freed.notified() => {
                    let freed = by_key(connection.freed.take());
                    if connection.is_up() {
                        tokio::select! {
                            () = connection.closed() => {}
                            () = self.free(connection, &freed) => {}
                        }
                    }
                }
                _ = renew.tick() => {
                    if connection.is_up() {
                        tokio::select! {
                            () = connection.closed() => {}
                            () = self.renew_leases(connection) => {}
                        }
                    }
                }
            }
        }
    }

    /// Frees leases at a server, each exactly once: a second time would free another request's place.
    async fn free(self: &Rc<Self>, connection: &Rc<Connection>, freed: &[Places]) {
        let (holder, epoch) = (connection.holder(), connection.epoch());
        let batches: Vec<&[Places]> = freed.chunks(self.batch()).collect();
        for some in batches.chunks(IN_FLIGHT) {
            let calls = some.iter().map(|batch| self.free_batch(connection, batch, holder));
            let all = join_all(calls).await.into_iter().all(|executed| executed);
            if connection.epoch() != epoch {
                return; // a new connection has stated the held places
            }
            if !all {
                return connection.close("it was not told which places are free".to_owned());
            }
        }
    }

    /// Frees the places of one call. Returns whether the server that holds them has executed it.
    async fn free_batch(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        batch: &[Places],
        holder: [u8; 8],
    ) -> bool {
        let Some(first) = batch.first() else { return true };
        let command = |_: &Connection| {
            let names: Vec<Vec<u8>> = batch.iter().map(|places| places.key.name()).collect();
            let mut call = SCRIPTS.refund.call(names.iter().map(Vec::as_slice));
            call.arg(&holder);
            for places in batch {
                let quota = &places.key.limit.quota;
                let charge = quota.charged(places.places, Receipt::default());
                call.arg(protocol::refund_argument(quota, charge));
            }
            call
        };
        match self.send_background(connection, self.slot(first.key.tag), command).await {
            Some(sent) => sent.is_ok(),
            // If the slot has moved to another server, that server is not told: the places expire there.
            None => !self.holds_tag(connection, first.key.tag),
        }
    }

    /// Extends the leases of held places, and restores those that the server has lost. It takes no others: requests that begin and end
    /// meanwhile send calls of their own.
    async fn renew_leases(&self, connection: &Rc<Connection>) {
        let held = self.leases.held(false, |tag| self.holds_tag(connection, tag));
        let Ok(channel) = connection.channel() else { return };
        let renewal = self.send_leases(&held, (connection, channel), (connection.holder(), None));
        match tokio::time::timeout(RENEW, renewal).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if slot_moved(&error) => {
                self.state.topology.outdate("a slot of a lease has moved")
            }
            Ok(Err(error)) if had_no_effect(&error) => {}
            Ok(Err(error)) => connection.close(error.to_string()),
            Err(_) => connection.close(LATE.to_owned()),
        }
    }

    /// States on a new connection which leases are held, because it is not known which of the last commands on the old one
    /// were executed. The commands are sent when this returns; the future waits for the replies.
    pub(super) fn restate_leases(
        &self,
        connection: &Rc<Connection>,
        channel: MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<()>> {
        let old = connection.holder();
        connection.new_holder();
        // Places that were freed before are not stated, and would be freed twice.
        connection.freed.borrow_mut().clear();
        self.leases.forget_freed(|tag| self.holds_tag(connection, tag));
        let held = self.leases.held(true, |tag| self.holds_tag(connection, tag));
        self.send_leases(&held, (connection, channel), (connection.holder(), Some(old)))
    }

    fn send_leases(
        &self,
        held: &[Places],
        (connection, channel): (&Connection, MultiplexedConnection),
        (holder, old): ([u8; 8], Option<[u8; 8]>),
    ) -> impl Future<Output = RedisResult<()>> + use<> {
        let calls: Vec<_> = held
            .chunks(self.batch())
            .map(|held| {
                let names: Vec<Vec<u8>> = held.iter().map(|places| places.key.name()).collect();
                let mut call = SCRIPTS.renew.call(names.iter().map(Vec::as_slice));
                call.arg(&holder)
                    .arg(old.as_ref().map_or(&b""[..], |old| &old[..]))
                    .arg(LEASE.as_micros() as u64);
                for held in held {
                    call.arg(held.places);
                }
                let call = connection.in_script_form(call);
                let mut channel = channel.clone();
                async move { server_error_as_err(channel.send_packed_command(&call).await) }
            })
            .collect();
        async move { join_all(calls).await.into_iter().collect::<RedisResult<Vec<Value>>>().map(|_| ()) }
    }

    /// The number of keys in one call.
    pub(super) fn batch(&self) -> usize {
        if self.servers.single().is_some() { BATCH } else { 1 } // keys of one call share a slot
    }
}

/// Whether an error means that the command was not executed and can be repeated.
fn had_no_effect(error: &RedisError) -> bool {
    use ServerErrorKind::{ClusterDown, NoScript};
    [NoScript, ClusterDown].iter().any(|kind| error.kind() == ErrorKind::Server(*kind))
}
