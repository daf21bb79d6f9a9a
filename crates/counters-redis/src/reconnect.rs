//! The life of a connection: made, prepared, monitored, lost, made again.

use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::{Span, Time};

use super::cluster::Servers;
use super::connection::{Connection, LATE, random};
use super::dial::connect;
use super::key_name::{self, Tag};
use super::protocol::{self, Malformed};
use super::scripts::{SCRIPTS, Scripts, denied, server_error_as_err};
use super::server_watch::{Look, pause};
use super::store::Store;
use crate::{Address, Deployment};

/// The longest that making and preparing a connection may take.
const DIAL: Duration = Duration::from_secs(1);
/// A connection that has lasted so long was a good one: the next is tried at once when it breaks.
const GOOD: Span = Span::from_secs(10);
/// The intervals of checks whether a server answers, and whether it takes writes.
const ANSWERS: Duration = Duration::from_millis(200);
const TAKES_WRITES: Duration = Duration::from_secs(1);
/// The least interval of a worker's own checks while another worker finds the server silent.
const ANSWERS_ME: Duration = Duration::from_millis(50);
/// How often the server's time is asked for at the beginning.
const GLANCES: usize = 3;
/// The time in which a server that is back only takes reports: the other gateways report too.
const OTHERS_REPORT: Duration = Duration::from_millis(300);
/// Slots of a node that are tried for writing, before it is taken for one whose slots are all on their way.
const SLOTS_TRIED: usize = 3;

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
    }

    /// Maintains one connection and its leases.
    pub(super) async fn maintain(self: Rc<Self>, connection: Rc<Connection>) {
        tokio::select! {
            () = self.keep_connected(&connection) => {}
            () = self.maintain_leases(&connection) => {}
        }
    }

    async fn keep_connected(self: &Rc<Self>, connection: &Rc<Connection>) {
        let mut losses = 0; // in a row, of connections that were no good
        loop {
            let attempt = connection.watch.turn(&self.clock).await;
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
            let made = self.make_connection(connection).await;
            if connection.is_retired() {
                return;
            }
            match made {
                Ok(channel) => {
                    connection.watch.reached();
                    let begun = self.clock.now();
                    self.use_connection(connection, channel).await;
                    if connection.is_retired() {
                        return;
                    }
                    losses = if self.clock.now().since(begun) >= GOOD { 1 } else { losses + 1 };
                    self.lost(connection);
                    self.state.alarm.send_replace(());
                    tokio::time::sleep(pause(losses, false).into()).await;
                }
                Err(error) => {
                    connection.shut(one_line(&error));
                    self.lost(connection);
                    connection.watch.missed(&attempt, self.clock.now(), &error);
                }
            }
        }
    }

    fn lost(&self, connection: &Connection) {
        self.state.lost(self.worker, &connection.name, &connection.why(), self.clock.now());
        self.state.topology.outdate("a connection was lost");
    }

    async fn make_connection(&self, connection: &Rc<Connection>) -> RedisResult<MultiplexedConnection> {
        let address = self.address(connection).await?;
        let late = |_| Err((ErrorKind::Io, LATE).into());
        tokio::time::timeout(DIAL, self.prepare(connection, &address)).await.unwrap_or_else(late)
    }

    /// Where the server is that this connection is to.
    async fn address(&self, connection: &Connection) -> RedisResult<Address> {
        match &connection.fixed {
            Some(address) => Ok(address.clone()),
            None => {
                let named = connection.named.take();
                let master = match named {
                    Some(master) => master,
                    None => self.master().await?,
                };
                *connection.at.borrow_mut() = Some(master.clone());
                Ok(master)
            }
        }
    }

    /// Uses a connection until it breaks.
    async fn use_connection(self: &Rc<Self>, connection: &Rc<Connection>, channel: MultiplexedConnection) {
        self.report(connection, &channel, |_| true).await;
        // The others come back at about the same time. What each admitted meanwhile is told before anybody asks again.
        if connection.epoch() > 0 && self.state.gateways() > 1 {
            tokio::time::sleep(OTHERS_REPORT).await;
            self.report(connection, &channel, |_| true).await;
        }
        self.begin_calls(connection, channel.clone()).await;
        self.state.reached(self.worker, &connection.name);
        self.heartbeat(connection, channel).await;
    }

    /// Opens a connection for calls. The statement of leases is sent first and calls right behind it, so that leases that are
    /// taken or freed from now on are counted on top.
    async fn begin_calls(&self, connection: &Rc<Connection>, channel: MultiplexedConnection) {
        let mut stated = std::pin::pin!(self.restate_leases(connection, channel.clone()));
        let sent = std::future::poll_fn(|context| Poll::Ready(stated.as_mut().poll(context))).await;
        connection.open(channel);
        let stated = match sent {
            Poll::Ready(stated) => Ok(stated),
            Poll::Pending => tokio::time::timeout(DIAL, stated).await,
        };
        match stated {
            Ok(Ok(())) => {}
            Ok(Err(error)) if moves(&error) => self.state.topology.outdate("a slot of a lease has moved"),
            Ok(Err(error)) => connection.shut(one_line(&error)),
            Err(_) => connection.shut(LATE.to_owned()),
        }
    }

    /// A connection that is nearly ready for calls: the server can be written to, knows the scripts, and its clock is
    /// known.
    async fn prepare(
        &self,
        connection: &Rc<Connection>,
        address: &Address,
    ) -> RedisResult<MultiplexedConnection> {
        let config = &*self.state.config();
        let mut channel = connect(config, address, DIAL).await?;
        if connection.fixed.is_none() {
            is_master(&mut channel).await?;
        }
        self.try_write(connection, &mut channel).await?;
        connection.set_sending(Scripts::load(&mut channel).await?);
        self.try_scripts(connection, &mut channel).await?;
        for _ in 0..GLANCES {
            self.try_read(connection, &mut channel).await?;
        }
        Ok(channel)
    }

    /// A server that only answers is no use: replicas, servers without memory and those that must not be written to
    /// are found out here.
    async fn try_write(
        &self,
        connection: &Rc<Connection>,
        channel: &mut MultiplexedConnection,
    ) -> RedisResult<()> {
        let write = async |key: String| {
            redis::cmd("SET").arg(key).arg(1).arg("PX").arg(1000).exec_async(channel).await
        };
        self.on_own_key(connection, write).await
    }

    /// A server that lacks a command, or does not let this user call it, and one that answers otherwise than Redis, are
    /// found out here, before a request asks.
    async fn try_scripts(
        &self,
        connection: &Rc<Connection>,
        channel: &mut MultiplexedConnection,
    ) -> RedisResult<()> {
        let attempt = async |key: String| {
            let call = SCRIPTS.attempt.call([key.as_bytes()].into_iter());
            let answer = server_error_as_err(channel.send_packed_command(&connection.spelled(call)).await)?;
            let foreign = |malformed: Malformed| {
                (ErrorKind::UnexpectedReturnType, "its scripts do not answer", malformed.to_string()).into()
            };
            protocol::tried(&answer).map_err(foreign)
        };
        self.on_own_key(connection, attempt).await
    }

    /// Does something with a key that nobody needs and that the server holds.
    async fn on_own_key(
        &self,
        connection: &Rc<Connection>,
        mut with: impl AsyncFnMut(String) -> RedisResult<()>,
    ) -> RedisResult<()> {
        let probe = format!("{}:probe", self.state.config().prefix);
        let Servers::Cluster(map) = &self.servers else { return with(probe).await };
        // A slot that is on its way says nothing about the node.
        for _ in 0..SLOTS_TRIED {
            let after = connection.probed.get();
            let Some(slot) = map.slot_of(connection, after) else { return Ok(()) }; // it holds nothing yet
            match with(key_name::in_slot(&probe, slot)).await {
                Err(error) if moves(&error) => {
                    self.state.topology.outdate("a probed slot has moved");
                    connection.probed.set(slot + 1);
                }
                done => return done,
            }
        }
        Ok(())
    }

    /// Has the server tell the time.
    async fn try_read(
        &self,
        connection: &Connection,
        channel: &mut MultiplexedConnection,
    ) -> RedisResult<()> {
        let sent = self.clock.now();
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(channel).await?;
        let time = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000));
        let received = self.clock.now();
        self.state.seen(&connection.clock, Time::from_nanos(time), sent, received);
        connection.heard(received);
        Ok(())
    }

    /// Monitors a connection until it breaks, so that a server that does not answer or takes no writes is noticed before
    /// requests notice. One worker checks for all. A worker checks its own connection when another has lost the server or
    /// its own calls are not answered; one other worker checks too, because one connection alone may be at fault.
    async fn heartbeat(self: &Rc<Self>, connection: &Rc<Connection>, mut channel: MultiplexedConnection) {
        let mut alarm = self.state.alarm.subscribe();
        loop {
            // Workers come in no order, so that the connection of each is looked at now and then.
            let until_next = ANSWERS + Duration::from_millis(u64::from(random()[0]) / 16);
            let look = tokio::select! {
                () = connection.broken() => return,
                () = connection.fell_silent.notified() => Some(Look::Answers),
                () = connection.watch.doubted.notified() => {
                    let claimed = connection.watch.claims(Look::AnswersMe, self.clock.now(), ANSWERS_ME);
                    claimed.then_some(Look::AnswersMe)
                }
                _ = alarm.changed() => Some(Look::TakesWrites),
                () = tokio::time::sleep(until_next) => {
                    let now = self.clock.now();
                    let every = [(Look::TakesWrites, TAKES_WRITES), (Look::Answers, ANSWERS)];
                    every.into_iter().find(|(look, every)| connection.watch.claims(*look, now, *every)).map(|(look, _)| look)
                }
            };
            let looked = async {
                match look {
                    None => Ok(()),
                    Some(Look::Answers | Look::AnswersMe) => self.try_read(connection, &mut channel).await,
                    Some(Look::TakesWrites) => {
                        self.try_write(connection, &mut channel).await?;
                        connection.heard(self.clock.now());
                        Ok(())
                    }
                }
            };
            match tokio::time::timeout(DIAL, looked).await {
                Ok(Ok(())) if look.is_some() && self.state.unreported.any() => {
                    self.report(connection, &channel, |_| true).await;
                }
                Ok(Ok(())) => {}
                Ok(Err(error)) => connection.shut(one_line(&error)),
                Err(_) => connection.shut(LATE.to_owned()),
            }
        }
    }

    /// Whether a server holds the keys of this tag.
    pub(super) fn holds_tag(&self, connection: &Rc<Connection>, tag: Tag) -> bool {
        match &self.servers {
            Servers::One(_) => true,
            Servers::Cluster(_) => {
                self.servers.of(tag.slot()).is_some_and(|owner| Rc::ptr_eq(&owner, connection))
            }
        }
    }

    /// The server of a slot; waits for the first map of the cluster.
    pub(super) async fn mapped(&self, slot: u16, until: tokio::time::Instant) -> Option<Rc<Connection>> {
        if let Servers::Cluster(map) = &self.servers {
            while !map.ever.get() {
                tokio::time::timeout_at(until, map.looked.notified()).await.ok()?;
            }
        }
        self.servers.of(slot)
    }
}

/// Whether an error says that a slot is elsewhere or on its way, and nothing about the node.
pub(super) fn moves(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    [Moved, Ask, TryAgain].iter().any(|kind| error.kind() == ErrorKind::Server(*kind))
}

/// That a server has the role that the sentinels say. A user who may not ask is told by the first write.
async fn is_master(channel: &mut MultiplexedConnection) -> RedisResult<()> {
    let role: Vec<Value> = match redis::cmd("ROLE").query_async(channel).await {
        Err(error) if denied(&error) => return Ok(()),
        role => role?,
    };
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        _ => Err((ErrorKind::Io, "the server that the sentinels name says that it is no master").into()),
    }
}

/// An error in one line.
pub(super) fn one_line(error: &RedisError) -> String {
    error.to_string().replace('\n', " ")
}
