//! What the thread that serves nobody does with the store: says that the gateway lives, and answers operators.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use sluicegate_limiter::Standing;

use super::Store;
use super::flight::UNHURRIED;
use super::link::Link;
use super::name::Tag;
use super::scripts::SCRIPTS;
use super::wire::{self, Algorithms, Reply};
use crate::key::{Fingerprint, KeyText};
use crate::limit::{Key, Limit};

/// How often the gateway says that it lives, and how long its word holds.
const BEAT: Duration = Duration::from_millis(500);
const LIVES: Duration = Duration::from_secs(5);

/// What the store says of one key.
#[derive(Clone, Copy, Debug)]
pub struct Peeked {
    /// Whether anything is counted under it.
    pub known: bool,
    /// What is left.
    pub standing: Standing,
}

impl Store {
    /// Says that the gateway lives, again and again. `forget` is called with each limit of which a key was pardoned
    /// on any gateway.
    pub fn keep(self: &Rc<Self>, forget: impl Fn(&str) + 'static) {
        let store = Rc::clone(self);
        self.spawn(async move {
            loop {
                store.beat("", &forget).await;
                tokio::time::sleep(BEAT).await;
            }
        });
    }

    async fn beat(self: &Rc<Self>, pardoned: &str, forget: &dyn Fn(&str)) -> Option<()> {
        let prefix = &self.state.config.prefix;
        let keys = [format!("{prefix}:{{gateways}}"), format!("{prefix}:{{gateways}}:pardons")];
        let slot = super::name::slot(b"gateways");
        let link = self.mapped(slot, self.clock.instant(self.clock.now().plus(UNHURRIED))).await?;
        link.known(self.clock.instant(self.clock.now().plus(UNHURRIED))).await;
        let question = |_: &Link| {
            let mut call = SCRIPTS.beat.call(keys.iter().map(String::as_bytes));
            call.arg(&self.state.gateway).arg(LIVES.as_millis() as u64).arg(pardoned);
            call
        };
        let until = self.clock.now().plus(UNHURRIED);
        let (_, value) = self.send(&link, slot, until, question).await.ok()?;
        let (gateways, pardons): (u32, HashMap<String, i64>) = redis::from_redis_value(value).ok()?;
        self.state.set_gateways(gateways);
        let before = self.pardons.replace(Some(pardons.clone()));
        for (limit, times) in &pardons {
            if before.as_ref().is_some_and(|before| before.get(limit) != Some(times)) {
                forget(limit);
            }
        }
        Some(())
    }

    /// Takes the gateway's name off the list of those that live.
    pub async fn leave(&self) {
        let prefix = &self.state.config.prefix;
        let slot = super::name::slot(b"gateways");
        let Some(link) = self.servers.of(slot) else { return };
        let mut leave = redis::cmd("ZREM");
        leave.arg(format!("{prefix}:{{gateways}}")).arg(&self.state.gateway);
        let _ = link.call(leave, self.clock.now().plus(UNHURRIED), &self.clock).await; // or its word runs out
    }

    /// What is left of a key, without spending anything; `None` if the store does not answer.
    pub async fn peek(self: &Rc<Self>, limit: &Limit, key: Fingerprint, text: &KeyText) -> Option<Peeked> {
        let tag = Tag::of(text);
        let slot = self.slot(tag);
        let link = self.servers.of(slot)?;
        let quota = limit.config.quota;
        let question = |link: &Link| {
            let name = tag.name(&limit.names);
            let mut call =
                SCRIPTS.decide(Algorithms::of([&quota].into_iter())).call([name.as_slice()].into_iter());
            call.arg(0).arg(0).arg(&link.holder()).arg(0).arg(wire::argument(&quota, false, 1));
            call
        };
        let until = self.clock.now().plus(UNHURRIED);
        let (_, value) = self.send(&link, slot, until, question).await.ok()?;
        let Ok(Reply::Decided { now, keys, .. }) = Reply::read(&value, &[&quota]) else { return None };
        let state = keys.first()?;
        limit.counters.learn(key, state, now);
        let standing = state.standing(now);
        Some(Peeked { known: standing.remaining < standing.capacity || !standing.reset.is_zero(), standing })
    }

    /// Forgets a key and its debt, and tells the other gateways to forget what they remember of this limit. Whether
    /// there was anything; `None` if the store does not answer. Places in use are no debt.
    pub async fn pardon(
        self: &Rc<Self>,
        limit: &Limit,
        key: Fingerprint,
        text: &KeyText,
        forget: impl Fn(&str),
    ) -> Option<bool> {
        if limit.config.quota.is_concurrency() {
            return Some(false);
        }
        let tag = Tag::of(text);
        let slot = self.slot(tag);
        let link = self.servers.of(slot)?;
        let name = tag.name(&limit.names);
        let question = |_: &Link| {
            let mut call = redis::cmd("DEL");
            call.arg(&name);
            call
        };
        let until = self.clock.now().plus(UNHURRIED);
        let (_, value) = self.send(&link, slot, until, question).await.ok()?;
        limit.counters.pardon(key);
        self.beat(&limit.config.name, &forget).await;
        Some(matches!(value, redis::Value::Int(1..)))
    }
}
