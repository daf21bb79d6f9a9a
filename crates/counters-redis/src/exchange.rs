//! What gateways tell each other through the store several times a second, in one call: each what it measures, about one topic.

use std::rc::Rc;

use super::store::Store;

/// The time after which what a gateway has told no longer counts: it has gone, or is cut off.
const LIFE_MILLIS: u64 = 2_000;
/// `KEYS[1]`: what is told about the topic, by gateway. `ARGV`: the gateway, what it tells, and for how many milliseconds that
/// counts. Returns what the others have told.
const SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], (now + ARGV[3]) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3] * 10)
local messages, others = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #messages, 2 do
    local ends, text = string.match(messages[at + 1], '^(%d+) (.*)$')
    if not ends or tonumber(ends) < now then
        redis.call('HDEL', KEYS[1], messages[at])
    elseif messages[at] ~= ARGV[1] then
        others[#others + 1] = text
    end
end
return others";

impl Store {
    /// Tells the other gateways a text about a topic, in place of the one before, and returns what they have told in the last two
    /// seconds. `None` if the store does not answer.
    pub async fn exchange(self: &Rc<Self>, topic: &str, text: &str) -> Option<Vec<String>> {
        let key = format!("{}:{{gateways}}:{topic}", self.state.config().prefix);
        let mut call = redis::cmd("EVAL");
        call.arg(SCRIPT).arg(1).arg(key).arg(&self.state.gateway).arg(text).arg(LIFE_MILLIS);
        redis::from_redis_value(self.send_to_gateways(&call).await?).ok()
    }
}
