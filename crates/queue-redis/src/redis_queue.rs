//! The queue of a name, which several gateways share.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use sluicegate_counters_redis::{Clock, Locator, Settings};
use sluicegate_queue::{
    Accepted, Bounds, Cancelled, Claimed, Claims, DeadLetters, End, Entry, Figures, Id, LONGEST_WAIT,
    MAX_DEAD_LETTERS, MAX_OF_KEY, Message, Order, Overdue, Refused, State,
};
use sluicegate_redis_link::{Line, Script, State as Connection, keep};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::durability::Durability;
use crate::error::RedisQueueError;
use crate::reply::{Items, hex, number};
use crate::scripts::{ACCEPT, BACKLOG, CANCEL, CLAIM, DEAD, END, EXPIRE, FIGURES, LIST, RENEW, WAKE};

/// How long a claim holds that is not renewed.
pub const LEASE: Duration = Duration::from_secs(15);

/// The longest time for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time until a message is stored, confirmations included.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest time for a confirmation: with `appendfsync everysec` the disk has what was written after a second or more.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(3);
/// How many times a call that may be repeated is made at most.
const ATTEMPTS: u32 = 3;

type Result<T> = std::result::Result<T, RedisQueueError>;

/// A queue in Redis: on one server, the master that sentinels name, or the node of a cluster that holds its slot.
///
/// Any number of tasks and threads may use it. No call takes longer than some seconds; while no connection can be opened, calls fail at
/// once. Dropping it ends its tasks. Times are milliseconds since 1970 on the clock of the caller.
pub struct RedisQueue {
    /// For all calls except [`accept`](Self::accept), whose confirmations make the calls behind them wait.
    line: Arc<Line>,
    accepting: Arc<Line>,
    base: String,
    limit: String,
    durability: watch::Sender<Option<Durability>>,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for RedisQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisQueue").field("base", &self.base).finish_non_exhaustive()
    }
}

impl RedisQueue {
    /// Begins to connect, without waiting for it. `name` is that of the queue, `limit` the one that it is of.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with timers and I/O.
    pub fn open(settings: &Settings, clock: &Clock, name: &str, limit: &str) -> Self {
        let tag = format!("queue:{name}");
        let base = format!("{}:{{{tag}}}:", settings.prefix);
        let (line, accepting) = (Arc::new(Line::default()), Arc::new(Line::default()));
        let durability = watch::Sender::new(None);
        let mut tasks = JoinSet::new();
        // A confirmation delays every command behind it, including the check whether the server answers.
        let patient = Settings { timeout: settings.timeout.max(ACCEPT_TIMEOUT), ..settings.clone() };
        for (line, settings) in [(&line, settings.clone()), (&accepting, patient)] {
            tasks.spawn(keep(Arc::clone(line), Locator::new(settings, *clock, &tag)));
        }
        tasks.spawn(follow_durability(Arc::clone(&accepting), durability.clone(), base.clone()));
        Self { line, accepting, base, limit: limit.to_owned(), durability, _tasks: tasks }
    }

    /// How safely the server keeps what it has accepted; `None` while that is not known.
    pub fn durability(&self) -> Option<Durability> {
        *self.durability.borrow()
    }

    /// Stores a message, as safely as the server is set up for. A request that an earlier one has stored is not stored again.
    ///
    /// # Errors
    /// If Redis does not answer, or does not confirm that the message is safe. The inner result says why the queue refuses it.
    pub async fn accept(
        &self,
        message: &Message,
        bounds: Bounds,
    ) -> Result<std::result::Result<Accepted, Refused>> {
        let idempotency =
            message.idempotency.map(|idempotency| (hex(&idempotency.key), hex(&idempotency.content)));
        let (idempotency, content) = idempotency.unwrap_or_default();
        let (id, key, owner) = (message.id.to_string(), hex(&message.key), hex(&message.owner));
        let arguments = |call: &mut Cmd| {
            call.arg(&id).arg(&key).arg(&message.consumer).arg(&owner).arg(&idempotency).arg(&content);
            call.arg(u8::from(message.order == Order::Key));
            call.arg(message.expires.saturating_sub(message.accepted));
            call.arg(&message.request).arg(bounds.max_length).arg(bounds.max_bytes).arg(MAX_OF_KEY);
        };
        let until = Instant::now() + ACCEPT_TIMEOUT;
        let mut attempt = 1;
        let value = loop {
            match self.accept_once(&arguments, until).await {
                Ok(value) => break value,
                // The same message is stored once, however often it comes.
                Err(RedisQueueError::Away(_)) if attempt < ATTEMPTS && Instant::now() < until => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        let mut items = Items::of(value)?;
        let first = items.text()?;
        match first.as_str() {
            "full" => Ok(Err(Refused::Full { length: items.number()? })),
            "conflict" => Ok(Err(Refused::Conflict)),
            _ => {
                let id = first.parse().map_err(|_| RedisQueueError::Content("an id was expected"))?;
                let state = items.state()?;
                let (ahead, of_key, is_duplicate) = (items.number()?, items.number()?, items.number()? == 1);
                // A message that an earlier attempt of this same call has stored is not a duplicate.
                Ok(Ok(Accepted {
                    id,
                    state,
                    ahead,
                    of_key,
                    is_duplicate: is_duplicate && (attempt == 1 || id != message.id),
                }))
            }
        }
    }

    async fn accept_once(&self, arguments: &impl Fn(&mut Cmd), until: Instant) -> Result<Value> {
        self.accepting.link(until).await?;
        let mut known = self.durability.subscribe();
        let durability = tokio::time::timeout_at(until, known.wait_for(Option::is_some)).await;
        let durability = durability.ok().and_then(|known| *known.ok()?);
        let unknown =
            || RedisQueueError::Away("it does not tell its persistence settings (CONFIG GET, INFO)".into());
        let confirmations = durability.ok_or_else(unknown)?.confirmations(CONFIRM_TIMEOUT);
        let (keys, left) = ([self.base.as_str()], until.saturating_duration_since(Instant::now()));
        let called = self.accepting.call_once_then(&ACCEPT, &keys, arguments, &confirmations, left);
        let (value, confirmed) = called.await?;
        let is_confirmed = |answer: &Value| match answer {
            Value::Int(count) => *count > 0,
            Value::Array(counts) => matches!(counts.first(), Some(Value::Int(count)) if *count > 0),
            _ => false,
        };
        if !confirmed.iter().all(is_confirmed) {
            let why = "the disk or a replica has not confirmed a request in time";
            return Err(RedisQueueError::Unconfirmed(why.into()));
        }
        Ok(value)
    }

    /// Begins an attempt for each of at most `max` messages that are due. It holds for [`LEASE`] from when this is called, unless it is
    /// [renewed](Self::renew).
    ///
    /// # Errors
    /// If Redis does not answer. Messages that were claimed all the same are claimed again after the lease.
    pub async fn claim(&self, now: u64, keep: u64, max: usize) -> Result<Claims> {
        let lease = LEASE.as_millis() as u64;
        let value =
            self.call_once(&CLAIM, |call| _ = call.arg(max).arg(lease).arg(keep).arg(LONGEST_WAIT)).await?;
        let mut items = Items::of(value)?;
        let until_next = u64::try_from(items.signed()?).ok();
        let next_due = until_next.map(|millis| if millis == 0 { 0 } else { now.saturating_add(millis) });
        let expired = items.number()?;
        let mut claimed = Vec::new();
        while !items.is_empty() {
            claimed.push(Claimed {
                id: items.id()?,
                key: items.bytes()?,
                consumer: items.text()?,
                claim: items.number()?,
                attempt: u32::try_from(items.number()?).unwrap_or(u32::MAX),
                accepted: now.saturating_sub(items.number()?),
                request: items.bytes()?,
            });
        }
        Ok(Claims { claimed, expired, next_due })
    }

    /// Lets claims hold for [`LEASE`] from when this is called. Returns for each whether its attempt is in progress.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn renew(&self, claims: &[(Id, u64)]) -> Result<Vec<bool>> {
        let lease = LEASE.as_millis() as u64;
        let arguments = |call: &mut Cmd| {
            call.arg(lease);
            claims.iter().for_each(|(id, claim)| _ = call.arg(id.to_string()).arg(*claim));
        };
        let mut items = Items::of(self.call_repeatable(&RENEW, arguments).await?)?;
        claims.iter().map(|_| Ok(items.number()? == 1)).collect()
    }

    /// Ends the attempt of this claim. Returns whether it was still in progress.
    ///
    /// # Errors
    /// If Redis does not answer. The call can be repeated: then it may return `false` because it has succeeded before.
    pub async fn end(&self, id: Id, claim: u64, end: &End, now: u64, keep: u64) -> Result<bool> {
        let from_now = |time: u64| time.saturating_sub(now).min(LONGEST_WAIT) as i64;
        let (what, text, pause) = match end {
            End::Delivered { answer } => ("delivered", &answer[..], -1),
            End::Failed { reason } => ("failed", reason.as_bytes(), -1),
            End::Again { due, reason } => ("again", reason.as_bytes(), from_now(*due)),
            End::Released { until } => ("released", &[][..], until.map_or(-1, from_now)),
        };
        let id = id.to_string();
        let arguments =
            |call: &mut Cmd| _ = call.arg(&id).arg(claim).arg(what).arg(text).arg(pause).arg(keep);
        Ok(number(&self.call_once(&END, arguments).await?)? == 1)
    }

    /// Lets at most `max` consumers that are paused have a turn again. Returns how many there were.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn wake(&self, max: usize) -> Result<u64> {
        number(&self.call_repeatable(&WAKE, |call| _ = call.arg(max)).await?)
    }

    /// Cancels a message of this owner that waits.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn cancel(&self, id: Id, owner: &[u8; 32], keep: u64) -> Result<Cancelled> {
        let (id, owner) = (id.to_string(), hex(owner));
        let value = self.call_once(&CANCEL, |call| _ = call.arg(&id).arg(&owner).arg(keep)).await?;
        let answer = Items::of(Value::Array(vec![value]))?.text()?;
        match answer.as_str() {
            "done" => Ok(Cancelled::Done),
            "none" => Ok(Cancelled::NotFound),
            state => {
                let state = state.parse().ok().and_then(State::of);
                state.map(Cancelled::TooLate).ok_or(RedisQueueError::Content("a state was expected"))
            }
        }
    }

    /// Ends at most `max` messages whose time is over, and removes as many that ended long ago.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn expire(&self, keep: u64, max: usize) -> Result<Overdue> {
        let answer = self
            .call_repeatable(&EXPIRE, |call| _ = call.arg(max).arg(keep).arg(LEASE.as_millis() as u64))
            .await?;
        let mut items = Items::of(answer)?;
        Ok(Overdue { expired: items.number()?, removed: items.number()? })
    }

    /// Queues dead letters again, at most [`MAX_DEAD_LETTERS`], for `ttl` milliseconds. Returns how many there were.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn retry(&self, which: &DeadLetters, ttl: u64) -> Result<u64> {
        self.change_dead("retry", which, ttl).await
    }

    /// Removes dead letters, at most [`MAX_DEAD_LETTERS`]. Returns how many there were.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn drop_failed(&self, which: &DeadLetters) -> Result<u64> {
        self.change_dead("drop", which, 0).await
    }

    async fn change_dead(&self, what: &str, which: &DeadLetters, ttl: u64) -> Result<u64> {
        let id = match which {
            DeadLetters::One(id) => id.to_string(),
            DeadLetters::AllOf(_) => String::new(),
        };
        let arguments = |call: &mut Cmd| _ = call.arg(what).arg(&id).arg(MAX_DEAD_LETTERS).arg(ttl);
        number(&self.call_once(&DEAD, arguments).await?)
    }

    /// The message of this name.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn get(&self, id: Id, now: u64) -> Result<Option<Entry>> {
        let id = id.to_string();
        let found = self.entries(|call| _ = call.arg("one").arg(&id), now).await?;
        Ok(found.into_iter().next())
    }

    /// A page of the dead letters, or of the messages that have not ended: those whose number is above `after`.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn list(&self, failed: bool, after: u64, max: usize, now: u64) -> Result<Vec<Entry>> {
        let which = if failed { "failed" } else { "open" };
        self.entries(|call| _ = call.arg(which).arg(after).arg(max), now).await
    }

    async fn entries(&self, arguments: impl Fn(&mut Cmd), now: u64) -> Result<Vec<Entry>> {
        let mut items = Items::of(self.call_repeatable(&LIST, arguments).await?)?;
        let (server, ended) = (items.number()?, items.number()?);
        let shift = now.cast_signed() - server.cast_signed();
        let mut entries = Vec::new();
        while !items.is_empty() {
            entries.push(items.entry(&self.limit, ended, shift)?);
        }
        Ok(entries)
    }

    /// The figures.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn figures(&self, now: u64) -> Result<Figures> {
        let mut items = Items::of(self.call_repeatable(&FIGURES, |_| ()).await?)?;
        let (length, bytes, failed) = (items.number()?, items.number()?, items.number()?);
        let age = u64::try_from(items.signed()?).ok();
        Ok(Figures { length, bytes, failed, oldest: age.map(|age| now.saturating_sub(age)) })
    }

    /// Whether messages of this key have to be delivered before a new one: one is due, or with `in_order` one has not ended.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn has_backlog(&self, key: &[u8], in_order: bool) -> Result<bool> {
        let key = hex(key);
        let value = self.call_repeatable(&BACKLOG, |call| _ = call.arg(&key).arg(u8::from(in_order))).await?;
        Ok(number(&value)? == 1)
    }

    async fn call_repeatable(&self, script: &Script, arguments: impl Fn(&mut Cmd)) -> Result<Value> {
        Ok(self.line.call_repeatable(script, &[&self.base], arguments, TIMEOUT).await?)
    }

    async fn call_once(&self, script: &Script, arguments: impl Fn(&mut Cmd)) -> Result<Value> {
        Ok(self.line.call_once(script, &[&self.base], arguments, TIMEOUT).await?)
    }
}

/// Finds out, for each connection, how safely its server keeps what it has accepted, and warns of what may be lost.
async fn follow_durability(line: Arc<Line>, durability: watch::Sender<Option<Durability>>, base: String) {
    let mut states = line.states();
    let (mut of_link, mut warned) = (None, None);
    loop {
        let link = match &*states.borrow_and_update() {
            Connection::Up(link) => Some(Arc::clone(link)),
            _ => None,
        };
        let is_same = of_link.as_ref().zip(link.as_ref()).is_some_and(|(of, is)| Arc::ptr_eq(of, is));
        if !is_same {
            durability.send_replace(None);
            of_link = None;
        }
        if let Some(link) = link
            && let Ok(found) = Durability::of(&line, TIMEOUT).await
        {
            if let Some(risk) = found.risk().filter(|risk| warned != Some(*risk)) {
                tracing::warn!("the queue {base} in Redis: {risk}");
                warned = Some(risk);
            }
            durability.send_replace(Some(found));
            of_link = Some(link);
        }
        // Replicas come and go without a new connection.
        let changed = tokio::time::timeout(Duration::from_secs(1), states.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}
