//! What a verified token says: whether it holds here and now, and what is kept of it.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluicegate_limiter::{Span, Time};

use super::TokenError;
use super::stored_token::StoredToken;
use super::token::Claims;
use crate::headers::{disown, reads_like};
use sluicegate_config::JwtConfig;
use sluicegate_wire::Headers;

/// The claims of which something is kept.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    /// The one that says who the user is.
    pub(crate) user_claim: &'a str,
    /// The one that says which plan the user is on.
    pub(crate) plan_claim: Option<&'a String>,
    /// Headers that the upstream gets, and the claim in each.
    pub(crate) forward: &'a [(HeaderName, String)],
}

/// What is kept of a token whose signature is good, or whose issuer says that it is active.
#[derive(Debug)]
pub struct Verified {
    /// The keys that verified it; zeros if its issuer said so.
    pub(super) keys: [u8; 32],
    /// From when on it is refused.
    expires: Option<Time>,
    user: Option<Box<str>>,
    plan: Option<Box<str>>,
    claims: Box<[(Box<str>, Box<str>)]>,
    forward: Box<[(HeaderName, HeaderValue)]>,
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
        let JwtConfig { user_claim, plan_claim, forward, .. } = config;
        Ok(Self::keep(
            claims,
            (keys, expires),
            Kept { user_claim, plan_claim: plan_claim.as_ref(), forward },
            wanted,
        ))
    }

    /// What is kept of the claims that an issuer answers for a token, if they hold at `now`.
    pub(crate) fn verify(
        claims: &Claims,
        kept: Kept<'_>,
        wanted: &[String],
        now: Time,
    ) -> Result<Self, TokenError> {
        let expires = moment(&claims.values, "exp")?;
        if expires.is_some_and(|expires| now >= expires) {
            return Err(TokenError::Expired);
        }
        if moment(&claims.values, "nbf")?.is_some_and(|begins| now < begins) {
            return Err(TokenError::Early);
        }
        Ok(Self::keep(claims, ([0; 32], expires), kept, wanted))
    }

    fn keep(
        claims: &Claims,
        (keys, expires): ([u8; 32], Option<Time>),
        Kept { user_claim, plan_claim, forward }: Kept<'_>,
        wanted: &[String],
    ) -> Self {
        let kept = wanted.iter().filter_map(|name| Some((name.as_str().into(), claims.text(name)?.into())));
        let forward = forward.iter().filter_map(|(header, claim)| {
            let value = HeaderValue::try_from(claims.text(claim)?).ok()?; // a line break stays here
            Some((header.clone(), value))
        });
        Self {
            keys,
            expires,
            user: claims.text(user_claim).map(Into::into),
            plan: plan_claim.and_then(|name| claims.text(name)).map(Into::into),
            claims: kept.collect(),
            forward: forward.collect(),
        }
    }

    /// Writes what the upstream is told of `user` in the headers `own`, and removes what a client says of itself there.
    pub(crate) fn tell(headers: &mut Headers, own: &[(HeaderName, String)], user: Option<&Self>) {
        if own.is_empty() {
            return;
        }
        disown(headers, |name| own.iter().any(|(own, _)| reads_like(name, own.as_ref())));
        for (name, value) in user.map_or(&[][..], |user| &user.forward) {
            headers.insert(name, value);
        }
    }

    /// What a log says of a user, whose token it does not have.
    pub(crate) fn of_log(user: &str) -> Self {
        Self {
            keys: [0; 32],
            expires: None,
            user: Some(user.into()),
            plan: None,
            claims: Box::default(),
            forward: Box::default(),
        }
    }

    /// What is stored of it with a request that is delivered later.
    pub(crate) fn store(&self) -> StoredToken {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let forward = self.forward.iter().filter_map(|(name, value)| {
            // They were made of text.
            Some((name.as_str().to_owned(), std::str::from_utf8(value.as_bytes()).ok()?.to_owned()))
        });
        StoredToken {
            user: text(&self.user),
            plan: text(&self.plan),
            claims: self.claims.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            forward: forward.collect(),
        }
    }

    /// The same again. It does not expire.
    pub(crate) fn restore(stored: &StoredToken) -> Self {
        let forward = stored.forward.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        Self {
            keys: [0; 32],
            expires: None,
            user: stored.user.as_deref().map(Into::into),
            plan: stored.plan.as_deref().map(Into::into),
            claims: stored.claims.iter().map(|(name, value)| (&**name, &**value)).map(pair).collect(),
            forward: forward.collect(),
        }
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
    pub(crate) fn expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

fn pair((name, value): (&str, &str)) -> (Box<str>, Box<str>) {
    (name.into(), value.into())
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
