//! One worker's connection to one server: calls with a deadline, and a breaker that opens when they fail.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::Time;
use tokio::sync::Notify;

use super::scripts::Scripts;
use super::server_clock::ServerClock;
use super::wire::Malformed;
use crate::clock::Clock;
use crate::config::RedisAddress;

/// Calls in a row, one begun after the other has failed, that open the breaker. A broken connection opens it at once.
const TOLERATED: u32 = 3;
/// Calls that one connection may have under way; more would only wait for their deadline.
const MAX_CALLS: u32 = 4096;

/// One worker's connection to one server, or to whoever the sentinels say is the master.
pub(super) struct Link {
    /// What people call it.
    pub(super) name: String,
    /// Where it is, unless sentinels know.
    pub(super) fixed: Option<RedisAddress>,
    /// The server's clock.
    pub(super) clock: Arc<ServerClock>,
    connection: RefCell<Option<MultiplexedConnection>>,
    phase: Cell<Phase>,
    /// Counts the connections, so that a late failure of an old one does not break a new one.
    epoch: Cell<u32>,
    failures: Cell<u32>,
    /// When the last of them was found out.
    last_failure: Cell<Time>,
    calls: Cell<u32>,
    why: RefCell<String>,
    /// Told when the breaker opens.
    broken: Notify,
    /// Told when the first attempt to connect has ended.
    known: Notify,
    loading: Cell<bool>,
    loaded: Notify,
    /// Who holds places of concurrency limits over this connection.
    holder: Cell<[u8; 8]>,
    retired: Cell<bool>,
    /// Whether what was admitted without the server is being told.
    reporting: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Up,
    Down,
}

/// A reply that nobody waits for any more.
pub(super) type Pending = Pin<Box<dyn Future<Output = RedisResult<Value>>>>;

/// What a call says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// A request waits, and the server has all the time that it may need.
    Full,
    /// A request waits, but most of its time is over.
    Short,
    /// Nobody waits: to be late is a failure here too, but to be in time is no merit.
    Unhurried,
}

/// Why a call has no answer.
pub(super) enum Trouble {
    /// The breaker is open, or too much is under way: nothing was sent.
    Down,
    /// There was no answer in time; it may still come.
    Late(Pending),
    /// The server does not know the script.
    NoScript,
    /// Another server holds the slot, by the cluster's word.
    Moved(RedisError),
    /// The server, or the way to it, failed.
    Failed,
}

impl Link {
    pub(super) fn new(name: String, fixed: Option<RedisAddress>, clock: Arc<ServerClock>) -> Rc<Self> {
        Rc::new(Self {
            name,
            fixed,
            clock,
            connection: RefCell::new(None),
            phase: Cell::new(Phase::Starting),
            epoch: Cell::new(0),
            failures: Cell::new(0),
            last_failure: Cell::new(Time::EPOCH),
            calls: Cell::new(0),
            why: RefCell::new(String::new()),
            broken: Notify::new(),
            known: Notify::new(),
            loading: Cell::new(false),
            loaded: Notify::new(),
            holder: Cell::new(random()),
            retired: Cell::new(false),
            reporting: Cell::new(false),
        })
    }

    /// Whether calls can be made.
    pub(super) fn is_up(&self) -> bool {
        self.phase.get() == Phase::Up
    }

    /// Waits, but not beyond `until`, while the first attempt to connect is under way.
    pub(super) async fn known(&self, until: tokio::time::Instant) {
        while self.phase.get() == Phase::Starting {
            if tokio::time::timeout_at(until, self.known.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Calls go over this connection from now on.
    pub(super) fn open(&self, connection: MultiplexedConnection) {
        self.epoch.set(self.epoch.get() + 1);
        self.failures.set(0);
        *self.connection.borrow_mut() = Some(connection);
        self.phase.set(Phase::Up);
        self.known.notify_waiters();
    }

    /// No calls from now on, until there is another connection.
    pub(super) fn shut(&self, why: String) {
        *self.connection.borrow_mut() = None;
        *self.why.borrow_mut() = why;
        self.phase.set(Phase::Down);
        self.known.notify_waiters();
        self.broken.notify_one();
    }

    /// Waits until the breaker opens.
    pub(super) async fn broken(&self) {
        while self.is_up() {
            self.broken.notified().await;
        }
    }

    /// Why there is no connection.
    pub(super) fn why(&self) -> String {
        self.why.borrow().clone()
    }

    /// No calls any more, for good: the cluster no longer has this node.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.shut("it is no longer part of the cluster".to_owned());
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// Counts the connections.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    /// Who holds places over this connection.
    pub(super) fn holder(&self) -> [u8; 8] {
        self.holder.get()
    }

    /// Places are held under another name from now on.
    pub(super) fn new_holder(&self) {
        self.holder.set(random());
    }

    /// Sends a command and waits for the answer, but not beyond `until`.
    pub(super) async fn call(
        &self,
        command: Cmd,
        until: Time,
        weight: Weight,
        clock: &Clock,
    ) -> Result<Value, Trouble> {
        let mut connection = self.ready()?;
        let sent = Box::pin(async move { connection.send_packed_command(&command).await });
        self.answer(sent, until, weight, clock).await
    }

    /// Like `call`, for a slot that is on its way to this server.
    pub(super) async fn call_asking(
        &self,
        command: Cmd,
        until: Time,
        weight: Weight,
        clock: &Clock,
    ) -> Result<Value, Trouble> {
        let mut connection = self.ready()?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ASKING").ignore().add_command(command);
        let sent = Box::pin(async move {
            let mut replies = connection.send_packed_commands(&pipeline, 1, 1).await?;
            Ok(replies.pop().unwrap_or(Value::Nil))
        });
        self.answer(sent, until, weight, clock).await
    }

    /// The connection, for a call.
    pub(super) fn ready(&self) -> Result<MultiplexedConnection, Trouble> {
        if self.calls.get() >= MAX_CALLS {
            return Err(Trouble::Down);
        }
        self.connection.borrow().clone().ok_or(Trouble::Down)
    }

    async fn answer(
        &self,
        mut sent: Pending,
        until: Time,
        weight: Weight,
        clock: &Clock,
    ) -> Result<Value, Trouble> {
        let (epoch, begun) = (self.epoch.get(), clock.now());
        let _under_way = UnderWay::new(&self.calls);
        let result = tokio::select! {
            biased;
            result = &mut sent => result,
            () = tokio::time::sleep_until(clock.instant(until)) => {
                if weight != Weight::Short && begun >= self.last_failure.get() {
                    self.last_failure.set(clock.now());
                    self.failed(epoch, "it does not answer in time".to_owned(), false);
                }
                return Err(Trouble::Late(sent));
            }
        };
        let error = match result {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            Ok(value) => {
                if weight == Weight::Full {
                    self.failures.set(0);
                }
                return Ok(value);
            }
            Err(error) => error,
        };
        Err(match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Trouble::NoScript,
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => Trouble::Moved(error),
            // Keys of a slot that is on its way to another node: the others are well.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Trouble::Failed,
            kind => {
                let soft = [ServerErrorKind::ResponseError, ServerErrorKind::ClusterDown];
                self.failed(
                    epoch,
                    error.to_string(),
                    !soft.iter().any(|soft| kind == ErrorKind::Server(*soft)),
                );
                Trouble::Failed
            }
        })
    }

    /// Counts a failure of the connection that had this epoch.
    fn failed(&self, epoch: u32, why: String, for_good: bool) {
        if epoch != self.epoch.get() || !self.is_up() {
            return;
        }
        self.failures.set(self.failures.get() + 1);
        if for_good || self.failures.get() >= TOLERATED {
            self.shut(why);
        }
    }

    /// Notes a reply that none of the scripts gives.
    pub(super) fn malformed(&self, what: &Malformed) {
        self.failed(self.epoch.get(), what.to_string(), false);
    }

    /// Begins to tell what was admitted without the server, unless somebody does already.
    pub(super) fn begin_report(self: &Rc<Self>) -> Option<Reporting> {
        (!self.reporting.replace(true)).then(|| Reporting(Rc::clone(self)))
    }

    /// Gives the server its scripts again; however many callers find them missing, it is done once.
    pub(super) async fn reload(&self, until: Time, clock: &Clock) {
        let until = clock.instant(until);
        if self.loading.replace(true) {
            let _ = tokio::time::timeout_at(until, self.loaded.notified()).await;
            return;
        }
        let _loading = Loading(self);
        if let Ok(mut connection) = self.ready() {
            let _ = tokio::time::timeout_at(until, Scripts::load(&mut connection)).await;
        }
    }
}

/// That it is told what was admitted without the server, until this is dropped.
pub(super) struct Reporting(Rc<Link>);

impl Drop for Reporting {
    fn drop(&mut self) {
        self.0.reporting.set(false);
    }
}

/// That scripts are being loaded. Dropping it, however that comes, lets the next caller load them.
struct Loading<'a>(&'a Link);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.loading.set(false);
        self.0.loaded.notify_waiters();
    }
}

/// A name that nobody else has.
pub(super) fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes); // it has no way to fail once the process runs
    bytes
}

/// Counts a call while it is under way.
struct UnderWay<'a>(&'a Cell<u32>);

impl<'a> UnderWay<'a> {
    fn new(calls: &'a Cell<u32>) -> Self {
        calls.set(calls.get() + 1);
        Self(calls)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
