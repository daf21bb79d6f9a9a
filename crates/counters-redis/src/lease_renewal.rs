//! The leases of this worker: freed when requests end, renewed while they last, and stated again on a new connection.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::Receipt;

use super::connection::{Connection, LATE};
use super::lease::{Places, by_key};
use super::protocol;
use super::reconnect::moves;
use super::scripts::{SCRIPTS, server_error_as_err};
use super::store::Store;

/// The length of a lease, and the interval of renewals.
pub(super) const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
/// Calls that are under way at once.
const AT_ONCE: usize = 256;
/// Keys of one call, where they need not share a slot.
const BATCH: usize = 64;

impl Store {
    /// Hands places that are free to the connections over which the servers are told.
    pub(super) async fn dispatch_freed(self: Rc<Self>) {
        loop {
            self.leases.some_freed.notified().await;
            tokio::task::yield_now().await; // what is freed at about the same time goes together
            for freed in self.leases.take_freed() {
                // On a connection that is down nothing is freed: the next one states anew what is held.
                let connection =
                    self.servers.of(self.slot(freed.key.tag)).filter(|connection| connection.is_up());
                if let Some(connection) = connection {
                    connection.freed.borrow_mut().push(freed);
                    connection.some_freed.notify_one();
                }
            }
        }
    }

    /// Frees and renews leases over one connection. Besides the calls that take leases nothing else sends commands about
    /// them, so the server sees them in order. Servers do not wait for each other.
    pub(super) async fn maintain_leases(self: &Rc<Self>, connection: &Rc<Connection>) {
        let mut renew = tokio::time::interval(RENEW);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = connection.some_freed.notified() => {
                    let freed = by_key(connection.freed.take());
                    if connection.is_up() {
                        tokio::select! {
                            () = connection.broken() => {}
                            () = self.free(connection, &freed) => {}
                        }
                    }
                }
                _ = renew.tick() => {
                    if connection.is_up() {
                        tokio::select! {
                            () = connection.broken() => {}
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
        for some in batches.chunks(AT_ONCE) {
            let told = some.iter().map(|batch| self.free_batch(connection, batch, holder));
            let all = join_all(told).await.into_iter().all(|told| told);
            if connection.epoch() != epoch {
                return; // there is another connection, and it has stated anew what is held
            }
            if !all {
                return connection.shut("it was not told which places are free".to_owned());
            }
        }
    }

    /// Tells which places of one call are free. Whether the server that holds them was told, or will be when it reads.
    async fn free_batch(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        batch: &[Places],
        holder: [u8; 8],
    ) -> bool {
        let Some(first) = batch.first() else { return true };
        let question = |_: &Connection| {
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
        match self.send_background(connection, self.slot(first.key.tag), question).await {
            Some(sent) => sent.is_ok(),
            // If the slot has moved to another server, that server is not told: the places expire there.
            None => !self.holds_tag(connection, first.key.tag),
        }
    }

    /// Gives the places that are held more time. It never takes any: requests that begin and end meanwhile count by
    /// themselves.
    async fn renew_leases(&self, connection: &Rc<Connection>) {
        let held = self.leases.held(false, |tag| self.holds_tag(connection, tag));
        let Ok(channel) = connection.ready() else { return };
        let saying = self.send_leases(&held, (connection, channel), (connection.holder(), None));
        match tokio::time::timeout(RENEW, saying).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if moves(&error) => self.state.topology.outdate("a slot of a lease has moved"),
            Ok(Err(error)) if unsaid(&error) => {}
            Ok(Err(error)) => connection.shut(error.to_string()),
            Err(_) => connection.shut(LATE.to_owned()),
        }
    }

    /// States on a new connection which leases are held: it is not known which of the last commands on the old one arrived.
    /// The commands are sent when this returns; the future waits for the answers.
    pub(super) fn restate_leases(
        &self,
        connection: &Rc<Connection>,
        channel: MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<()>> {
        let old = connection.holder();
        connection.new_holder();
        // What became free before is not among it, and would be freed twice.
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
                    call.arg(if old.is_some() { held.places } else { 0 });
                }
                let call = connection.spelled(call);
                let mut channel = channel.clone();
                async move { server_error_as_err(channel.send_packed_command(&call).await) }
            })
            .collect();
        async move { join_all(calls).await.into_iter().collect::<RedisResult<Vec<Value>>>().map(|_| ()) }
    }

    /// Keys that one call may be about.
    pub(super) fn batch(&self) -> usize {
        if self.servers.only().is_some() { BATCH } else { 1 } // keys of one call share a slot
    }
}

/// Whether an error says that nothing was done and that the same may be said again.
fn unsaid(error: &RedisError) -> bool {
    use ServerErrorKind::{ClusterDown, NoScript};
    [NoScript, ClusterDown].iter().any(|kind| error.kind() == ErrorKind::Server(*kind))
}
