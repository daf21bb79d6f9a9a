//! Tokens that their issuer is asked about: introspection (RFC 7662).
//!
//! What was asked is remembered by the hash of the token: active tokens until they expire, at most for `ttl`, inactive
//! ones in a table of their own, so that whoever makes up tokens displaces none that are good. Matching a request waits
//! for nobody: `Introspection::identify` says what must be [asked](Question::ask) first.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use hyper::body::Bytes;
use sluicegate_limiter::{Span, Time};

use super::identity::{Stop, Unproven};
use super::jwt::{Claims, Kept, MAX_TOKEN, SCHEME, TokenError, Verified};
use super::outside::{Call, Flights, Reply, Service};
use super::remembered::{Digest, Remembered, hash};
use sluicegate_base::clock::Clock;
use sluicegate_config::{IntrospectionConfig, OnFailure, Secret};
use sluicegate_wire::Headers;

/// Asks an issuer about the tokens of requests.
pub struct Introspection {
    config: IntrospectionConfig,
    /// The claims that keys of limits ask for.
    wanted: Vec<String>,
    service: Service,
    /// The credentials of the gateway there.
    authorization: Option<HeaderValue>,
    active: Remembered<Active>,
    inactive: Remembered<(TokenError, Time)>,
    flights: Flights<Introspected>,
}

/// A token that its issuer said is active.
#[derive(Clone)]
struct Active {
    verified: Arc<Verified>,
    /// Until when it is used without asking again.
    fresh: Time,
    /// Until when it is used while the issuer is away.
    stale: Time,
}

/// What the issuer says of a token.
#[derive(Clone)]
pub enum Introspected {
    /// It is active.
    Active(Arc<Verified>),
    /// It is not, or what it says does not hold.
    Inactive(TokenError),
    /// Nothing that can be used: the issuer is away, or its answer for this token says nothing.
    Unknown,
    /// The issuer was not asked in time, because too many other calls were in flight.
    Busy,
}

/// A token that the issuer must be asked about.
pub struct Question {
    introspection: Arc<Introspection>,
    token: Secret,
    digest: Digest,
}

impl Introspection {
    /// Asks by `config`; `wanted` are the claims that keys of limits ask for. It is `before` if that does the same.
    pub fn next(config: &IntrospectionConfig, wanted: Vec<String>, before: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(same) = before.filter(|before| before.config == *config && before.wanted == wanted) {
            return Arc::clone(same);
        }
        Arc::new(Self {
            service: Service::new(&config.service),
            authorization: authorization(&config.client_id, &config.client_secret),
            active: Remembered::new(config.service.max_cached),
            inactive: Remembered::new(config.service.max_cached),
            flights: Flights::new(config.service.max_in_flight),
            config: config.clone(),
            wanted,
        })
    }

    /// Whether every request is looked at, whatever limits its route has.
    pub fn concerns_all(&self) -> bool {
        self.config.required || !self.config.forward.is_empty()
    }

    /// How often its issuer was asked, by what became of it.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.service.counts()
    }

    /// Why the issuer is away, for /status.
    pub fn trouble(&self) -> Option<String> {
        self.service.trouble()
    }

    /// Writes what the upstream is told of the user, and removes what a client says of itself there.
    pub fn tell_upstream(&self, headers: &mut Headers, user: Option<&Verified>) {
        Verified::tell(headers, &self.config.forward, user);
    }

    /// Who sends a request; `None` if it has no token and needs none. `reply` is what the issuer said of its token, if it
    /// was asked for this request.
    ///
    /// # Errors
    /// When its token does not hold at `now`, or it lacks the one that it needs, or the issuer must be asked.
    pub(super) fn identify(
        self: &Arc<Self>,
        headers: &Headers,
        required: bool,
        reply: Option<&Introspected>,
        now: Time,
    ) -> Result<Option<Arc<Verified>>, Stop<Question>> {
        let lacking = || match required || self.config.required {
            true => Err(Stop::from(TokenError::Missing)),
            false => Ok(None),
        };
        let Some(token) = token_of(headers, &self.config.header)? else { return lacking() };
        let digest = hash(token.as_bytes());
        let reply = match reply {
            Some(reply) => reply.clone(),
            None => match self.known(&digest, now) {
                Some(known) => known,
                None if self.service.is_paused(now) => Introspected::Unknown,
                None => {
                    let (introspection, token) = (Arc::clone(self), Secret::new(token));
                    return Err(Stop::Ask(Question { introspection, token, digest }));
                }
            },
        };
        let may_pass = !matches!(reply, Introspected::Busy); // clients must not pass because others make many calls
        match reply {
            Introspected::Active(verified) if verified.expired(now) => Err(TokenError::Expired.into()),
            Introspected::Active(verified) => Ok(Some(verified)),
            Introspected::Inactive(error) => Err(error.into()),
            Introspected::Unknown | Introspected::Busy => {
                match self.active.get(&digest).filter(|known| now < known.stale) {
                    Some(known) if known.verified.expired(now) => Err(TokenError::Expired.into()),
                    Some(known) => Ok(Some(known.verified)),
                    None if may_pass && self.service.config().on_failure == OnFailure::Anonymous => lacking(),
                    None => Err(Stop::Unproven(Unproven::Away)),
                }
            }
        }
    }

    /// What is known of a token without asking.
    fn known(&self, digest: &Digest, now: Time) -> Option<Introspected> {
        if let Some(Active { verified, fresh, .. }) = self.active.get(digest)
            && (now < fresh || verified.expired(now))
        {
            return Some(Introspected::Active(verified)); // an end is an end
        }
        let (error, until) = self.inactive.get(digest)?;
        (now < until).then_some(Introspected::Inactive(error))
    }

    /// Remembers what the issuer said.
    fn remember(&self, digest: Digest, reply: &Introspected, now: Time) {
        let IntrospectionConfig { ttl, negative_ttl, .. } = self.config;
        match reply {
            Introspected::Active(verified) => {
                let fresh = now.plus(Span::from(ttl));
                let stale = fresh.plus(Span::from(self.service.config().stale));
                self.active.insert(digest, Active { verified: Arc::clone(verified), fresh, stale });
            }
            Introspected::Inactive(error) => {
                self.active.remove(&digest);
                self.inactive.insert(digest, (*error, now.plus(Span::from(negative_ttl))));
            }
            Introspected::Unknown | Introspected::Busy => {}
        }
    }

    fn call(&self, token: &str) -> Call {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("sluicegate"));
        headers.extend(self.authorization.clone().map(|credentials| (AUTHORIZATION, credentials)));
        let body = format!("token={}&token_type_hint=access_token", form_encoded(token));
        Call { target: None, method: Method::POST, headers, body: Bytes::from(body) }
    }

    /// Understands an answer.
    fn read(&self, reply: Reply, now: Time) -> Result<Introspected, String> {
        if reply.status != StatusCode::OK {
            return Err(format!("it answered with status {}", reply.status.as_u16()));
        }
        let body = reply.body.ok_or("its answer breaks off, or is larger than 64 KiB")?;
        let claims = Claims::read(body.into()).map_err(|_| "its answer is not a JSON object")?;
        match claims.is_active() {
            None => Err("its answer does not say whether the token is active".to_owned()),
            Some(false) => Ok(Introspected::Inactive(TokenError::Inactive)),
            Some(true) => {
                let IntrospectionConfig { user_claim, plan_claim, forward, .. } = &self.config;
                let kept = Kept { user_claim, plan_claim: plan_claim.as_ref(), forward };
                let verified = Verified::verify(&claims, kept, &self.wanted, now);
                Ok(verified
                    .map_or_else(Introspected::Inactive, |verified| Introspected::Active(Arc::new(verified))))
            }
        }
    }
}

impl Question {
    /// What the issuer says. The answer is remembered; of equal questions one is asked.
    pub async fn ask(self, clock: Clock) -> Introspected {
        let Self { introspection, token, digest } = self;
        let known = || introspection.known(&digest, clock.now());
        let asking = Arc::clone(&introspection);
        let call = async move {
            let call = asking.call(token.reveal());
            let reply = asking.service.ask(&call, clock, |reply| asking.read(reply, clock.now())).await;
            let reply = reply.unwrap_or(Introspected::Unknown);
            asking.remember(digest, &reply, clock.now());
            reply
        };
        let patience = introspection.service.config().timeout;
        let reply = introspection.flights.join(digest, patience, known, call).await;
        reply.unwrap_or_else(|| {
            introspection.service.skip();
            Introspected::Busy
        })
    }
}

/// The token of a request; `None` if it has none. What is not `Bearer` is somebody else's business.
fn token_of<'a>(headers: &'a Headers, name: &HeaderName) -> Result<Option<&'a str>, TokenError> {
    let bare = *name != AUTHORIZATION;
    let mut lines = headers.get_all(name);
    let first = lines.next().map_or(Ok(None), |line| in_line(line, bare))?;
    // Several lines: whoever reads another of them than the gateway does would see another user.
    let mut several = false;
    for line in lines {
        several = true;
        if in_line(line, bare)?.is_some() {
            return Err(TokenError::Several);
        }
    }
    if several && first.is_some() { Err(TokenError::Several) } else { Ok(first) }
}

fn in_line(line: &[u8], bare: bool) -> Result<Option<&str>, TokenError> {
    let token = match line.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
        _ if bare => line.trim_ascii(),
        _ => return Ok(None),
    };
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() > MAX_TOKEN {
        return Err(TokenError::TooLong);
    }
    let is_good = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b); // RFC 6750 §2.1
    match std::str::from_utf8(token) {
        Ok(text) if token.iter().all(is_good) => Ok(Some(text)),
        _ => Err(TokenError::Malformed),
    }
}

/// The credentials of a client (RFC 6749 §2.3.1).
fn authorization(id: &str, secret: &Secret) -> Option<HeaderValue> {
    let pair = format!("{}:{}", form_encoded(id), form_encoded(secret.reveal()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A text as a value of application/x-www-form-urlencoded.
fn form_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"-._*".contains(&b) => out.push(b.into()),
            b' ' => out.push('+'),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(lines: &[&str], name: &'static str) -> Result<Option<String>, TokenError> {
        let headers: Headers = lines.iter().map(|line| (name, *line)).collect();
        token_of(&headers, &HeaderName::from_static(name)).map(|token| token.map(str::to_owned))
    }

    #[test]
    fn the_token_stands_behind_bearer() {
        let found = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(token(&["Bearer a.b~c+/="], "authorization"), found("a.b~c+/="));
        assert_eq!(token(&["bEARER   x "], "authorization"), found("x"));
        for none in ["Basic YTpi", "Bearer ", "Bearer", "x", ""] {
            assert_eq!(token(&[none], "authorization"), Ok(None), "{none}");
        }
        assert_eq!(token(&["x"], "x-token"), found("x"));
        assert_eq!(token(&[], "authorization"), Ok(None));
        assert_eq!(token(&["Bearer a b"], "authorization"), Err(TokenError::Malformed));
        assert_eq!(
            token(&[&format!("Bearer {}", "x".repeat(9000))], "authorization"),
            Err(TokenError::TooLong)
        );
        for second in ["Bearer b", "Basic YTpi", ""] {
            assert_eq!(token(&["Bearer a", second], "authorization"), Err(TokenError::Several), "{second}");
            assert_eq!(token(&[second, "Bearer a"], "authorization"), Err(TokenError::Several), "{second}");
        }
        assert_eq!(token(&["Basic YTpi", "Basic YTpi"], "authorization"), Ok(None));
    }

    #[test]
    fn credentials_are_encoded() {
        let value = authorization("gw", &Secret::new("a:b é")).unwrap();
        assert_eq!(value, format!("Basic {}", STANDARD.encode("gw:a%3Ab+%C3%A9")));
        assert!(!format!("{value:?}").contains("Basic"));
    }
}
