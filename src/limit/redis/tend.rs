//! The life of a connection: made, prepared, minded, lost, made again.

use std::rc::Rc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use sluicegate_limiter::Time;

use super::Store;
use super::cluster::{self, CLUSTER, Map, Servers};
use super::connect::{self, connect};
use super::link::Link;
use super::name::{self, Tag};
use super::scripts::{SCRIPTS, Scripts};
use crate::config::RedisAddress;

/// The longest that making and preparing a connection may take.
const DIAL: Duration = Duration::from_secs(1);
/// The pause before the first attempt after a loss, and between the further ones.
const AT_ONCE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(250);
/// How often a connection that is there is looked after.
const MIND: Duration = Duration::from_millis(200);
/// How long places of a gateway that is not heard of stay taken, and how many looks there are between two words.
pub(super) const LEASE: Duration = Duration::from_secs(10);
const LOOKS_PER_RENEWAL: u32 = 15;
/// How often the map of a cluster is fetched although nobody complains.
const SURVEY: Duration = Duration::from_secs(15);
/// How often the server's time is asked for at the beginning.
const GLANCES: usize = 3;
/// Places that are freed or renewed in one call.
const BATCH: usize = 64;

impl Store {
    /// Begins to connect.
    pub(super) fn begin(self: &Rc<Self>) {
        match &self.servers {
            Servers::One(link) => self.spawn(Rc::clone(self).tend(Rc::clone(link))),
            Servers::Cluster(_) => self.spawn(Rc::clone(self).survey()),
        }
        self.spawn(Rc::clone(self).free_places());
    }

    /// Keeps one connection.
    pub(super) async fn tend(self: Rc<Self>, link: Rc<Link>) {
        loop {
            let mut pause = RETRY;
            match tokio::time::timeout(DIAL, self.prepare(&link)).await {
                Ok(Ok(mut connection)) => {
                    self.write_back(&link, &mut connection).await;
                    link.open(connection.clone());
                    self.state.reached(self.worker, &link.name);
                    self.mind(&link, connection).await;
                    pause = AT_ONCE;
                }
                Ok(Err(error)) => link.shut(told(&error)),
                Err(_) => link.shut("it does not answer in time".to_owned()),
            }
            if link.is_retired() {
                return;
            }
            self.state.lost(self.worker, &link.name, &link.why());
            if pause == AT_ONCE {
                self.state.alarm.notify_waiters();
            }
            if let Servers::Cluster(map) = &self.servers {
                map.outdated.notify_one();
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// A connection that is ready for calls: the server can be written to, knows the scripts and the places that are
    /// held, and its clock is known.
    async fn prepare(&self, link: &Rc<Link>) -> RedisResult<MultiplexedConnection> {
        let config = &self.state.config;
        let address = match &link.fixed {
            Some(address) => address.clone(),
            None => connect::master(config, DIAL).await?,
        };
        let mut connection = connect(config, &address, DIAL).await?;
        self.try_write(link, &mut connection).await?;
        Scripts::load(&mut connection).await?;
        for _ in 0..GLANCES {
            let sent = self.clock.now();
            let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut connection).await?;
            let time = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000));
            link.clock.seen(Time::from_nanos(time), sent, self.clock.now());
        }
        self.renew(link, &mut connection, true).await?;
        Ok(connection)
    }

    /// A server that only answers is no use: replicas, servers without memory and those that must not be written to
    /// are found out here.
    async fn try_write(&self, link: &Rc<Link>, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let prefix = &self.state.config.prefix;
        let key = match &self.servers {
            Servers::One(_) => format!("{prefix}:probe"),
            Servers::Cluster(map) => match map.slot_of(link) {
                Some(slot) => name::in_slot(&format!("{prefix}:probe"), slot),
                None => return Ok(()), // it holds nothing yet
            },
        };
        redis::cmd("SET").arg(key).arg(1).arg("PX").arg(1000).exec_async(connection).await
    }

    /// Looks after a connection until it breaks. That a server can no longer be written to is found out here, before
    /// requests do, and at once when another worker has lost it.
    async fn mind(self: &Rc<Self>, link: &Rc<Link>, mut connection: MultiplexedConnection) {
        let mut looks = 0;
        loop {
            let pause = async {
                let alarm = self.state.alarm.notified();
                let _ = tokio::time::timeout(MIND, alarm).await;
            };
            tokio::select! {
                () = link.broken() => return,
                () = pause => looks += 1,
            }
            let look = async {
                self.try_write(link, &mut connection).await?;
                if looks % LOOKS_PER_RENEWAL == 0 {
                    self.renew(link, &mut connection, false).await?;
                }
                Ok(())
            };
            match tokio::time::timeout(DIAL, look).await {
                Ok(Ok(())) if self.state.owes() => self.write_back(link, &mut connection).await,
                Ok(Ok(())) => {}
                Ok(Err(error)) => link.shut(told(&error)),
                Err(_) => link.shut("it does not answer in time".to_owned()),
            }
        }
    }

    /// Prolongs the places of requests in flight. On a new connection (`anew`), where nobody knows which of the last
    /// calls were carried out, the places of the old one are replaced by what is held in fact.
    async fn renew(
        &self,
        link: &Rc<Link>,
        connection: &mut MultiplexedConnection,
        anew: bool,
    ) -> RedisResult<()> {
        let old = link.holder();
        if anew {
            link.new_holder();
        }
        let held = self.leases.held(anew, |tag| self.holds_tag(link, tag));
        let batch = if self.servers.only().is_some() { BATCH } else { 1 };
        for held in held.chunks(batch) {
            let names: Vec<Vec<u8>> = held.iter().map(|held| held.tag.name(&held.limit.names)).collect();
            let mut call = SCRIPTS.renew.call(names.iter().map(Vec::as_slice));
            let before: &[u8] = if anew { &old } else { b"" };
            call.arg(&link.holder()).arg(before).arg(LEASE.as_micros() as u64);
            for held in held {
                call.arg(held.places);
            }
            call.exec_async(connection).await?;
        }
        Ok(())
    }

    /// Tells the servers which places are free again, together for all that became free at about the same time.
    async fn free_places(self: Rc<Self>) {
        loop {
            self.leases.some_freed.notified().await;
            tokio::task::yield_now().await;
            let freed = self.leases.take_freed();
            for freed in freed {
                self.refund(
                    &freed.limit,
                    freed.key,
                    freed.tag,
                    freed.places,
                    sluicegate_limiter::Receipt::default(),
                );
            }
        }
    }

    /// Whether a server holds the keys of this tag.
    pub(super) fn holds_tag(&self, link: &Rc<Link>, tag: Tag) -> bool {
        match &self.servers {
            Servers::One(_) => true,
            Servers::Cluster(_) => self.servers.of(tag.slot()).is_some_and(|owner| Rc::ptr_eq(&owner, link)),
        }
    }

    /// Keeps the map of a cluster.
    async fn survey(self: Rc<Self>) {
        let Servers::Cluster(map) = &self.servers else { return };
        loop {
            match tokio::time::timeout(DIAL, self.look_at_map(map)).await {
                Ok(Ok(())) => self.state.reached(self.worker, CLUSTER),
                Ok(Err(error)) => self.state.lost(self.worker, CLUSTER, &told(&error)),
                Err(_) => self.state.lost(self.worker, CLUSTER, "no node answers in time"),
            }
            map.looked.notify_waiters();
            map.ever.set(true);
            tokio::time::sleep(RETRY).await;
            let _ = tokio::time::timeout(SURVEY, map.outdated.notified()).await;
        }
    }

    async fn look_at_map(self: &Rc<Self>, map: &Map) -> RedisResult<()> {
        let known: Vec<RedisAddress> = self
            .servers
            .all()
            .into_iter()
            .filter(|link| link.is_up())
            .filter_map(|link| link.fixed.clone())
            .collect();
        let mut failure = (redis::ErrorKind::Io, "no node of the cluster answers").into();
        for address in known.iter().chain(cluster::seeds(&self.state)) {
            let asked = async {
                let mut connection = connect(&self.state.config, address, DIAL / 4).await?;
                connect::slots(&mut connection, address).await
            };
            match asked.await {
                Ok(ranges) if ranges.is_empty() => {}
                Ok(ranges) => {
                    for link in map.update(&self.state, self.worker, &ranges) {
                        self.spawn(Rc::clone(self).tend(link));
                    }
                    return Ok(());
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// The server of a slot; waits for the first map of the cluster.
    pub(super) async fn mapped(&self, slot: u16, until: tokio::time::Instant) -> Option<Rc<Link>> {
        if let Servers::Cluster(map) = &self.servers {
            while !map.ever.get() {
                tokio::time::timeout_at(until, map.looked.notified()).await.ok()?;
            }
        }
        self.servers.of(slot)
    }

    /// The server that the cluster names for a slot instead of the one that was asked.
    pub(super) fn redirected(self: &Rc<Self>, slot: u16, error: &RedisError) -> Option<Rc<Link>> {
        let Servers::Cluster(map) = &self.servers else { return None };
        let (address, _) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let address = RedisAddress::Tcp { host: host.to_owned(), port: port.parse().ok()? };
        let (link, new) = map.node(&self.state, self.worker, &address);
        if new {
            self.spawn(Rc::clone(self).tend(Rc::clone(&link)));
        }
        if error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::Moved) {
            map.moved(slot, &link);
            map.outdated.notify_one();
        }
        Some(link)
    }
}

/// An error in one line, without what only its author understands.
fn told(error: &RedisError) -> String {
    error.to_string().replace('\n', " ")
}
