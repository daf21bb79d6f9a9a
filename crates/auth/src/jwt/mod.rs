//! User tokens: JWT (RFC 7519), signed with keys of the issuer.
//!
//! A request's token is taken apart (`token`), its signature verified with the one key that it can be signed with
//! (`keyset`), and what it says is checked (`claims`). What was good is remembered, so the next request
//! with the same token costs a hash. The keys of an issuer are fetched and watched beside the requests (`keys`,
//! `fetch`): no request ever waits for them.
//!
//! What is not a JWT is no token, and somebody else's business. A JWT that does not hold is refused, required or not: who
//! sends one wants to be somebody, and is not.

mod claims;
mod error;
mod fetch;
mod keys;
mod keyset;
mod schedule;
mod stored_token;
mod token;

use std::sync::Arc;

use sluicegate_limiter::Time;

pub(super) use self::claims::Kept;
pub use self::claims::Verified;
pub use self::error::TokenError;
pub use self::keys::{Keys, KeysStatus};
pub use self::keyset::KeySet;
use self::keyset::NoKey;
pub use self::stored_token::StoredToken;
use self::token::Token;
pub(super) use self::token::{Claims, MAX_TOKEN, SCHEME};
use super::remembered::{Remembered, hash};
use sluicegate_config::JwtConfig;
use sluicegate_wire::Headers;

/// Tokens that are remembered. Only good ones are: whoever sends bad ones pays for nobody's memory.
const REMEMBERED: usize = 16 << 10;

/// Verifies the tokens of requests.
pub struct Jwt {
    config: JwtConfig,
    /// The keys that were read with the configuration.
    known: Option<Arc<KeySet>>,
    /// The claims that keys of limits ask for.
    wanted: Vec<String>,
    keys: Arc<Keys>,
    remembered: Remembered<Arc<Verified>>,
}

impl Jwt {
    /// Verifies tokens by `config`; `wanted` are the claims that keys of limits ask for. It is `before` if that does
    /// the same, and keeps that one's keys if they are from the same source.
    pub fn next(
        (config, known): (&JwtConfig, Option<&Arc<KeySet>>),
        wanted: Vec<String>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let same_keys =
            |before: &&Arc<Self>| before.config.keys == config.keys && before.known.as_ref() == known;
        let same =
            |before: &&Arc<Self>| before.config == *config && before.wanted == wanted && same_keys(before);
        if let Some(same) = before.filter(same) {
            return Arc::clone(same);
        }
        let keys = match before.filter(same_keys) {
            Some(before) => Arc::clone(&before.keys),
            None => Arc::new(Keys::new(&config.keys, known, before.map(|before| &*before.keys))),
        };
        Arc::new(Self {
            config: config.clone(),
            known: known.cloned(),
            wanted,
            keys,
            remembered: Remembered::new(REMEMBERED),
        })
    }

    /// The issuer's keys.
    pub const fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// Whether every request is looked at, whatever limits its route has.
    pub fn concerns_all(&self) -> bool {
        self.config.required || !self.config.forward.is_empty()
    }

    /// Who sends a request; `None` if it has no token and needs none.
    ///
    /// # Errors
    /// When its token does not hold at `now`, or it lacks the one that it needs.
    pub fn identify(&self, headers: &Headers, now: Time) -> Result<Option<Arc<Verified>>, TokenError> {
        match token::of(headers, &self.config.header)? {
            Some(token) => self.verify(token, now).map(Some),
            None if self.config.required => Err(TokenError::Missing),
            None => Ok(None),
        }
    }

    /// Whether the token of a request is none that the issuer of these keys has signed, by its own words: it is another
    /// issuer's business.
    pub(super) fn is_foreign(&self, headers: &Headers) -> bool {
        let Ok(Some(text)) = token::of(headers, &self.config.header) else { return false };
        let Ok(claims) = Token::parse(text).and_then(|token| token.claims()) else { return true };
        self.config.issuer.as_deref().is_some_and(|issuer| claims.issuer() != Some(issuer))
    }

    /// Writes what the upstream is told of the user, and removes what a client says of itself there.
    pub fn tell_upstream(&self, headers: &mut Headers, user: Option<&Verified>) {
        Verified::tell(headers, &self.config.forward, user);
    }

    fn verify(&self, text: &str, now: Time) -> Result<Arc<Verified>, TokenError> {
        let keys = self.keys.current();
        let digest = hash(text.as_bytes());
        // One that other keys have verified is a new one.
        if let Some(known) = self.remembered.get(&digest).filter(|known| known.keys == *keys.id()) {
            return if known.expired(now) { Err(TokenError::Expired) } else { Ok(known) };
        }
        if keys.is_empty() {
            return Err(TokenError::NoKeys);
        }
        let token = Token::parse(text)?;
        match keys.verifies(&token) {
            Ok(true) => {}
            Ok(false) | Err(NoKey::Unfit) => return Err(TokenError::Untrusted),
            Err(NoKey::Unknown) => {
                self.keys.ask();
                return Err(TokenError::Untrusted);
            }
        }
        let verified = Verified::new(&token.claims()?, *keys.id(), &self.config, &self.wanted, now)?;
        let verified = Arc::new(verified);
        self.remembered.insert(digest, Arc::clone(&verified));
        Ok(verified)
    }
}
