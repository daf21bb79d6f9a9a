//! The answers of the scripts.

use redis::Value;
use sluicegate_queue::{Entry, Id, State};

use crate::error::RedisQueueError;

type Read<T> = Result<T, RedisQueueError>;

/// The items of an answer, in their order.
pub(crate) struct Items(std::vec::IntoIter<Value>);

impl Items {
    pub(crate) fn of(value: Value) -> Read<Self> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
            _ => Err(RedisQueueError::Content("a list was expected")),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    pub(crate) fn bytes(&mut self) -> Read<Vec<u8>> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Int(number)) => Ok(number.to_string().into_bytes()),
            _ => Err(RedisQueueError::Content("a text was expected")),
        }
    }

    pub(crate) fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?).map_err(|_| RedisQueueError::Content("a text is not UTF-8"))
    }

    pub(crate) fn signed(&mut self) -> Read<i64> {
        self.text()?.parse().map_err(|_| RedisQueueError::Content("a whole number was expected"))
    }

    pub(crate) fn number(&mut self) -> Read<u64> {
        self.signed().map(|number| u64::try_from(number).unwrap_or(0))
    }

    pub(crate) fn id(&mut self) -> Read<Id> {
        self.text()?.parse().map_err(|_| RedisQueueError::Content("an id was expected"))
    }

    pub(crate) fn state(&mut self) -> Read<State> {
        let state = u8::try_from(self.number()?).ok().and_then(State::of);
        state.ok_or(RedisQueueError::Content("a state was expected"))
    }

    /// A message of the script `list.lua`. `ended` is how many messages of the queue have ended; times are shifted from the clock of
    /// the server by `shift`.
    pub(crate) fn entry(&mut self, limit: &str, ended: u64, shift: i64) -> Read<Entry> {
        let time = |time: u64| time.saturating_add_signed(shift);
        let id = self.id()?;
        let number = self.number()?;
        let consumer = self.text()?;
        let owner = unhex(&self.bytes()?).ok_or(RedisQueueError::Content("an owner was expected"))?;
        let state = self.state()?;
        let attempts = u32::try_from(self.number()?).unwrap_or(u32::MAX);
        let (accepted, expires, due) = (time(self.number()?), time(self.number()?), time(self.number()?));
        let ended_at = self.text()?;
        let (reason, answer) = (self.text()?, self.bytes()?);
        Ok(Entry {
            id,
            number,
            limit: limit.to_owned(),
            consumer,
            owner,
            state,
            ahead: if state.has_ended() { 0 } else { number.saturating_sub(1).saturating_sub(ended) },
            attempts,
            accepted,
            expires,
            due,
            ended: ended_at.parse().ok().map(time),
            reason: Some(reason).filter(|reason| !reason.is_empty()),
            answer: Some(answer).filter(|answer| !answer.is_empty()),
            size: self.number()?,
        })
    }
}

/// A number alone.
pub(crate) fn number(value: &Value) -> Read<u64> {
    match value {
        Value::Int(number) => Ok(u64::try_from(*number).unwrap_or(0)),
        _ => Err(RedisQueueError::Content("a number was expected")),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<[u8; 32]> {
    let bytes = text
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}
