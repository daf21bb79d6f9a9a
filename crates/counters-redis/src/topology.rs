//! Which server holds which keys: the slots of a cluster, or the master that the sentinels name. One worker asks for all.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult};

use super::cluster::{self, CLUSTER, Servers};
use super::dial::{self, SlotRange, connect};
use super::errors::one_line;
use super::known_topology::Known;
use super::sentinel::Sentinels;
use super::server_watch::pause;
use super::store::Store;
use crate::{Address, Deployment};

/// The shortest interval of refreshes.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// The intervals of refreshes without a reason.
const SLOTS_INTERVAL: Duration = Duration::from_secs(15);
const MASTER_INTERVAL: Duration = Duration::from_millis(750);

impl Store {
    /// Refreshes the topology for all workers, while this worker holds the lock. Another takes over when it ends.
    pub(super) async fn refresh_topology(self: Rc<Self>) {
        let topology = &self.state.topology;
        let _refresher = topology.refresher.lock().await;
        let mut sentinels = Sentinels::default();
        let mut failures = 0;
        loop {
            let known =
                match tokio::time::timeout(self.ask_timeout(), self.ask_topology(&mut sentinels)).await {
                    Ok(known) => known.map_err(|error| one_line(&error)),
                    Err(_) => Err("it is not known who holds what: nobody answers in time".to_owned()),
                };
            failures = if known.is_ok() { 0 } else { failures + 1 };
            topology.set(known);
            if failures > 0 {
                tokio::time::sleep(pause(failures, false).into()).await;
            } else {
                tokio::time::sleep(MIN_INTERVAL).await;
                let often = if matches!(self.servers, Servers::Cluster(_)) {
                    SLOTS_INTERVAL
                } else {
                    MASTER_INTERVAL
                };
                let _ = tokio::time::timeout(often, topology.outdated.notified()).await;
            }
        }
    }

    /// The longest time in which somebody who knows the topology is connected to and asked.
    fn ask_timeout(&self) -> Duration {
        self.state.config().round_trips(6)
    }

    async fn ask_topology(&self, sentinels: &mut Sentinels) -> RedisResult<Known> {
        let config = self.state.config();
        match &config.servers {
            Deployment::Cluster(_) => self.ask_slots().await.map(|ranges| Known::Slots(ranges.into())),
            _ => sentinels.master(&config, &self.clock).await.map(Known::Master),
        }
    }

    /// Asks all connected nodes, and the configured ones if none of them answers.
    async fn ask_slots(&self) -> RedisResult<Vec<SlotRange>> {
        let config = self.state.config();
        let of = async |mut channel: MultiplexedConnection, address: &Address| {
            let ranges = dial::slots(&mut channel, address).await?;
            let none = (ErrorKind::Io, "a node of the cluster knows no slots");
            if ranges.is_empty() { Err(RedisError::from(none)) } else { Ok(ranges) }
        };
        let connections = self.servers.all();
        let open = connections
            .iter()
            .filter_map(|connection| Some((connection.channel().ok()?, connection.address.as_ref()?)));
        let open: Vec<_> = open.map(|(channel, address)| Box::pin(of(channel, address))).collect();
        // The first answer counts, so that a silent node does not delay the others.
        if !open.is_empty()
            && let Ok(Ok((ranges, _))) = tokio::time::timeout(self.ask_timeout() / 2, select_ok(open)).await
        {
            return Ok(ranges);
        }
        let dial = async |address: &Address| of(connect(&config, address).await?, address).await;
        let dialled = cluster::seeds(&config).iter().map(|address| Box::pin(dial(address)));
        Ok(select_ok(dialled).await?.0)
    }

    /// Takes each new topology.
    pub(super) async fn follow_topology(self: Rc<Self>) {
        let mut known = self.state.topology.known.subscribe();
        loop {
            let now = known.borrow_and_update().clone();
            match (&self.servers, now) {
                (Servers::Cluster(map), Some(known)) => {
                    match known {
                        Ok(Known::Slots(ranges)) => {
                            for connection in map.update(&self.state, self.worker, &ranges, self.timeout()) {
                                self.spawn(Rc::clone(&self).maintain(connection));
                            }
                            self.state.reached(self.worker, CLUSTER);
                        }
                        Ok(Known::Master(_)) => {}
                        Err(why) => self.state.lost(self.worker, CLUSTER, &why, self.clock.now()),
                    }
                    map.was_refreshed.set(true);
                    map.refreshed.notify_waiters();
                }
                (Servers::One(connection), Some(Ok(Known::Master(master)))) => {
                    let at = connection.master.borrow().clone();
                    if at.is_some_and(|at| at != master) && connection.is_up() {
                        connection.close(format!("the sentinels name another master, {master}"));
                        *connection.next_master.borrow_mut() = Some(master);
                    }
                }
                _ => {}
            }
            if known.changed().await.is_err() {
                return;
            }
        }
    }

    /// The master that the sentinels name from now on.
    ///
    /// # Errors
    /// When none names it.
    pub(super) async fn master(&self) -> RedisResult<Address> {
        let topology = &self.state.topology;
        let mut known = topology.known.subscribe();
        known.mark_unchanged();
        topology.outdate("a worker connects");
        let failed = |why: String| RedisError::from((ErrorKind::Io, "no master", why));
        match tokio::time::timeout(self.ask_timeout() * 2, known.changed()).await {
            Ok(Ok(())) => {}
            _ => return Err(failed("the sentinels do not answer in time".to_owned())),
        }
        let now = known.borrow().clone();
        match now {
            Some(Ok(Known::Master(master))) => Ok(master),
            Some(Err(why)) => Err(failed(why)),
            _ => Err(failed("the sentinels do not say who it is".to_owned())),
        }
    }
}
