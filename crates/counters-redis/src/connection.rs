//! One worker's connection to one server: calls with a deadline, and a circuit breaker that opens when they fail.

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
use super::errors::LATE;
use super::places::Places;
use super::random::random;
use super::reply::Malformed;
use super::scripts::{self, ScriptForm, Scripts};
use super::server_clock::ServerClock;
use super::server_watch::ServerWatch;
use crate::Address;
use crate::Clock;

/// The share of the timeout, as a fraction, after which a server that answers no call in flight counts as silent.
const SILENT_AFTER: (u64, u64) = (5, 8);
/// How often a task yields to the connection before a call counts as late: the thread itself may have been busy.
const EXTRA_POLLS: usize = 2;
/// The largest number of calls in flight on one connection; more would only wait for their deadline.
const MAX_CALLS: u32 = 4096;

/// One worker's connection to one server, or to the master that the sentinels name.
pub(super) struct Connection {
    /// The name of the server in messages.
    pub(super) name: String,
    /// The address of the server; `None` if the sentinels know it.
    pub(super) address: Option<Address>,
    /// The master to which this connection was opened, and the one that the sentinels have named since.
    pub(super) master: RefCell<Option<Address>>,
    pub(super) next_master: RefCell<Option<Address>>,
    /// In a cluster, the first slot that is tried for a test write.
    pub(super) probe_from: Cell<u16>,
    /// The clock of the server.
    pub(super) clock: Arc<ServerClock>,
    /// What all workers know of the server.
    pub(super) watch: Arc<ServerWatch>,
    /// `None` while the breaker is open.
    channel: RefCell<Option<MultiplexedConnection>>,
    /// Whether the first attempt to connect has ended.
    attempted: Cell<bool>,
    /// Notified when the connection is opened or closed.
    changed: Notify,
    /// The number of connections so far, so that a late failure of an old one does not close a new one.
    epoch: Cell<u32>,
    breaker: Cell<Breaker>,
    calls: Cell<u32>,
    /// The time without an answer to any call in flight after which the server counts as silent.
    silent_after: Cell<Span>,
    /// The time since which no call was answered, while calls are in flight.
    unanswered_since: Cell<Time>,
    silent: Cell<bool>,
    /// Notified when the server becomes silent.
    pub(super) became_silent: Notify,
    /// How scripts are sent.
    script_form: Cell<ScriptForm>,
    /// Places that requests have freed and that the server does not know to be free.
    pub(super) freed: RefCell<Vec<Places>>,
    /// Notified when there are some.
    pub(super) some_freed: Notify,
    /// Why the breaker is open.
    reason: RefCell<String>,
    loading: Cell<bool>,
    loaded: Notify,
    /// The name under which places of concurrency limits are held over this connection.
    holder: Cell<[u8; 8]>,
    retired: Cell<bool>,
    /// Whether a report of requests that were admitted without the server is in progress.
    reporting: Cell<bool>,
}

/// A reply that no request waits for any more.
pub(super) type Pending = Pin<Box<dyn Future<Output = RedisResult<Value>>>>;

/// The effect of the result of a call on the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallClass {
    /// A request waits, and the server has most of the timeout. A timeout counts, a success resets the breaker.
    Full,
    /// A request waits, but most of its timeout is over. A timeout does not count.
    Short,
    /// Background call: a timeout counts against the breaker, a success does not reset it.
    Background,
}

/// Why a call has no answer.
pub(super) enum CallError {
    /// The breaker is open, or too many calls are in flight: nothing was sent.
    Down,
    /// There was no answer in time; it may still come.
    Late(Pending),
    /// The server does not know the script.
    NoScript,
    /// The cluster redirects to another server.
    Moved(RedisError),
    /// The slot is being moved, and its keys are on two servers.
    BetweenNodes,
    /// Something else has written a key of the call.
    WrongType,
    /// The server or the connection failed.
    Failed,
}

impl Connection {
    pub(super) fn new(
        name: String,
        address: Option<Address>,
        clock: Arc<ServerClock>,
        watch: Arc<ServerWatch>,
    ) -> Rc<Self> {
        Rc::new(Self {
            name,
            address,
            master: RefCell::default(),
            next_master: RefCell::default(),
            probe_from: Cell::new(0),
            clock,
            watch,
            channel: RefCell::new(None),
            attempted: Cell::new(false),
            changed: Notify::new(),
            epoch: Cell::new(0),
            breaker: Cell::default(),
            calls: Cell::new(0),
            silent_after: Cell::new(Span::SECOND),
            unanswered_since: Cell::new(Time::EPOCH),
            silent: Cell::new(false),
            became_silent: Notify::new(),
            script_form: Cell::default(),
            freed: RefCell::default(),
            some_freed: Notify::new(),
            reason: RefCell::new(String::new()),
            loading: Cell::new(false),
            loaded: Notify::new(),
            holder: Cell::new(random()),
            retired: Cell::new(false),
            reporting: Cell::new(false),
        })
    }

    /// Whether calls can be made.
    pub(super) fn is_up(&self) -> bool {
        self.channel.borrow().is_some()
    }

    /// Takes the longest time that a request waits for an answer.
    pub(super) fn set_timeout(&self, timeout: Span) {
        let silent_after = timeout.as_nanos() / SILENT_AFTER.1 * SILENT_AFTER.0;
        self.silent_after.set(Span::from_nanos(silent_after));
    }

    /// Waits until the first attempt to connect has ended, but not beyond `until`.
    pub(super) async fn first_attempt(&self, until: tokio::time::Instant) {
        while !self.attempted.get() {
            if tokio::time::timeout_at(until, self.changed.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Closes the breaker: calls use `channel` from now on.
    pub(super) fn open(&self, channel: MultiplexedConnection) {
        self.epoch.set(self.epoch.get() + 1);
        tracing::debug!(server = self.name, "store connection opened, circuit breaker closed");
        self.breaker.take();
        self.silent.set(false);
        *self.channel.borrow_mut() = Some(channel);
        self.attempted.set(true);
        self.changed.notify_waiters();
    }

    /// Opens the breaker: no calls until there is another connection.
    pub(super) fn close(&self, reason: String) {
        if self.channel.take().is_some() {
            tracing::debug!(server = self.name, reason, "store connection lost, circuit breaker opened");
        } else {
            tracing::debug!(server = self.name, reason, "no store connection");
        }
        *self.reason.borrow_mut() = reason;
        self.attempted.set(true);
        self.changed.notify_waiters();
    }

    /// Waits until the breaker is open.
    pub(super) async fn closed(&self) {
        while self.is_up() {
            self.changed.notified().await;
        }
    }

    /// Why the breaker is open.
    pub(super) fn reason(&self) -> String {
        self.reason.borrow().clone()
    }

    /// Opens the breaker for good: the node has left the cluster.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.close("it is no longer part of the cluster".to_owned());
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// The number of connections so far.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    /// The name under which places are held over this connection.
    pub(super) fn holder(&self) -> [u8; 8] {
        self.holder.get()
    }

    /// Holds places under another name from now on.
    pub(super) fn new_holder(&self) {
        self.holder.set(random());
    }

    /// Takes the form in which scripts are sent.
    pub(super) fn set_script_form(&self, form: ScriptForm) {
        self.script_form.set(form);
    }

    /// The call of a script in the form that this server accepts at once, for callers that send it themselves.
    pub(super) fn in_script_form(&self, command: Cmd) -> Cmd {
        match self.script_form.get() {
            ScriptForm::Sha1 => command,
            ScriptForm::TextIfUnknown | ScriptForm::Text => scripts::with_text(&command),
        }
    }

    /// Sends a command and waits for the answer until `until`. `asking`: sends ASKING first, because its slot is being
    /// moved to this server.
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
            let channel = self.channel()?;
            let sent: Pending = match asking {
                true => Box::pin(send_asking(channel, command)),
                false => Box::pin(send(channel, command)),
            };
            self.answer(sent, until, class, clock).await
        };
        match self.script_form.get() {
            ScriptForm::Sha1 => send(command).await,
            ScriptForm::Text => send(scripts::with_text(&command)).await,
            ScriptForm::TextIfUnknown => match send(command.clone()).await {
                Err(CallError::NoScript) => send(scripts::with_text(&command)).await,
                answer => answer,
            },
        }
    }

    /// Whether the server answers no calls, so that no request should wait for it.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.get() || self.watch.is_silent()
    }

    /// The connection, for a call.
    pub(super) fn channel(&self) -> Result<MultiplexedConnection, CallError> {
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
        let _in_flight = CallGuard::new(self, begun);
        let silent_at = || self.unanswered_since.get().plus(self.silent_after.get());
        let result = loop {
            let wake = if class == CallClass::Full { until.min(silent_at()) } else { until };
            if let Some(result) = in_time(sent.as_mut(), clock.instant(wake)).await {
                break result;
            }
            if wake == until {
                if class != CallClass::Short {
                    self.failed(epoch, LATE.to_owned(), Some((begun, clock.now())));
                }
                return Err(CallError::Late(sent));
            }
            if silent_at() <= wake {
                self.mark_silent();
                return Err(CallError::Late(sent));
            }
        };
        let error = match result {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            Ok(value) => {
                self.note_reply(clock.now());
                if class == CallClass::Full {
                    self.breaker.take();
                }
                return Ok(value);
            }
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) {
            self.note_reply(clock.now());
        }
        Err(match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => CallError::NoScript,
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => CallError::Moved(error),
            ErrorKind::Server(ServerErrorKind::TryAgain) => CallError::BetweenNodes,
            _ if error.code() == Some("WRONGTYPE") => CallError::WrongType,
            // What the scripts may not do was found out when the connection was opened. Operators miss the rest, and no request.
            _ if scripts::denied(&error) && class == CallClass::Background => {
                tracing::debug!(server = self.name, %error, "the user lacks a permission");
                CallError::Failed
            }
            kind => {
                let soft = [ServerErrorKind::ResponseError, ServerErrorKind::ClusterDown];
                let soft = soft.iter().any(|soft| kind == ErrorKind::Server(*soft));
                self.failed(epoch, error.to_string(), soft.then(|| (begun, clock.now())));
                CallError::Failed
            }
        })
    }

    /// Records that the server has answered.
    pub(super) fn note_reply(&self, now: Time) {
        self.unanswered_since.set(now);
        self.silent.set(false);
        self.watch.note_reply();
    }

    /// Records that no call in flight is answered: until one is, no request of any worker waits for this server. The
    /// heartbeat then checks whether the connection still works.
    fn mark_silent(&self) {
        tracing::debug!(
            server = self.name,
            "store calls are not answered: requests do not wait for this server"
        );
        self.silent.set(true);
        self.watch.mark_silent();
        self.became_silent.notify_one();
    }

    /// Records a failure of the connection of this epoch. A failed `call`, with its start and end, counts towards the
    /// breaker; any other failure opens it.
    fn failed(&self, epoch: u32, error: String, call: Option<(Time, Time)>) {
        if epoch != self.epoch.get() || !self.is_up() {
            return;
        }
        tracing::debug!(server = self.name, error, ends_connection = call.is_none(), "store call failed");
        let enough = call.is_none_or(|(begun, ended)| {
            let mut breaker = self.breaker.get();
            let enough = breaker.add(begun, ended);
            self.breaker.set(breaker);
            enough
        });
        if enough {
            self.close(error);
        }
    }

    /// Records that a call, which began and ended at these times, was answered by a reply that no script returns.
    pub(super) fn malformed(&self, what: &Malformed, begun: Time, ended: Time) {
        self.failed(self.epoch.get(), what.to_string(), Some((begun, ended)));
    }

    /// Begins a report of the requests that were admitted without the server, unless one is in progress.
    pub(super) fn begin_report(self: &Rc<Self>) -> Option<Reporting> {
        (!self.reporting.replace(true)).then(|| Reporting(Rc::clone(self)))
    }

    /// Loads the scripts into the server again, once for all callers that find them missing at the same time.
    pub(super) async fn reload(&self, until: Time, clock: &Clock) {
        let until = clock.instant(until);
        if self.loading.replace(true) {
            let _ = tokio::time::timeout_at(until, self.loaded.notified()).await;
            return;
        }
        let _loading = Loading(self);
        let Ok(channel) = self.channel() else { return };
        let load = async { Scripts::load(channel.clone(), Scripts::known(channel).await?).await };
        match tokio::time::timeout_at(until, load).await {
            Ok(Ok(form)) => {
                tracing::debug!(server = self.name, ?form, "scripts loaded again (NOSCRIPT)");
                self.script_form.set(form);
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

async fn send(mut channel: MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    channel.send_packed_command(&command).await
}

/// Sends ASKING before the command, for a slot that is being moved to this server.
async fn send_asking(mut channel: MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("ASKING").ignore().add_command(command);
    let mut replies = channel.send_packed_commands(&pipeline, 1, 1).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}

/// Waits for an answer until `until`. An answer that arrived while this thread was busy is in time: the connection may
/// read before the call counts as late.
pub(super) async fn in_time<T>(
    mut sent: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    until: tokio::time::Instant,
) -> Option<T> {
    if let Ok(result) = tokio::time::timeout_at(until, sent.as_mut()).await {
        return Some(result);
    }
    for _ in 0..EXTRA_POLLS {
        tokio::task::yield_now().await;
        if let Poll::Ready(result) = std::future::poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx))).await {
            return Some(result);
        }
    }
    None
}

/// Counts a call while it is in flight.
struct CallGuard<'a>(&'a Cell<u32>);

impl<'a> CallGuard<'a> {
    fn new(connection: &'a Connection, now: Time) -> Self {
        if connection.calls.get() == 0 {
            connection.unanswered_since.set(now);
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
