//! 3: who is asking, as far as it is proved.
//!
//! [`Consumers`] are the known API keys: a file of digests, watched by [`Watch`] and changed by [`edit`].
//! [`identify`] says whose key a request carries.

mod consumers;
pub mod edit;
mod file;
mod read;
mod scan;

use http::request::Parts;

use crate::config::ApiKeyConfig;
use crate::key;

pub use consumers::{Consumer, Consumers, Unusable};
pub use file::Watch;

/// The longest API key that is looked at: a longer one is nobody's.
pub const MAX_KEY: usize = 4 << 10;

/// What is proved of whoever sent a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity<'s> {
    /// The consumer whose key was sent.
    pub consumer: Option<Consumer<'s>>,
}

/// Why a request that has to prove itself does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// It carries no API key, an empty one or several.
    NoKey,
    /// It carries one that nobody here has.
    UnknownKey,
}

/// Who sent a request. Nothing is allocated; a request costs one SHA-256 of its key, and no comparison ever sees the
/// key itself, so how long it takes tells nothing of the keys that exist.
///
/// # Errors
/// When a known key is required and the request has none.
pub fn identify<'s>(config: &'s ApiKeyConfig, parts: &Parts) -> Result<Identity<'s>, Unproven> {
    let Some(consumers) = &config.consumers else { return Ok(Identity::default()) };
    let sent = key::api_key(&config.source, &parts.headers, parts.uri.query());
    let why = if sent.is_some() { Unproven::UnknownKey } else { Unproven::NoKey };
    let consumer = sent.and_then(|sent| consumers.known.find(sent.bytes()));
    if consumer.is_none() && consumers.required {
        return Err(why);
    }
    Ok(Identity { consumer })
}

/// What the upstream is told of the consumer, in headers that nobody else can write.
#[derive(Clone, Copy, Debug)]
pub struct Told<'s>(pub Option<Consumer<'s>>);

/// What the upstream is told; `None` if these headers are none of the gateway's.
pub fn told<'s>(config: &ApiKeyConfig, consumer: Option<Consumer<'s>>) -> Option<Told<'s>> {
    config.consumers.as_ref().filter(|consumers| consumers.forward).map(|_| Told(consumer))
}
