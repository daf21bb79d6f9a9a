//! The values in replies of the scripts.

use redis::Value;
use sluicegate_limiter::Time;

/// A reply that no script returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {0}, found something else: is another program answering, or another version of the script?"
)]
pub(super) struct Malformed(pub(super) &'static str);

pub(super) fn list(value: &Value) -> Result<&[Value], Malformed> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(Malformed("a list")),
    }
}

/// A whole number that a double can hold.
pub(super) fn whole(value: &Value) -> Result<u64, Malformed> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok().filter(|number| *number < 1 << 53),
        _ => None,
    }
    .ok_or(Malformed("a whole number"))
}

/// An instant of the server's clock.
pub(super) fn time(value: &Value) -> Result<Time, Malformed> {
    Ok(Time::from_nanos(whole(value)? * 1_000))
}
