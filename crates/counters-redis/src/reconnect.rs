//! The life of a connection: it is opened, prepared, monitored, lost and opened again.

use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{try_join, try_join4};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, Value};
use sluicegate_limiter::{Span, Time};

use super::cluster::Servers;
use super::connection::{Connection, in_time};
use super::dial::connect;
use super::errors::{LATE, one_line, slot_moved};
use super::key_name::{self, Tag};
use super::protocol;
use super::random::random;
use super::reply::Malformed;
use super::scripts::{SCRIPTS, Scripts, denied, server_error_as_err};
use super::server_watch::{Check, pause};
use super::store::Store;
use crate::{Address, Deployment};

/// After a connection has lasted this long, the pauses between attempts start from the shortest again.
const STABLE_AFTER: Span = Span::from_secs(10);
/// The intervals of checks whether a server answers, and whether it can be written to.
const PING_INTERVAL: Duration = Duration::from_millis(200);
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval of checks of other connections while a server is silent to one.
const OWN_PING_INTERVAL: Duration = Duration::from_millis(50);
/// The time for which a server that is back receives reports only, because the other gateways report too.
const REPORTS_ONLY: Duration = Duration::from_millis(300);
/// The number of slots of a node that are probed, before all its slots count as being moved.
const SLOTS_PROBED: usize = 3;

impl Store {
    /// Begins to connect.
    pub(super) fn begin(self: &Rc<Self>) {
        let config = self.state.config();
        if let Servers::One(connection) = &self.servers {
            self.spawn(Rc::clone(self).maintain(Rc::clone(connection)));
        }
        if !matches!(config.servers, Deployment::Single(_)) {
            self.spawn(Rc::clone(self).refresh_topology());
            self.spawn(Rc::clone(self).follow_topology());
        }
        self.spawn(Rc::clone(self).dispatch_freed());
        self.spawn(Rc::clone(self).free_idle());
    }

    /// Maintains one connection and its leases.
    pub(super) async fn maintain(self: Rc<Self>, connection: Rc<Connection>) {
        tokio::select! {
            () = self.keep_connected(&connection) => {}
            () = self.maintain_leases(&connection) => {}
        }
    }

    async fn keep_connected(self: &Rc<Self>, connection: &Rc<Connection>) {
        let mut losses = 0; // consecutive short connections
        loop {
            let takes = Duration::from_millis(500) + self.state.config().round_trips(8);
            let attempt = connection.watch.next_attempt(&self.clock, takes.into()).await;
            if connection.is_retired() {
                return;
            }
            if connection.epoch() > 0 {
                tracing::debug!(
                    server = connection.name,
                    ?attempt,
                    "circuit breaker half-open: connecting to the store"
                );
            }
            let opened = self.open_connection(connection).await;
            if connection.is_retired() {
                return;
            }
            match opened {
                Ok(channel) => {
                    connection.watch.reached();
                    let begun = self.clock.now();
                    self.use_connection(connection, channel).await;
                    if connection.is_retired() {
                        return;
                    }
                    losses = if self.clock.now().since(begun) >= STABLE_AFTER { 1 } else { losses + 1 };
                    self.lost(connection);
                    self.state.connection_lost.send_replace(());
                    tokio::time::sleep(pause(losses, false).into()).await;
                }
                Err(error) => {
                    connection.close(one_line(&error));
                    self.lost(connection);
                    connection.watch.attempt_failed(&attempt, self.clock.now(), &error);
                }
            }
        }
    }

    fn lost(&self, connection: &Connection) {
        self.state.lost(self.worker, &connection.name, &connection.reason(), self.clock.now());
        self.state.topology.outdate("a connection was lost");
    }

    async fn open_connection(&self, connection: &Rc<Connection>) -> RedisResult<MultiplexedConnection> {
        let address = self.address(connection).await?;
        self.prepare(connection, &address).await
    }

    /// The address to which the connection is opened.
    async fn address(&self, connection: &Connection) -> RedisResult<Address> {
        match &connection.address {
            Some(address) => Ok(address.clone()),
            None => {
                let next = connection.next_master.take();
                let master = match next {
                    Some(master) => master,
                    None => self.master().await?,
                };
                *connection.master.borrow_mut() = Some(master.clone());
                Ok(master)
            }
        }
    }

    /// Uses a connection until the breaker opens.
    async fn use_connection(self: &Rc<Self>, connection: &Rc<Connection>, channel: MultiplexedConnection) {
        self.report(connection, &channel, |_| true).await;
        // The other gateways reconnect at about the same time. All report before any of them calls the store.
        if connection.epoch() > 0 && self.state.gateways() > 1 {
            tokio::time::sleep(REPORTS_ONLY).await;
            self.report(connection, &channel, |_| true).await;
        }
        self.begin_calls(connection, channel.clone()).await;
        self.state.reached(self.worker, &connection.name);
        self.heartbeat(connection, channel).await;
    }

    /// Opens a connection for calls. The leases are stated first and calls follow, so that places that are taken or freed
    /// from now on are counted in addition.
    async fn begin_calls(&self, connection: &Rc<Connection>, channel: MultiplexedConnection) {
        let mut stated = std::pin::pin!(self.restate_leases(connection, channel.clone()));
        let sent = std::future::poll_fn(|cx| Poll::Ready(stated.as_mut().poll(cx))).await;
        connection.open(channel);
        let stated = match sent {
            Poll::Ready(stated) => Ok(stated),
            Poll::Pending => tokio::time::timeout(self.background_timeout().into(), stated).await,
        };
        match stated {
            Ok(Ok(())) => {}
            Ok(Err(error)) if slot_moved(&error) => {
                self.state.topology.outdate("a slot of a lease has moved")
            }
            Ok(Err(error)) => connection.close(one_line(&error)),
            Err(_) => connection.close(LATE.to_owned()),
        }
    }

    /// Opens and prepares a connection: the server can be written to and has the scripts, and its clock is known.
    async fn prepare(
        &self,
        connection: &Rc<Connection>,
        address: &Address,
    ) -> RedisResult<MultiplexedConnection> {
        let channel = connect(&self.state.config(), address).await?;
        // What does not depend on another answer is sent at once: the server may be far away. Each step also reads the clock.
        let is_master = async {
            match connection.address {
                None => is_master(&mut channel.clone()).await,
                Some(_) => Ok(()),
            }
        };
        let write = self.try_write(connection, channel.clone());
        let known = Scripts::known(channel.clone());
        let first = try_join4(is_master, write, known, self.try_read(connection, channel.clone()));
        let ((), (), known, ()) = self.step(first).await?;
        let load = Scripts::load(channel.clone(), known);
        let (form, ()) = self.step(try_join(load, self.try_read(connection, channel.clone()))).await?;
        connection.set_script_form(form);
        let probe = self.try_scripts(connection, channel.clone());
        self.step(try_join(probe, self.try_read(connection, channel.clone()))).await?;
        Ok(channel)
    }

    /// Waits for the answers of one step of the preparation.
    async fn step<T>(&self, answers: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let late = |_| Err((ErrorKind::Io, LATE).into());
        tokio::time::timeout(self.background_timeout().into(), answers).await.unwrap_or_else(late)
    }

    /// Writes a key. It detects replicas, servers without memory, and missing permissions.
    async fn try_write(
        &self,
        connection: &Rc<Connection>,
        mut channel: MultiplexedConnection,
    ) -> RedisResult<()> {
        let write = async |key: String| {
            redis::cmd("SET").arg(key).arg(1).arg("PX").arg(1000).exec_async(&mut channel).await
        };
        self.on_own_key(connection, write).await
    }

    /// Calls the script that uses all commands. It detects missing commands and permissions, and servers that answer in
    /// another way than Redis.
    async fn try_scripts(
        &self,
        connection: &Rc<Connection>,
        mut channel: MultiplexedConnection,
    ) -> RedisResult<()> {
        let call_probe = async |key: String| {
            let call = SCRIPTS.probe.call([key.as_bytes()].into_iter());
            let answer =
                server_error_as_err(channel.send_packed_command(&connection.in_script_form(call)).await)?;
            let foreign = |malformed: Malformed| {
                (ErrorKind::UnexpectedReturnType, "its scripts do not answer", malformed.to_string()).into()
            };
            protocol::check_probe(&answer).map_err(foreign)
        };
        self.on_own_key(connection, call_probe).await
    }

    /// Calls `with` with an unused key that the server holds.
    async fn on_own_key(
        &self,
        connection: &Rc<Connection>,
        mut with: impl AsyncFnMut(String) -> RedisResult<()>,
    ) -> RedisResult<()> {
        let probe = format!("{}:probe", self.state.config().prefix);
        let Servers::Cluster(map) = &self.servers else { return with(probe).await };
        // A slot that is being moved says nothing about the node.
        for _ in 0..SLOTS_PROBED {
            let after = connection.probe_from.get();
            let Some(slot) = map.slot_of(connection, after) else { return Ok(()) }; // it has no slots yet
            match with(key_name::in_slot(&probe, slot)).await {
                Err(error) if slot_moved(&error) => {
                    self.state.topology.outdate("a probed slot has moved");
                    connection.probe_from.set(slot + 1);
                }
                done => return done,
            }
        }
        Ok(())
    }

    /// Reads the clock of the server.
    async fn try_read(&self, connection: &Connection, mut channel: MultiplexedConnection) -> RedisResult<()> {
        let sent = self.clock.now();
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut channel).await?;
        let time = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000));
        let received = self.clock.now();
        self.state.observe_clock(&connection.clock, Time::from_nanos(time), sent, received);
        connection.note_reply(received);
        Ok(())
    }

    /// Checks a connection until the breaker opens, so that a server that does not answer or cannot be written to is detected
    /// before requests need it. One worker checks for all. A worker checks its own connection when another one has lost its
    /// connection or when its own calls are not answered. Then one other worker checks too, because the fault may be in one
    /// connection only.
    async fn heartbeat(self: &Rc<Self>, connection: &Rc<Connection>, channel: MultiplexedConnection) {
        let mut connection_lost = self.state.connection_lost.subscribe();
        loop {
            // The interval is random, so that the connection of each worker is checked from time to time.
            let until_next = PING_INTERVAL + Duration::from_millis(u64::from(random()[0]) / 16);
            let check = tokio::select! {
                () = connection.closed() => return,
                () = connection.became_silent.notified() => Some(Check::Ping),
                () = connection.watch.became_silent.notified() => {
                    let claimed = connection.watch.claim_check(Check::OwnPing, self.clock.now(), OWN_PING_INTERVAL);
                    claimed.then_some(Check::OwnPing)
                }
                _ = connection_lost.changed() => Some(Check::Write),
                () = tokio::time::sleep(until_next) => {
                    let now = self.clock.now();
                    let every = [(Check::Write, WRITE_INTERVAL), (Check::Ping, PING_INTERVAL)];
                    every.into_iter().find(|(check, every)| connection.watch.claim_check(*check, now, *every)).map(|(check, _)| check)
                }
            };
            let checked = async {
                match check {
                    None => Ok(()),
                    Some(Check::Ping | Check::OwnPing) => self.try_read(connection, channel.clone()).await,
                    Some(Check::Write) => {
                        self.try_write(connection, channel.clone()).await?;
                        connection.note_reply(self.clock.now());
                        Ok(())
                    }
                }
            };
            // A check may take as long as a call.
            let until = tokio::time::Instant::now() + Duration::from(self.background_timeout());
            let checked = {
                let checked = std::pin::pin!(checked);
                tokio::select! {
                    () = connection.closed() => return,
                    checked = in_time(checked, until) => checked,
                }
            };
            match checked {
                Some(Ok(())) if check.is_some() && self.state.unreported.any() => {
                    self.report(connection, &channel, |_| true).await;
                }
                Some(Ok(())) => {}
                Some(Err(error)) => connection.close(one_line(&error)),
                None => connection.close(LATE.to_owned()),
            }
        }
    }

    /// Whether a server holds the keys with this tag.
    pub(super) fn holds_tag(&self, connection: &Rc<Connection>, tag: Tag) -> bool {
        match &self.servers {
            Servers::One(_) => true,
            Servers::Cluster(_) => {
                self.servers.owner_of(tag.slot()).is_some_and(|owner| Rc::ptr_eq(&owner, connection))
            }
        }
    }

    /// The server of a slot. Waits for the first slot map of the cluster.
    pub(super) async fn mapped(&self, slot: u16, until: tokio::time::Instant) -> Option<Rc<Connection>> {
        if let Servers::Cluster(map) = &self.servers {
            while !map.was_refreshed.get() {
                tokio::time::timeout_at(until, map.refreshed.notified()).await.ok()?;
            }
        }
        self.servers.owner_of(slot)
    }
}

/// Checks that a server is a master. Without the permission to call ROLE, the test write shows it.
pub(super) async fn is_master(channel: &mut MultiplexedConnection) -> RedisResult<()> {
    let role: Vec<Value> = match redis::cmd("ROLE").query_async(channel).await {
        Err(error) if denied(&error) => return Ok(()),
        role => role?,
    };
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        _ => Err((ErrorKind::Io, "the server that the sentinels name says that it is no master").into()),
    }
}
