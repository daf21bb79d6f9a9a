//! One worker's connection to one server: calls with a deadline, and a breaker that opens when they fail.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::{Span, Time};
use tokio::sync::Notify;

use super::breaker::Breaker;
use super::lease::Places;
use super::protocol::Malformed;
use super::scripts::{self, Scripts, Sending};
use super::server_clock::ServerClock;
use super::server_watch::Watch;
use crate::Address;
use crate::Clock;

/// The share of the timeout after which a server that answers none of the calls under way counts as silent.
const PATIENCE: (u64, u64) = (5, 8);
/// The error of a call or a connection without an answer in time.
pub(super) const LATE: &str = "it does not answer in time";
/// How many times a thread yields to the connection before it takes a server for late: the thread may have been busy.
const SECOND_LOOKS: usize = 2;
/// Calls that one connection may have under way; more would only wait for their deadline.
const MAX_CALLS: u32 = 4096;

/// One worker's connection to one server, or to the master that sentinels name.
pub(super) struct Connection {
    /// Its name in messages.
    pub(super) name: String,
    /// Where it is, unless sentinels know.
    pub(super) fixed: Option<Address>,
    /// Where the master is that this connection is to, where sentinels name it, and the one that they name instead.
    pub(super) at: RefCell<Option<Address>>,
    pub(super) named: RefCell<Option<Address>>,
    /// In a cluster, the slot from which on one is looked for that can be written to.
    pub(super) probed: Cell<u16>,
    /// The server's clock.
    pub(super) clock: Arc<ServerClock>,
    /// What all workers know of the server.
    pub(super) watch: Arc<Watch>,
    channel: RefCell<Option<MultiplexedConnection>>,
    phase: Cell<Phase>,
    /// Counts the connections, so that a late failure of an old one does not break a new one.
    epoch: Cell<u32>,
    breaker: Cell<Breaker>,
    calls: Cell<u32>,
    /// How long calls may be under way and none be answered.
    patience: Cell<Span>,
    /// Since when none was answered, while calls are under way.
    unheard_since: Cell<Time>,
    /// Whether that has lasted too long.
    silent: Cell<bool>,
    /// Notified when it has.
    pub(super) fell_silent: Notify,
    /// How scripts are sent.
    sending: Cell<Sending>,
    /// Places that requests have left and the server does not know to be free.
    pub(super) freed: RefCell<Vec<Places>>,
    /// Notified when there are some.
    pub(super) some_freed: Notify,
    why: RefCell<String>,
    /// Notified when the breaker opens.
    broken: Notify,
    /// Notified when the first attempt to connect has ended.
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
pub(super) enum CallClass {
    /// A request waits, and the server has all the time that it may need.
    Full,
    /// A request waits, but most of its time is over.
    Short,
    /// Background call: a timeout counts against the breaker, a success does not reset it.
    Background,
}

/// Why a call has no answer.
pub(super) enum CallError {
    /// The breaker is open, or too much is under way: nothing was sent.
    Down,
    /// There was no answer in time; it may still come.
    Late(Pending),
    /// The server does not know the script.
    NoScript,
    /// Another server holds the slot, by the cluster's word.
    Moved(RedisError),
    /// The keys are on their way to another node, some here and some there.
    BetweenNodes,
    /// The server, or the way to it, failed.
    Failed,
}

impl Connection {
    pub(super) fn new(
        name: String,
        fixed: Option<Address>,
        clock: Arc<ServerClock>,
        watch: Arc<Watch>,
    ) -> Rc<Self> {
        Rc::new(Self {
            name,
            fixed,
            at: RefCell::default(),
            named: RefCell::default(),
            probed: Cell::new(0),
            clock,
            watch,
            channel: RefCell::new(None),
            phase: Cell::new(Phase::Starting),
            epoch: Cell::new(0),
            breaker: Cell::default(),
            calls: Cell::new(0),
            patience: Cell::new(Span::SECOND),
            unheard_since: Cell::new(Time::EPOCH),
            silent: Cell::new(false),
            fell_silent: Notify::new(),
            sending: Cell::default(),
            freed: RefCell::default(),
            some_freed: Notify::new(),
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

    /// Takes the longest that a request waits for an answer.
    pub(super) fn set_timeout(&self, timeout: Span) {
        self.patience.set(Span::from_nanos(timeout.as_nanos() / PATIENCE.1 * PATIENCE.0));
    }

    /// Waits, but not beyond `until`, while the first attempt to connect is under way.
    pub(super) async fn known(&self, until: tokio::time::Instant) {
        while self.phase.get() == Phase::Starting {
            if tokio::time::timeout_at(until, self.known.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Closes the breaker: calls go over `channel` from now on.
    pub(super) fn open(&self, channel: MultiplexedConnection) {
        self.epoch.set(self.epoch.get() + 1);
        tracing::debug!(server = self.name, "store connection opened, circuit breaker closed");
        self.breaker.take();
        self.silent.set(false);
        *self.channel.borrow_mut() = Some(channel);
        self.phase.set(Phase::Up);
        self.known.notify_waiters();
    }

    /// Opens the breaker: no calls until there is another connection.
    pub(super) fn shut(&self, why: String) {
        if self.channel.take().is_some() {
            tracing::debug!(
                server = self.name,
                reason = why,
                "store connection lost, circuit breaker opened"
            );
        } else {
            tracing::debug!(server = self.name, reason = why, "no store connection");
        }
        *self.why.borrow_mut() = why;
        self.phase.set(Phase::Down);
        self.known.notify_waiters();
        self.broken.notify_waiters();
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

    /// How scripts are sent over this connection.
    pub(super) fn set_sending(&self, sending: Sending) {
        self.sending.set(sending);
    }

    /// The call of a script as this server takes it, for those that send it themselves.
    pub(super) fn spelled(&self, command: Cmd) -> Cmd {
        match self.sending.get() {
            Sending::Name => command,
            Sending::TextIfUnknown | Sending::Text => scripts::with_text(&command),
        }
    }

    /// Sends a command and waits for the answer, but not beyond `until`. `asking`: its slot is on its way to this server.
    pub(super) async fn call(
        &self,
        command: Cmd,
        asking: bool,
        (until, class): (Time, CallClass),
        clock: &Clock,
    ) -> Result<Value, CallError> {
        if class != CallClass::Background && self.is_silent() {
            return Err(CallError::Down);
        }
        let send = async |command: Cmd| {
            let channel = self.ready()?;
            let sent: Pending = match asking {
                true => Box::pin(send_asking(channel, command)),
                false => Box::pin(send(channel, command)),
            };
            self.answer(sent, until, class, clock).await
        };
        match self.sending.get() {
            Sending::Name => send(command).await,
            Sending::Text => send(scripts::with_text(&command)).await,
            Sending::TextIfUnknown => match send(command.clone()).await {
                Err(CallError::NoScript) => send(scripts::with_text(&command)).await,
                answer => answer,
            },
        }
    }

    /// Whether no request should wait for the server, because it answers nobody.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.get() || self.watch.is_silent()
    }

    /// The connection, for a call.
    pub(super) fn ready(&self) -> Result<MultiplexedConnection, CallError> {
        if self.calls.get() >= MAX_CALLS {
            return Err(CallError::Down);
        }
        self.channel.borrow().clone().ok_or(CallError::Down)
    }

    async fn answer(
        &self,
        mut sent: Pending,
        until: Time,
        class: CallClass,
        clock: &Clock,
    ) -> Result<Value, CallError> {
        let (epoch, begun) = (self.epoch.get(), clock.now());
        let _under_way = CallGuard::new(self, begun);
        let result = loop {
            let silent_at = self.unheard_since.get().plus(self.patience.get());
            let wake = if class == CallClass::Full { until.min(silent_at) } else { until };
            if let Some(result) = in_time(&mut sent, clock.instant(wake)).await {
                break result;
            }
            if wake == until {
                if class != CallClass::Short {
                    self.failed(epoch, LATE.to_owned(), Some((begun, clock.now())));
                }
                return Err(CallError::Late(sent));
            }
            if self.unheard_since.get().plus(self.patience.get()) <= wake {
                self.fall_silent();
                return Err(CallError::Late(sent));
            }
        };
        let error = match result {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            Ok(value) => {
                self.heard(clock.now());
                if class == CallClass::Full {
                    self.breaker.take();
                }
                return Ok(value);
            }
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) {
            self.heard(clock.now());
        }
        Err(match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => CallError::NoScript,
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => CallError::Moved(error),
            ErrorKind::Server(ServerErrorKind::TryAgain) => CallError::BetweenNodes,
            kind => {
                let soft = [ServerErrorKind::ResponseError, ServerErrorKind::ClusterDown];
                let soft = soft.iter().any(|soft| kind == ErrorKind::Server(*soft));
                self.failed(epoch, error.to_string(), soft.then(|| (begun, clock.now())));
                CallError::Failed
            }
        })
    }

    /// Notes that the server has answered something.
    pub(super) fn heard(&self, now: Time) {
        self.unheard_since.set(now);
        self.silent.set(false);
        self.watch.heard();
    }

    /// Notes that none of the calls in flight is answered: until one is, no request of any worker waits for this server.
    /// `heartbeat` finds out whether the connection still works.
    fn fall_silent(&self) {
        tracing::debug!(
            server = self.name,
            "store calls are not answered: requests do not wait for this server"
        );
        self.silent.set(true);
        self.watch.falls_silent();
        self.fell_silent.notify_one();
    }

    /// Notes a failure of the connection of this epoch. A failed call counts towards the breaker; any other failure ends the
    /// connection.
    fn failed(&self, epoch: u32, why: String, call: Option<(Time, Time)>) {
        if epoch != self.epoch.get() || !self.is_up() {
            return;
        }
        tracing::debug!(
            server = self.name,
            error = why,
            ends_connection = call.is_none(),
            "store call failed"
        );
        let enough = call.is_none_or(|(begun, ended)| {
            let mut breaker = self.breaker.get();
            let enough = breaker.add(begun, ended);
            self.breaker.set(breaker);
            enough
        });
        if enough {
            self.shut(why);
        }
    }

    /// Notes that a call, which began and ended then, got a reply that none of the scripts gives.
    pub(super) fn malformed(&self, what: &Malformed, begun: Time, ended: Time) {
        self.failed(self.epoch.get(), what.to_string(), Some((begun, ended)));
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
        let Ok(mut channel) = self.ready() else { return };
        match tokio::time::timeout_at(until, Scripts::load(&mut channel)).await {
            Ok(Ok(sending)) => {
                tracing::debug!(server = self.name, ?sending, "scripts loaded again (NOSCRIPT)");
                self.sending.set(sending);
            }
            Ok(Err(error)) => tracing::debug!(server = self.name, %error, "scripts cannot be loaded"),
            Err(_) => tracing::debug!(server = self.name, error = LATE, "scripts cannot be loaded"),
        }
    }
}

/// A report is in progress until this is dropped.
pub(super) struct Reporting(Rc<Connection>);

impl Drop for Reporting {
    fn drop(&mut self) {
        self.0.reporting.set(false);
    }
}

/// Scripts are being loaded until this is dropped; then the next caller may load them.
struct Loading<'a>(&'a Connection);

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

async fn send(mut channel: MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    channel.send_packed_command(&command).await
}

/// The same, for a slot that is on its way to this server.
async fn send_asking(mut channel: MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("ASKING").ignore().add_command(command);
    let mut replies = channel.send_packed_commands(&pipeline, 1, 1).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}

/// An answer that comes until then. One that came while this thread was busy elsewhere is in time: the thread lets the
/// connection read before it gives up.
async fn in_time(sent: &mut Pending, until: tokio::time::Instant) -> Option<RedisResult<Value>> {
    if let Ok(result) = tokio::time::timeout_at(until, &mut *sent).await {
        return Some(result);
    }
    for _ in 0..SECOND_LOOKS {
        tokio::task::yield_now().await;
        if let Poll::Ready(result) =
            std::future::poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await
        {
            return Some(result);
        }
    }
    None
}

/// Counts a call while it is under way.
struct CallGuard<'a>(&'a Cell<u32>);

impl<'a> CallGuard<'a> {
    fn new(connection: &'a Connection, now: Time) -> Self {
        if connection.calls.get() == 0 {
            connection.unheard_since.set(now);
        }
        connection.calls.set(connection.calls.get() + 1);
        Self(&connection.calls)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
