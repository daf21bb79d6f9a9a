//! The life of a connection: made, prepared, minded, lost, made again.

use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use sluicegate_limiter::Time;

use super::Store;
use super::cluster::{self, CLUSTER, Map, Servers};
use super::connect::{self, connect};
use super::link::Link;
use super::name::{self, Tag};
use super::scripts::Scripts;
use crate::config::RedisAddress;

/// The longest that making and preparing a connection may take.
const DIAL: Duration = Duration::from_secs(1);
/// The pause before the first attempt after a loss, and between the further ones.
const AT_ONCE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(250);
/// How often a connection that is there is looked after.
const MIND: Duration = Duration::from_millis(200);
/// How often the map of a cluster is fetched although nobody complains.
const SURVEY: Duration = Duration::from_secs(15);
/// How often the server's time is asked for at the beginning.
const GLANCES: usize = 3;

impl Store {
    /// Begins to connect.
    pub(super) fn begin(self: &Rc<Self>) {
        match &self.servers {
            Servers::One(link) => self.spawn(Rc::clone(self).tend(Rc::clone(link))),
            Servers::Cluster(_) => self.spawn(Rc::clone(self).survey()),
        }
        self.spawn(Rc::clone(self).keep_places());
    }

    /// Keeps one connection.
    pub(super) async fn tend(self: Rc<Self>, link: Rc<Link>) {
        loop {
            let mut pause = RETRY;
            match tokio::time::timeout(DIAL, self.prepare(&link)).await {
                Ok(Ok(connection)) if !link.is_retired() => {
                    self.report(&link, &connection, |_, _| true).await;
                    self.begin_calls(&link, connection.clone()).await;
                    self.state.reached(self.worker, &link.name);
                    self.mind(&link, connection).await;
                    pause = AT_ONCE;
                }
                Ok(Ok(_)) => {}
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

    /// Opens a connection for calls. The word of what is held goes first, and calls right behind it: a place that is
    /// taken or freed from now on comes on top.
    async fn begin_calls(&self, link: &Rc<Link>, connection: MultiplexedConnection) {
        let mut stated = std::pin::pin!(self.state_anew(link, connection.clone()));
        let sent = std::future::poll_fn(|context| Poll::Ready(stated.as_mut().poll(context))).await;
        link.open(connection);
        let stated = match sent {
            Poll::Ready(stated) => Ok(stated),
            Poll::Pending => tokio::time::timeout(DIAL, stated).await,
        };
        match stated {
            Ok(Ok(())) => {}
            Ok(Err(error)) => link.shut(told(&error)),
            Err(_) => link.shut("it does not answer in time".to_owned()),
        }
    }

    /// A connection that is nearly ready for calls: the server can be written to, knows the scripts, and its clock is
    /// known.
    async fn prepare(&self, link: &Rc<Link>) -> RedisResult<MultiplexedConnection> {
        let config = &*self.state.config();
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
        Ok(connection)
    }

    /// A server that only answers is no use: replicas, servers without memory and those that must not be written to
    /// are found out here.
    async fn try_write(&self, link: &Rc<Link>, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let prefix = &self.state.config().prefix;
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
        loop {
            let pause = async {
                let alarm = self.state.alarm.notified();
                let _ = tokio::time::timeout(MIND, alarm).await;
            };
            tokio::select! {
                () = link.broken() => return,
                () = pause => {}
            }
            match tokio::time::timeout(DIAL, self.try_write(link, &mut connection)).await {
                Ok(Ok(())) if self.state.outstanding.any() => {
                    self.report(link, &connection, |_, _| true).await;
                }
                Ok(Ok(())) => {}
                Ok(Err(error)) => link.shut(told(&error)),
                Err(_) => link.shut("it does not answer in time".to_owned()),
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
        let config = self.state.config();
        let known =
            self.servers.all().into_iter().filter(|link| link.is_up()).filter_map(|link| link.fixed.clone());
        let known: Vec<RedisAddress> = known.chain(cluster::seeds(&config).iter().cloned()).collect();
        // All are asked at once: one that is silent must not keep the others from being heard.
        let ask = async |address: &RedisAddress| {
            let mut connection = connect(&config, address, DIAL).await?;
            let ranges = connect::slots(&mut connection, address).await?;
            let none = (redis::ErrorKind::Io, "a node of the cluster knows no slots");
            if ranges.is_empty() { Err(RedisError::from(none)) } else { Ok(ranges) }
        };
        let asked = known.iter().map(|address| Box::pin(ask(address)));
        let (ranges, _) = select_ok(asked).await?;
        for link in map.update(&self.state, self.worker, &ranges) {
            self.spawn(Rc::clone(self).tend(link));
        }
        Ok(())
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
