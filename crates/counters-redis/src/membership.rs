//! What the thread that serves nobody does with the store: says that the gateway lives, and answers operators.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use sluicegate_counters::{CountedLimit, Fingerprint, KeyState, KeyText};
use sluicegate_limiter::{Span, Usage};

use super::call::BACKGROUND_TIMEOUT;
use super::connection::{CallClass, Connection};
use super::key_name::{Tag, key_prefix};
use super::protocol::{self, Algorithms, Decided, Reply};
use super::scripts::SCRIPTS;
use super::store::Store;

/// How often the gateway says that it lives, and how long its word holds.
const BEAT: Duration = Duration::from_millis(500);
const LIVES: Duration = Duration::from_secs(5);
/// How long it is remembered that a key was pardoned: far longer than a gateway goes without asking.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// What the store says of one key.
#[derive(Clone, Copy, Debug)]
pub struct Peeked {
    /// Whether anything is counted under it.
    pub known: bool,
    /// What is left.
    pub usage: Usage,
    /// What is left of its ban.
    pub banned_for: Option<Span>,
}

impl Store {
    /// Says that the gateway lives, again and again. `forget` is called with each limit of which a key was pardoned
    /// on any gateway.
    pub fn keep(self: &Rc<Self>, forget: impl Fn(&str) + 'static) {
        let store = Rc::clone(self);
        self.spawn(async move {
            loop {
                if store.beat("", &forget).await.is_none() {
                    store.state.count_gateways(None);
                }
                tokio::time::sleep(BEAT).await;
            }
        });
    }

    async fn beat(self: &Rc<Self>, pardoned: &str, forget: &dyn Fn(&str)) -> Option<()> {
        let [gateways, pardons] = self.lists();
        let slot = super::key_name::slot(b"gateways");
        let until = self.clock.instant(self.clock.now().plus(BACKGROUND_TIMEOUT));
        let connection = self.mapped(slot, until).await?;
        connection.known(until).await;
        let now = connection.clock.at_least(self.clock.now()).as_nanos() / 1_000_000;
        let lives = LIVES.as_millis() as u64;
        if !pardoned.is_empty() {
            self.say(redis::cmd("HINCRBY").arg(&pardons).arg(pardoned).arg(1)).await?;
            self.say(redis::cmd("PEXPIRE").arg(&pardons).arg(REMEMBERED.as_millis() as u64)).await?;
        }
        self.say(redis::cmd("ZADD").arg(&gateways).arg(now + lives).arg(&self.state.gateway)).await?;
        self.say(redis::cmd("ZREMRANGEBYSCORE").arg(&gateways).arg("-inf").arg(now)).await?;
        self.say(redis::cmd("PEXPIRE").arg(&gateways).arg(lives)).await?;
        let living = self.say(redis::cmd("ZCARD").arg(&gateways)).await?;
        let pardons = self.say(redis::cmd("HGETALL").arg(&pardons)).await?;
        self.state.count_gateways(Some(redis::from_redis_value(living).ok()?));
        let pardons: HashMap<String, i64> = redis::from_redis_value(pardons).ok()?;
        let before = self.pardons.replace(Some(pardons.clone()));
        for (limit, times) in &pardons {
            if before.as_ref().is_some_and(|before| before.get(limit) != Some(times)) {
                forget(limit);
            }
        }
        Some(())
    }

    /// Says something about gateways, for which nobody waits.
    async fn say(self: &Rc<Self>, command: &redis::Cmd) -> Option<redis::Value> {
        let slot = super::key_name::slot(b"gateways");
        let connection = self.servers.of(slot)?;
        let until = self.clock.now().plus(BACKGROUND_TIMEOUT);
        let sent = self.send(&connection, slot, until, CallClass::Background, |_| command.clone()).await;
        sent.ok().map(|(_, value)| value)
    }

    /// The keys of what gateways tell each other, in one slot: who lives until when, and how often each limit had a
    /// key pardoned.
    fn lists(&self) -> [String; 2] {
        let prefix = &self.state.config().prefix;
        [format!("{prefix}:{{gateways}}"), format!("{prefix}:{{gateways}}:pardons")]
    }

    /// Takes the gateway's name off the list of those that live.
    pub async fn leave(self: &Rc<Self>) {
        let [gateways, _] = self.lists();
        self.say(redis::cmd("ZREM").arg(&gateways).arg(&self.state.gateway)).await; // or its word runs out
    }

    /// What is left of a key, without spending anything; `None` if the store does not answer within `within`.
    pub async fn peek(
        self: &Rc<Self>,
        limit: &CountedLimit,
        key: Fingerprint,
        text: &KeyText,
        within: Span,
    ) -> Option<Peeked> {
        let tag = Tag::of(text);
        let slot = self.slot(tag);
        let connection = self.servers.of(slot)?;
        let quota = limit.quota;
        let question = |connection: &Connection| {
            let name = tag.name(key_prefix(limit));
            let names = [Some(name), limit.ban.map(|_| tag.ban(key_prefix(limit)))];
            let names: Vec<&[u8]> = names.iter().flatten().map(Vec::as_slice).collect();
            let mut call = SCRIPTS.decide(Algorithms::of([&quota].into_iter())).call(names.into_iter());
            // The cost that requests have: of a log only the part is told that decides about them.
            let argument = limit
                .shared
                .as_ref()
                .and_then(|shared| shared.argument.clone())
                .unwrap_or_else(|| protocol::limit_argument(limit, 1));
            let argument = protocol::at(argument, &quota, || connection.clock.at_least(self.clock.now()));
            call.arg(0).arg(0).arg(&connection.holder()).arg(0).arg(&*argument);
            call
        };
        let until = self.clock.now().plus(within);
        let (_, value) = self.send(&connection, slot, until, CallClass::Background, question).await.ok()?;
        let bans = limit.ban;
        let read = Reply::read(&value, &[&quota], bans.as_slice());
        let Ok(Reply { now, decided: Some(Decided { keys, bans, .. }) }) = read else { return None };
        let state = keys.first()?;
        if !self.state.unreported.has(limit, key) {
            limit.counters.learn(key, state, now);
        }
        let usage = state.usage(now);
        let there = bans.first().and_then(|told| told.ban.left(&told.strikes, now));
        let banned_for = there.max(limit.banned_for(key, self.clock.now())); // one of an outage is known here alone
        let spent = usage.remaining < usage.capacity || !usage.reset.is_zero();
        Some(Peeked { known: spent || banned_for.is_some(), usage, banned_for })
    }

    /// Forgets a key and its debt, and tells the other gateways to forget what they remember of this limit. Whether
    /// there was anything; `None` if the store does not answer. Places in use are no debt.
    pub async fn pardon(
        self: &Rc<Self>,
        limit: &CountedLimit,
        key: Fingerprint,
        text: &KeyText,
        forget: impl Fn(&str),
    ) -> Option<bool> {
        let tag = Tag::of(text);
        let slot = self.slot(tag);
        let connection = self.servers.of(slot)?;
        let counter = (!limit.quota.is_concurrency()).then(|| tag.name(key_prefix(limit)));
        let ban = limit.ban.map(|_| tag.ban(key_prefix(limit)));
        if counter.is_none() && ban.is_none() {
            return Some(false);
        }
        let question = |_: &Connection| {
            let mut call = redis::cmd("DEL");
            call.arg(&counter).arg(&ban); // what is none is no argument
            call
        };
        let until = self.clock.now().plus(BACKGROUND_TIMEOUT);
        let (_, value) = self.send(&connection, slot, until, CallClass::Background, question).await.ok()?;
        let here_banned = limit.banned_for(key, self.clock.now()).is_some();
        limit.pardon(key);
        self.beat(&limit.name, &forget).await?; // or the other gateways would never hear of it
        Some(here_banned || matches!(value, redis::Value::Int(1..)))
    }
}
