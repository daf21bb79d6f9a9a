//! The list of live gateways in the store, and what operators ask of the store. The supervisor thread does this.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_counters::{CountedLimit, Fingerprint, KeyState, KeyText, RemoteBan, RemoteState};
use sluicegate_limiter::{Span, Time, Usage};

use super::connection::{CallClass, CallError, Connection};
use super::item::is_stricter;
use super::key_name::{Tag, key_prefix};
use super::protocol::{self, Algorithms, Decided, Reply};
use super::scripts::SCRIPTS;
use super::store::Store;

/// The interval of heartbeats, and the time after which a gateway without one counts as dead.
const HEARTBEAT: Duration = Duration::from_millis(500);
const EXPIRY: Duration = Duration::from_secs(5);
/// The time after which the store forgets a pardon: far longer than the interval of heartbeats.
const PARDON_EXPIRY: Duration = Duration::from_secs(86_400);

/// The state of one key in the store.
#[derive(Clone, Debug)]
pub struct Peeked {
    /// Whether the key owes anything or is banned.
    pub known: bool,
    /// What the key has left.
    pub usage: Usage,
    /// The rest of its ban.
    pub banned_for: Option<Span>,
    /// The state.
    pub state: RemoteState,
    /// The ban in the store, if the limit bans.
    pub ban: Option<RemoteBan>,
    /// The time of the answer on the clock of the store.
    pub at: Time,
}

impl Store {
    /// Sends heartbeats until the store is closed. Calls `forget` with the name of each limit of which any gateway has
    /// pardoned a key.
    pub fn keep(self: &Rc<Self>, forget: impl Fn(&str) + 'static) {
        self.spawn(Rc::clone(self).sweep_leases());
        let store = Rc::clone(self);
        self.spawn(async move {
            loop {
                if store.announce("", &forget).await.is_none() {
                    store.state.count_gateways(None, store.clock.now());
                }
                tokio::time::sleep(HEARTBEAT).await;
            }
        });
    }

    async fn announce(self: &Rc<Self>, pardoned: &str, forget: &dyn Fn(&str)) -> Option<()> {
        let [gateways, pardons] = self.gateway_keys();
        let slot = super::key_name::slot(b"gateways");
        let until = self.clock.instant(self.clock.now().plus(self.background_timeout()));
        let connection = self.mapped(slot, until).await?;
        connection.first_attempt(until).await;
        let sent = self.clock.now();
        let now = connection.clock.earliest(self.clock.now()).as_nanos() / 1_000_000;
        let expiry = EXPIRY.as_millis() as u64;
        if !pardoned.is_empty() {
            self.send_to_gateways(redis::cmd("HINCRBY").arg(&pardons).arg(pardoned).arg(1)).await?;
            self.send_to_gateways(redis::cmd("PEXPIRE").arg(&pardons).arg(PARDON_EXPIRY.as_millis() as u64))
                .await?;
        }
        let commands = [
            redis::cmd("ZADD").arg(&gateways).arg(now + expiry).arg(&self.state.gateway).take(),
            redis::cmd("ZREMRANGEBYSCORE").arg(&gateways).arg("-inf").arg(now).take(),
            redis::cmd("PEXPIRE").arg(&gateways).arg(expiry).take(),
            redis::cmd("ZCARD").arg(&gateways).take(),
            redis::cmd("HGETALL").arg(&pardons).take(),
        ];
        // They are sent at once, in this order: the server may be far away.
        let answers = join_all(commands.iter().map(|command| self.send_to_gateways(command))).await;
        let answers: Vec<redis::Value> = answers.into_iter().collect::<Option<_>>()?;
        let [.., living, pardons]: [redis::Value; 5] = answers.try_into().ok()?;
        self.state.count_gateways(Some((redis::from_redis_value(living).ok()?, sent)), self.clock.now());
        let pardons: HashMap<String, i64> = redis::from_redis_value(pardons).ok()?;
        let before = self.pardons.replace(Some(pardons.clone()));
        for (limit, times) in &pardons {
            if before.as_ref().is_some_and(|before| before.get(limit) != Some(times)) {
                forget(limit);
            }
        }
        Some(())
    }

    /// Sends a command for the keys of gateways, for which no request waits. A key that something else has written is removed:
    /// the gateways write it again.
    pub(super) async fn send_to_gateways(self: &Rc<Self>, command: &redis::Cmd) -> Option<redis::Value> {
        let slot = super::key_name::slot(b"gateways");
        let connection = self.servers.owner_of(slot)?;
        let until = self.clock.now().plus(self.background_timeout());
        let send = async |command: redis::Cmd| {
            let sent = self.send(&connection, slot, until, CallClass::Background, |_| command.clone()).await;
            sent.map(|(_, value)| value)
        };
        match send(command.clone()).await {
            Err(CallError::WrongType) => {
                let keys = keys_of(command);
                tracing::warn!(
                    "something else has written {} in the store: removed. Does another program use this prefix?",
                    keys.iter().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>().join(", ")
                );
                send(redis::cmd("DEL").arg(keys).take()).await.ok()?;
                send(command.clone()).await.ok()
            }
            answer => answer.ok(),
        }
    }

    /// The keys of the list of live gateways and of the numbers of pardons by limit, in one slot.
    pub(super) fn gateway_keys(&self) -> [String; 2] {
        let prefix = &self.state.config().prefix;
        [format!("{prefix}:{{gateways}}"), format!("{prefix}:{{gateways}}:pardons")]
    }

    /// Gives back unspent tokens and removes the gateway from the list of live ones.
    pub async fn leave(self: &Rc<Self>) {
        self.end_leases();
        let [gateways, _] = self.gateway_keys();
        self.send_to_gateways(redis::cmd("ZREM").arg(&gateways).arg(&self.state.gateway)).await; // otherwise it expires
    }

    /// Reads the state of a key without charging it; `None` if the store does not answer within `within`.
    pub async fn peek(
        self: &Rc<Self>,
        limit: &CountedLimit,
        key: Fingerprint,
        text: &KeyText,
        within: Span,
    ) -> Option<Peeked> {
        self.read_key(limit, key, text, within, true).await
    }

    /// The same under a quota that may not be that of the key, such as that of another plan. The state is not remembered.
    pub async fn peek_under(
        self: &Rc<Self>,
        limit: &CountedLimit,
        key: Fingerprint,
        text: &KeyText,
        within: Span,
    ) -> Option<Peeked> {
        self.read_key(limit, key, text, within, false).await
    }

    async fn read_key(
        self: &Rc<Self>,
        limit: &CountedLimit,
        key: Fingerprint,
        text: &KeyText,
        within: Span,
        remembers: bool,
    ) -> Option<Peeked> {
        let tag = Tag::of(text);
        let slot = self.slot(tag);
        let connection = self.servers.owner_of(slot)?;
        let quota = limit.quota;
        let command = |connection: &Connection| {
            let name = tag.name(key_prefix(limit));
            let names = [Some(name), limit.ban.map(|_| tag.ban(key_prefix(limit)))];
            let names: Vec<&[u8]> = names.iter().flatten().map(Vec::as_slice).collect();
            let mut call = SCRIPTS.decide(Algorithms::of([&quota].into_iter())).call(names.into_iter());
            // The cost of requests: of a log, the reply has only the part that decides about this cost.
            let argument = limit
                .shared
                .as_ref()
                .and_then(|shared| shared.argument.clone())
                .unwrap_or_else(|| protocol::limit_argument(limit, 1));
            let argument = protocol::at(argument, &quota, || connection.clock.earliest(self.clock.now()));
            call.arg(0).arg(0).arg(&connection.holder()).arg(0).arg(&*argument);
            call
        };
        let until = self.clock.now().plus(within);
        let (_, value) = self.send(&connection, slot, until, CallClass::Background, command).await.ok()?;
        let bans = limit.ban;
        let read = Reply::read(&value, &[&quota], bans.as_slice());
        let Ok(Reply { now, decided: Some(Decided { keys, bans, .. }) }) = read else { return None };
        let state = keys.first()?;
        let newer = connection.clock.is_latest(now) || is_stricter(limit, key, state, now);
        if remembers && newer && !self.state.unreported.has(limit, key) {
            limit.learn(key, state, now);
        }
        let usage = state.usage(now);
        let there = bans.first().and_then(|remote| remote.ban.left(&remote.strikes, now));
        let banned_for = there.max(limit.banned_for(key, self.clock.now())); // a ban during an outage is known only here
        let spent = usage.remaining < usage.capacity || !usage.reset.is_zero();
        let known = spent || banned_for.is_some();
        Some(Peeked { known, usage, banned_for, state: state.clone(), ban: bans.first().cloned(), at: now })
    }

    /// Removes the state and the ban of a key, and lets the other gateways remove what they remember of this limit. Returns
    /// whether there was anything; `None` if the store does not answer. Places in use stay.
    pub async fn pardon(
        self: &Rc<Self>,
        limit: &CountedLimit,
        key: Fingerprint,
        text: &KeyText,
        forget: impl Fn(&str),
    ) -> Option<bool> {
        let tag = Tag::of(text);
        let slot = self.slot(tag);
        let connection = self.servers.owner_of(slot)?;
        let counter = (!limit.quota.is_concurrency()).then(|| tag.name(key_prefix(limit)));
        let ban = limit.ban.map(|_| tag.ban(key_prefix(limit)));
        if counter.is_none() && ban.is_none() {
            return Some(false);
        }
        let command = |_: &Connection| {
            let mut call = redis::cmd("DEL");
            call.arg(&counter).arg(&ban); // `None` is no argument
            call
        };
        let until = self.clock.now().plus(self.background_timeout());
        let (_, value) = self.send(&connection, slot, until, CallClass::Background, command).await.ok()?;
        let here_banned = limit.banned_for(key, self.clock.now()).is_some();
        limit.pardon(key);
        self.announce(&limit.name, &forget).await?; // otherwise the other gateways would not know of it
        Some(here_banned || matches!(value, redis::Value::Int(1..)))
    }
}

/// The keys of a command: of a script as many as it says, otherwise the first argument.
fn keys_of(command: &redis::Cmd) -> Vec<&[u8]> {
    let arguments: Vec<&[u8]> = command
        .args_iter()
        .filter_map(|argument| match argument {
            redis::Arg::Simple(bytes) => Some(bytes),
            _ => None,
        })
        .collect();
    match arguments.as_slice() {
        [b"EVAL", _, count, keys @ ..] => {
            let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
            keys.iter().take(count).copied().collect()
        }
        [_, key, ..] => vec![key],
        _ => Vec::new(),
    }
}
