//! What a verified token says: whether it holds here and now, and what is kept of it.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluicegate_limiter::{Span, Time};

use super::TokenError;
use super::token::Claims;
use sluicegate_config::JwtConfig;

/// What is kept of a token whose signature is good.
#[derive(Debug)]
pub struct Verified {
    /// The keys that verified it.
    pub(super) keys: [u8; 32],
    /// From when on it is refused.
    pub(super) expires: Option<Time>,
    user: Option<Box<str>>,
    plan: Option<Box<str>>,
    claims: Box<[(Box<str>, Box<str>)]>,
    pub(super) forward: Box<[(HeaderName, HeaderValue)]>,
}

impl Verified {
    /// What is kept of these claims, if they hold at `now`; `wanted` are the ones that keys ask for.
    pub(super) fn new(
        claims: &Claims,
        keys: [u8; 32],
        config: &JwtConfig,
        wanted: &[String],
        now: Time,
    ) -> Result<Self, TokenError> {
        let expires = check(&claims.values, config, now)?;
        let kept = wanted.iter().filter_map(|name| Some((name.as_str().into(), claims.text(name)?.into())));
        let forward = config.forward.iter().filter_map(|(header, claim)| {
            let value = HeaderValue::try_from(claims.text(claim)?).ok()?; // a line break stays here
            Some((header.clone(), value))
        });
        Ok(Self {
            keys,
            expires,
            user: claims.text(&config.user_claim).map(Into::into),
            plan: config.plan_claim.as_ref().and_then(|name| claims.text(name)).map(Into::into),
            claims: kept.collect(),
            forward: forward.collect(),
        })
    }

    /// Who the user is.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Which plan the user is on.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// A claim that some key asks for.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Whether it has expired.
    pub(super) fn expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

/// When the token expires here, if it holds at `now`.
fn check(claims: &Map<String, Value>, config: &JwtConfig, now: Time) -> Result<Option<Time>, TokenError> {
    let leeway = Span::from(config.leeway);
    let expires = match moment(claims, "exp")? {
        Some(exp) => Some(exp.plus(leeway)),
        None if config.require_exp => return Err(TokenError::Endless),
        None => None,
    };
    if expires.is_some_and(|expires| now >= expires) {
        return Err(TokenError::Expired);
    }
    for name in ["nbf", "iat"] {
        if moment(claims, name)?.is_some_and(|begins| now.plus(leeway) < begins) {
            return Err(TokenError::Early);
        }
    }
    if let Some(issuer) = &config.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(TokenError::Issuer);
    }
    let meant_for =
        |audience: &Value| audience.as_str().is_some_and(|one| config.audience.iter().any(|a| a == one));
    let fits = match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().any(meant_for),
        Some(one) => meant_for(one),
        None => false,
    };
    if !config.audience.is_empty() && !fits {
        return Err(TokenError::Audience);
    }
    Ok(expires)
}

/// A moment in seconds since 1970, perhaps with a fraction.
fn moment(claims: &Map<String, Value>, name: &str) -> Result<Option<Time>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().ok_or(TokenError::Malformed)?;
    Ok(Some(Time::from_nanos((seconds * 1e9) as u64))) // saturates: before 1970 is 1970, and never is far away
}
