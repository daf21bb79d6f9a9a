//! The places of concurrency limits that requests of this worker hold in the store: freed when they end, prolonged
//! while they last, stated anew on a new connection.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::Receipt;

use super::Store;
use super::lease::Places;
use super::link::Link;
use super::scripts::{SCRIPTS, Scripts};
use super::wire;

/// How long the places of a gateway that is not heard of stay taken, and how often it is heard of.
pub(super) const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
/// Keys of one call, where they need not share a slot.
const BATCH: usize = 64;

impl Store {
    /// Frees and prolongs. Nothing else sends a word of places but what takes them, so the words arrive in the order
    /// in which they were said.
    pub(super) async fn keep_places(self: Rc<Self>) {
        let mut renew = tokio::time::interval(RENEW);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.leases.some_freed.notified() => {
                    tokio::task::yield_now().await; // what is freed at about the same time goes together
                    self.free_all(self.leases.take_freed()).await;
                }
                _ = renew.tick() => {
                    for link in self.servers.all().iter().filter(|link| link.is_up()) {
                        self.prolong(link).await;
                    }
                }
            }
        }
    }

    async fn free_all(&self, freed: Vec<Places>) {
        // On a connection that is down nothing is freed: the next one states anew what is held.
        for link in self.servers.all().iter().filter(|link| link.is_up()) {
            let of_link: Vec<&Places> =
                freed.iter().filter(|places| self.holds_tag(link, places.tag)).collect();
            if !of_link.is_empty() {
                tokio::select! {
                    () = link.broken() => {}
                    () = self.free(link, &of_link) => {}
                }
            }
        }
    }

    /// Tells a server which places are free. Waits for its word as long as the connection lives: one that was said
    /// twice would free the place of somebody else.
    async fn free(&self, link: &Rc<Link>, freed: &[&Places]) {
        let (holder, epoch) = (link.holder(), link.epoch());
        let mut left: Vec<&Places> = freed.to_vec();
        while !left.is_empty() {
            let Ok(connection) = link.ready() else { return };
            let batches: Vec<&[&Places]> = left.chunks(self.batch()).collect();
            let calls = batches.iter().map(|batch| {
                let names: Vec<Vec<u8>> = batch.iter().map(|places| places.name()).collect();
                let mut call = SCRIPTS.refund.call(names.iter().map(Vec::as_slice));
                call.arg(&holder);
                for places in *batch {
                    let quota = &places.limit.config.quota;
                    let charge = quota.charged(places.places, Receipt::default());
                    call.arg(wire::refund_argument(quota, charge));
                }
                let mut connection = connection.clone();
                async move { said(connection.send_packed_command(&call).await) }
            });
            let answers = join_all(calls).await;
            if link.epoch() != epoch {
                return; // there is another connection, and it has stated anew what is held
            }
            let mut again = Vec::new();
            for (batch, answer) in batches.iter().zip(answers) {
                match answer {
                    Ok(_) => {}
                    Err(error) if unsaid(&error) => again.extend_from_slice(batch),
                    Err(error) => return link.shut(error.to_string()),
                }
            }
            if !again.is_empty() {
                let mut connection = connection.clone();
                if let Err(error) = Scripts::load(&mut connection).await {
                    return link.shut(error.to_string());
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // a slot that moves has moved
                again.retain(|places| self.holds_tag(link, places.tag));
            }
            left = again;
        }
    }

    /// Gives the places that are held more time. It never takes any: requests that begin and end meanwhile count by
    /// themselves.
    async fn prolong(&self, link: &Rc<Link>) {
        let held = self.leases.held(false, |tag| self.holds_tag(link, tag));
        let Ok(connection) = link.ready() else { return };
        let saying = self.say_held(&held, connection, (link.holder(), None));
        match tokio::time::timeout(RENEW, saying).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if unsaid(&error) => {}
            Ok(Err(error)) => link.shut(error.to_string()),
            Err(_) => link.shut("it does not answer in time".to_owned()),
        }
    }

    /// States anew, on a new connection, what is held: nobody knows which of the last words on the old one were heard.
    /// The words are on their way when this returns; what it returns waits for the answers.
    pub(super) fn state_anew(
        &self,
        link: &Rc<Link>,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<()>> {
        let old = link.holder();
        link.new_holder();
        let held = self.leases.held(true, |tag| self.holds_tag(link, tag));
        self.say_held(&held, connection, (link.holder(), Some(old)))
    }

    fn say_held(
        &self,
        held: &[Places],
        connection: MultiplexedConnection,
        (holder, old): ([u8; 8], Option<[u8; 8]>),
    ) -> impl Future<Output = RedisResult<()>> + use<> {
        let calls: Vec<_> = held
            .chunks(self.batch())
            .map(|held| {
                let names: Vec<Vec<u8>> = held.iter().map(Places::name).collect();
                let mut call = SCRIPTS.renew.call(names.iter().map(Vec::as_slice));
                call.arg(&holder)
                    .arg(old.as_ref().map_or(&b""[..], |old| &old[..]))
                    .arg(LEASE.as_micros() as u64);
                for held in held {
                    call.arg(if old.is_some() { held.places } else { 0 });
                }
                let mut connection = connection.clone();
                async move { said(connection.send_packed_command(&call).await) }
            })
            .collect();
        async move { join_all(calls).await.into_iter().collect::<RedisResult<Vec<Value>>>().map(|_| ()) }
    }

    /// Keys that one call may be about.
    pub(super) fn batch(&self) -> usize {
        if self.servers.only().is_some() { BATCH } else { 1 } // keys of one call share a slot
    }
}

/// An answer, of which the library takes some errors for values.
pub(super) fn said(answer: RedisResult<Value>) -> RedisResult<Value> {
    match answer {
        Ok(Value::ServerError(error)) => Err(error.into()),
        answer => answer,
    }
}

/// Whether an error says that nothing was done and that the same may be said again.
fn unsaid(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved, NoScript, TryAgain};
    [NoScript, Moved, Ask, TryAgain, ClusterDown].iter().any(|kind| error.kind() == ErrorKind::Server(*kind))
}
