//! The queue of a name, which several gateways share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use sluicegate_counters_redis::{Clock, Locator, Settings};
use sluicegate_queue::{
    Accepted, Bounds, Cancelled, Claimed, DeadLetters, End, Entry, Figures, Id, MAX_DEAD_LETTERS, MAX_OF_KEY,
    Message, Order, Refused, State,
};
use sluicegate_redis_link::{Line, Script, State as Connection, keep};
use tokio::task::JoinSet;

use crate::durability::Durability;
use crate::error::RedisQueueError;
use crate::reply::{Items, hex, number};
use crate::scripts::{ACCEPT, BACKLOG, CANCEL, CLAIM, DEAD, END, EXPIRE, FIGURES, LIST, RENEW, WAKE};

/// How long a claim holds that is not renewed.
pub const LEASE: Duration = Duration::from_secs(15);

/// The longest time for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// So often a call is made that may be repeated.
const ATTEMPTS: u32 = 3;

type Result<T> = std::result::Result<T, RedisQueueError>;

/// A queue in Redis: on one server, the master that sentinels name, or the node of a cluster that holds its slot.
///
/// Any number of tasks and threads may use it. No call takes longer than some seconds; while no connection can be opened, calls fail at
/// once. Dropping it ends its tasks. Times are milliseconds since 1970 on the clock of the caller.
pub struct RedisQueue {
    /// For all but what is accepted: confirmations of that make a connection wait.
    line: Arc<Line>,
    accepting: Arc<Line>,
    base: String,
    limit: String,
    durability: Arc<Mutex<Option<Durability>>>,
    _tasks: JoinSet<()>,
}

/// Messages that were claimed.
#[derive(Debug)]
pub struct Claims {
    /// The messages.
    pub claimed: Vec<Claimed>,
    /// In how many milliseconds another one may be due; `None` if none waits.
    pub next_due: Option<u64>,
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
        let durability = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        for line in [&line, &accepting] {
            let locator = Locator::new(settings.clone(), *clock, &tag);
            tasks.spawn(keep(Arc::clone(line), locator));
        }
        tasks.spawn(watch(Arc::clone(&accepting), Arc::clone(&durability), base.clone()));
        Self { line, accepting, base, limit: limit.to_owned(), durability, _tasks: tasks }
    }

    /// How safely the server keeps what it has accepted; `None` while that is not known.
    pub fn durability(&self) -> Option<Durability> {
        *self.durability.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut attempt = 1;
        let value = loop {
            match self.accept_once(&arguments).await {
                Ok(value) => break value,
                // The same message is stored once, however often it comes.
                Err(RedisQueueError::Away(_) | RedisQueueError::Unconfirmed(_)) if attempt < ATTEMPTS => {
                    attempt += 1
                }
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
                let (ahead, of_key, is_duplicate) = (items.number()?, items.number()?, items.number()? == 1);
                // What an attempt of this call has stored is no duplicate.
                Ok(Ok(Accepted {
                    id,
                    ahead,
                    of_key,
                    is_duplicate: is_duplicate && (attempt == 1 || id != message.id),
                }))
            }
        }
    }

    async fn accept_once(&self, arguments: &impl Fn(&mut Cmd)) -> Result<Value> {
        let durability =
            self.durability().ok_or_else(|| RedisQueueError::Away("it was not reached yet".into()))?;
        let keys = [self.base.as_str()];
        let Some(confirmation) = durability.confirmation(TIMEOUT / 2) else {
            return Ok(self.accepting.write(&ACCEPT, &keys, arguments, TIMEOUT).await?);
        };
        let (value, confirmed) =
            self.accepting.write_then(&ACCEPT, &keys, arguments, &confirmation, TIMEOUT).await?;
        let count = match confirmed {
            Value::Int(count) => count,
            Value::Array(counts) => counts.first().map_or(0, |count| match count {
                Value::Int(count) => *count,
                _ => 0,
            }),
            _ => 0,
        };
        match count {
            0 => Err(RedisQueueError::Unconfirmed(
                "neither the disk nor a replica has confirmed a request in time".into(),
            )),
            _ => Ok(value),
        }
    }

    /// Begins an attempt for each of at most `max` messages that are due. It holds for [`LEASE`] from when this is called, unless it is
    /// [renewed](Self::renew).
    ///
    /// # Errors
    /// If Redis does not answer. Messages that were claimed all the same are claimed again after the lease.
    pub async fn claim(&self, now: u64, keep: u64, max: usize) -> Result<Claims> {
        let lease = LEASE.as_millis() as u64;
        let value = self.write(&CLAIM, |call| _ = call.arg(max).arg(lease).arg(keep)).await?;
        let mut items = Items::of(value)?;
        let next_due = u64::try_from(items.signed()?).ok();
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
        Ok(Claims { claimed, next_due })
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
        let mut items = Items::of(self.read(&RENEW, arguments).await?)?;
        claims.iter().map(|_| Ok(items.number()? == 1)).collect()
    }

    /// Ends the attempt of this claim. Returns whether it was still in progress.
    ///
    /// # Errors
    /// If Redis does not answer. The call can be repeated: then it may return `false` because it has succeeded before.
    pub async fn end(&self, id: Id, claim: u64, end: &End, now: u64, keep: u64) -> Result<bool> {
        let from_now = |time: u64| time.saturating_sub(now) as i64;
        let (what, text, pause) = match end {
            End::Delivered { answer } => ("delivered", &answer[..], -1),
            End::Failed { reason } => ("failed", reason.as_bytes(), -1),
            End::Again { due, reason } => ("again", reason.as_bytes(), from_now(*due)),
            End::Released { until } => ("released", &[][..], until.map_or(-1, from_now)),
        };
        let id = id.to_string();
        let arguments =
            |call: &mut Cmd| _ = call.arg(&id).arg(claim).arg(what).arg(text).arg(pause).arg(keep);
        Ok(number(&self.write(&END, arguments).await?)? == 1)
    }

    /// Lets at most `max` consumers that are paused have a turn again. Returns how many there were.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn wake(&self, max: usize) -> Result<u64> {
        number(&self.read(&WAKE, |call| _ = call.arg(max)).await?)
    }

    /// Cancels a message of this owner that waits.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn cancel(&self, id: Id, owner: &[u8; 32], keep: u64) -> Result<Cancelled> {
        let (id, owner) = (id.to_string(), hex(owner));
        let value = self.write(&CANCEL, |call| _ = call.arg(&id).arg(&owner).arg(keep)).await?;
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

    /// Ends at most `max` messages whose time is over, and removes as many that are to be forgotten. Returns how many there were.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn expire(&self, keep: u64, max: usize) -> Result<u64> {
        number(&self.read(&EXPIRE, |call| _ = call.arg(max).arg(keep)).await?)
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
        number(&self.write(&DEAD, arguments).await?)
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
        let mut items = Items::of(self.read(&LIST, arguments).await?)?;
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
        let mut items = Items::of(self.read(&FIGURES, |_| ()).await?)?;
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
        let value = self.read(&BACKLOG, |call| _ = call.arg(&key).arg(u8::from(in_order))).await?;
        Ok(number(&value)? == 1)
    }

    async fn read(&self, script: &Script, arguments: impl Fn(&mut Cmd)) -> Result<Value> {
        Ok(self.line.read(script, &[&self.base], arguments, TIMEOUT).await?)
    }

    async fn write(&self, script: &Script, arguments: impl Fn(&mut Cmd)) -> Result<Value> {
        Ok(self.line.write(script, &[&self.base], arguments, TIMEOUT).await?)
    }
}

/// Finds out, for each connection, how safely its server keeps what it has accepted, and warns of what may be lost.
async fn watch(line: Arc<Line>, durability: Arc<Mutex<Option<Durability>>>, base: String) {
    let mut states = line.states();
    let mut warned = None;
    loop {
        let is_up = matches!(&*states.borrow_and_update(), Connection::Up(_));
        let found = if is_up { Some(Durability::of(&line, TIMEOUT).await) } else { None };
        if let Some(risk) = found.and_then(Durability::risk).filter(|risk| warned != Some(*risk)) {
            tracing::warn!("the queue {base} in Redis: {risk}");
            warned = Some(risk);
        }
        *durability.lock().unwrap_or_else(PoisonError::into_inner) = found;
        // Replicas come and go without a new connection.
        let changed = tokio::time::timeout(Duration::from_secs(1), states.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}
