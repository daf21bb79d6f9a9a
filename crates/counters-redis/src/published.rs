//! What gateways tell each other through the store, for operators: the busiest keys of each.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use super::store::Store;

/// The time after which the store forgets all of it, unless a gateway tells something.
const EXPIRY: Duration = Duration::from_secs(60);

impl Store {
    /// Tells the other gateways a text, in place of the one before, and removes what gateways that are gone have told. `None` if
    /// the store does not answer.
    pub async fn publish(self: &Rc<Self>, text: &str) -> Option<()> {
        let published = self.published_key();
        let living = self.living().await?;
        let reply = self.send_to_gateways(redis::cmd("HKEYS").arg(&published)).await?;
        let reply: Vec<String> = redis::from_redis_value(reply).ok()?;
        let gone: Vec<&String> = reply.iter().filter(|gateway| !living.contains(gateway)).collect();
        if !gone.is_empty() {
            self.send_to_gateways(redis::cmd("HDEL").arg(&published).arg(gone)).await?;
        }
        self.send_to_gateways(redis::cmd("HSET").arg(&published).arg(&self.state.gateway).arg(text)).await?;
        let expiry = EXPIRY.as_millis() as u64;
        self.send_to_gateways(redis::cmd("PEXPIRE").arg(&published).arg(expiry)).await?;
        Some(())
    }

    /// What the other live gateways have told. `None` if the store does not answer.
    pub async fn published(self: &Rc<Self>) -> Option<Vec<String>> {
        let living = self.living().await?;
        let reply = self.send_to_gateways(redis::cmd("HGETALL").arg(self.published_key())).await?;
        let reply: HashMap<String, String> = redis::from_redis_value(reply).ok()?;
        let others = reply.into_iter().filter(|(gateway, _)| *gateway != self.state.gateway);
        Some(others.filter(|(gateway, _)| living.contains(gateway)).map(|(_, text)| text).collect())
    }

    async fn living(self: &Rc<Self>) -> Option<Vec<String>> {
        let [gateways, _] = self.gateway_keys();
        let living = self.send_to_gateways(redis::cmd("ZRANGE").arg(&gateways).arg(0).arg(-1)).await?;
        redis::from_redis_value(living).ok()
    }

    fn published_key(&self) -> String {
        format!("{}:{{gateways}}:told", self.state.config().prefix)
    }
}
