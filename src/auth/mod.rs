//! 3: who is asking, as far as it is proved.
//!
//! [`Consumers`] are the known API keys: a file of digests, [watched](crate::file_watch) and changed by [`edit`]. [`jwt`]
//! verifies the tokens of users. [`identify`] says who a request proves to be, by both.

mod consumers;
pub mod edit;
mod headers;
pub mod jwt;
mod read;
mod rekey;
mod scan;

use std::sync::Arc;

use sluicegate_limiter::Time;

use self::jwt::{Jwt, TokenError, Verified};
use crate::request_value;
use sluicegate_config::ApiKeyConfig;
use sluicegate_wire::RequestHead;

pub use self::consumers::{Consumer, Consumers};
pub use self::headers::{disown, reads_like};

/// The longest API key that is looked at: a longer one is nobody's.
pub const MAX_KEY: usize = 4 << 10;

/// What is proved of whoever sent a request.
#[derive(Clone, Debug, Default)]
pub struct Identity<'s> {
    /// The consumer whose key was sent.
    pub consumer: Option<Consumer<'s>>,
    /// What its token says, if anything wants to know the user.
    pub token: Option<Arc<Verified>>,
}

impl Identity<'_> {
    /// The plan that it is on: that of the consumer, or else the one that the token names.
    pub fn plan(&self) -> Option<&str> {
        let of_consumer = self.consumer.and_then(|consumer| consumer.plan);
        of_consumer.or_else(|| self.token.as_deref()?.plan())
    }
}

/// Why a request that has to prove itself does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// It carries no API key, an empty one or several.
    NoKey,
    /// It carries one that nobody here has.
    UnknownKey,
    /// Its token does not hold, or it lacks the one that it needs.
    Token(TokenError),
}

/// Who sent a request, asked once for each. `consumers` are the known API keys; `jwt` verifies tokens where anything wants to know the user.
///
/// # Errors
/// When a known key or a token is required and the request has none, or its token does not hold at `now`.
pub fn identify<'s>(
    api_key: &ApiKeyConfig,
    consumers: Option<&'s Consumers>,
    jwt: Option<&Jwt>,
    parts: &RequestHead,
    now: Time,
) -> Result<Identity<'s>, Unproven> {
    let consumer = consumer(api_key, consumers, parts)?;
    let token = match jwt {
        Some(jwt) => jwt.identify(&parts.headers, now).map_err(Unproven::Token)?,
        None => None,
    };
    Ok(Identity { consumer, token })
}

/// Whose API key a request carries. Nothing is allocated; it costs one SHA-256 of the key, and no comparison ever sees
/// the key itself, so how long it takes tells nothing of the keys that exist.
fn consumer<'s>(
    config: &ApiKeyConfig,
    consumers: Option<&'s Consumers>,
    parts: &RequestHead,
) -> Result<Option<Consumer<'s>>, Unproven> {
    let Some((settings, consumers)) = config.consumers.as_ref().zip(consumers) else { return Ok(None) };
    let sent = request_value::api_key(&config.source, &parts.headers, parts.target.query());
    let why = if sent.is_some() { Unproven::UnknownKey } else { Unproven::NoKey };
    let consumer = sent.and_then(|sent| consumers.find(sent.bytes()));
    if consumer.is_none() && settings.required {
        return Err(why);
    }
    Ok(consumer)
}

/// The consumer that the gateway reports to the upstream in headers that clients cannot set. Without a consumer, the
/// headers are only removed.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerHeaders<'s>(pub Option<Consumer<'s>>);

/// The headers that report the consumer to the upstream; `None` if that is not configured.
pub fn consumer_headers<'s>(
    config: &ApiKeyConfig,
    consumer: Option<Consumer<'s>>,
) -> Option<ConsumerHeaders<'s>> {
    config.consumers.as_ref().filter(|consumers| consumers.forward).map(|_| ConsumerHeaders(consumer))
}
