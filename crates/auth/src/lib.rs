//! Who sends a request, as far as it is proved.
//!
//! [`Consumers`] are the known API keys: a file of digests, [watched](sluicegate_base::file_watch) and changed by [`edit`]. [`jwt`]
//! verifies the tokens of users, [`introspection`] asks their issuer about them, and [`check`] asks a service about whole
//! requests. `Sources::identify` says who a request proves to be, by all of them, or what must be asked first.
//!
//! [`client_address`] finds the address of a client behind proxies; [`lists`] has the lists of addresses.

pub mod check;
pub mod client_address;
mod consumers;
pub mod edit;
mod headers;
mod identity;
pub mod introspection;
pub mod jwt;
pub mod lists;
mod logged;
mod outside;
mod read;
mod rekey;
mod remembered;
mod scan;
mod stored;

use std::sync::Arc;

use sluicegate_limiter::Time;

use self::check::Check;
use self::introspection::Introspection;
use self::jwt::{Jwt, TokenError, Verified};
use sluicegate_base::clock::Clock;
use sluicegate_base::incoming::Request;
use sluicegate_base::request_value;
use sluicegate_config::ApiKeyConfig;
use sluicegate_wire::{Headers, RequestHead};

pub use self::consumers::{Consumer, Consumers};
pub use self::headers::{disown, reads_like};
pub use self::identity::Stop;
pub use self::identity::{Admission, Identified, Identity, Refusal, Unproven};
pub use self::logged::LogIdentity;
pub use self::outside::Asking;
pub use self::stored::StoredIdentity;

/// Something that a service outside must be asked.
pub enum Question {
    /// About a token.
    Token(introspection::Question),
    /// About a request.
    Check(check::Question),
}

/// What services outside said of one request, or what is known of its sender without asking.
#[derive(Default)]
pub struct Answers {
    token: Option<introspection::Introspected>,
    check: Option<check::CheckVerdict>,
    known: Option<Box<KnownSender>>,
}

/// The sender of a request that has no credentials any more, and the keys of the request.
pub enum KnownSender {
    /// By the word of a log.
    Logged(LogIdentity),
    /// As it was verified when the request was accepted, with the keys that the request had under limits of these names, in full.
    Accepted(StoredIdentity, Vec<(String, Vec<u8>)>),
}

impl Answers {
    /// Nothing was asked yet.
    #[inline]
    pub fn none() -> &'static Self {
        static NONE: Answers = Answers { token: None, check: None, known: None };
        &NONE
    }

    /// What is assumed where nobody can be asked, as in a replay: tokens are unknown, and the check admits everything.
    pub fn offline() -> Self {
        let admitted = check::CheckVerdict::Admitted(Arc::default());
        Self { token: Some(introspection::Introspected::Unknown), check: Some(admitted), known: None }
    }

    /// The same of a request whose log says who sent it.
    pub fn of_log(logged: Option<Box<LogIdentity>>) -> Self {
        Self { known: logged.map(|logged| Box::new(KnownSender::Logged(*logged))), ..Self::offline() }
    }

    /// Those for a request that is taken for one of this consumer.
    pub fn of_consumer(name: &str) -> Self {
        let identity = LogIdentity { consumer: Some(name.to_owned()), ..LogIdentity::default() };
        Self { known: Some(Box::new(KnownSender::Logged(identity))), ..Self::default() }
    }

    /// Those for a request that was accepted earlier.
    pub fn of_accepted(identity: StoredIdentity, keys: Vec<(String, Vec<u8>)>) -> Self {
        Self { known: Some(Box::new(KnownSender::Accepted(identity, keys))), ..Self::offline() }
    }

    /// What is known of the sender without asking.
    #[inline]
    pub fn known_sender(&self) -> Option<&KnownSender> {
        self.known.as_deref()
    }

    /// Asks about a token, if there is a clock to do so, and otherwise assumes what [`offline`](Self::offline) does. The
    /// external check is never asked, because it may count. Returns what was assumed.
    pub async fn ask_or_assume(&mut self, question: Question, clock: Option<Clock>) -> Option<&'static str> {
        let Self { token, check, .. } = Self::offline();
        match (question, clock) {
            (Question::Token(question), Some(clock)) => {
                self.token = Some(question.ask(clock).await);
                None
            }
            (Question::Token(_), None) => {
                self.token = token;
                Some("auth.introspection was not asked about the token")
            }
            (Question::Check(_), _) => {
                self.check = check;
                Some("auth.check was not asked: it is taken to admit the request")
            }
        }
    }

    /// Asks, and adds the answer.
    pub async fn ask(&mut self, question: Question, request: Request<'_>, clock: Clock) {
        match question {
            Question::Token(question) => self.token = Some(question.ask(clock).await),
            Question::Check(question) => self.check = Some(question.ask(request, clock).await),
        }
    }
}

/// What says who sent a request.
#[derive(Clone, Copy)]
pub struct Sources<'s, 'a> {
    /// Where API keys are.
    pub api_key: &'s ApiKeyConfig,
    /// The known API keys.
    pub consumers: Option<&'s Consumers>,
    /// Verifies tokens, where anything wants to know the user.
    pub jwt: Option<&'a Jwt>,
    /// Asks about tokens, where anything wants to know the user.
    pub introspection: Option<&'a Arc<Introspection>>,
    /// Asks about requests, where they are to be checked.
    pub check: Option<&'a Arc<Check>>,
}

impl<'s> Sources<'s, '_> {
    /// Whether there is anything to find out.
    #[inline]
    pub fn any(&self) -> bool {
        self.consumers.is_some() || self.jwt.is_some() || self.introspection.is_some() || self.check.is_some()
    }

    /// Who sent a request to the route of this name. `answers` are what was asked for it already.
    ///
    /// # Errors
    /// When a known key or a token is required and the request has none, or its token does not hold at `now`, or the
    /// check refuses it; or if somebody outside must be asked first.
    pub fn identify(
        &self,
        route: &str,
        head: &RequestHead,
        answers: &Answers,
        now: Time,
    ) -> Result<Identity<'s>, Stop<Question>> {
        match answers.known_sender() {
            Some(KnownSender::Accepted(identity, _)) => return Ok(identity.identity(self.consumers)),
            Some(KnownSender::Logged(logged)) => {
                if let Some(identity) = logged.identity(self.consumers) {
                    return Ok(identity);
                }
            }
            None => {}
        }
        let key = consumer(self.api_key, self.consumers, head).map_err(Stop::Unproven)?;
        let token = match (self.jwt, self.introspection) {
            (None, None) => None,
            (Some(jwt), None) => jwt.identify(&head.headers, now)?,
            (jwt, Some(introspection)) => {
                user(jwt, introspection, &head.headers, answers.token.as_ref(), now)
                    .map_err(|stop| stop.asking(Question::Token))?
            }
        };
        let admission = match self.check {
            Some(check) => check
                .check(route, &head.headers, answers.check.as_ref(), now)
                .map_err(|stop| stop.asking(Question::Check))?,
            None => None,
        };
        Ok(Identity { key, token, admission })
    }
}

/// The user by a token that is verified here, if it is of the issuer whose keys are known, and by the word of its issuer
/// otherwise.
fn user(
    jwt: Option<&Jwt>,
    introspection: &Arc<Introspection>,
    headers: &Headers,
    reply: Option<&introspection::Introspected>,
    now: Time,
) -> Result<Option<Arc<Verified>>, Stop<introspection::Question>> {
    let mut required = false;
    match jwt.map(|jwt| (jwt, jwt.identify(headers, now))) {
        Some((_, Ok(Some(verified)))) => return Ok(Some(verified)),
        Some((_, Err(TokenError::Missing))) => required = true,
        Some((jwt, Err(error))) if !jwt.is_foreign(headers) => return Err(error.into()),
        None | Some((_, Ok(None) | Err(_))) => {}
    }
    introspection.identify(headers, required, reply, now)
}

/// Whose API key a request carries. Nothing is allocated; it costs one SHA-256 of the key, and no comparison ever sees
/// the key itself, so how long it takes tells nothing of the keys that exist.
fn consumer<'s>(
    config: &ApiKeyConfig,
    consumers: Option<&'s Consumers>,
    head: &RequestHead,
) -> Result<Option<Consumer<'s>>, Unproven> {
    let Some((settings, consumers)) = config.consumers.as_ref().zip(consumers) else { return Ok(None) };
    let sent = request_value::api_key(&config.source, &head.headers, head.target.query());
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
pub struct ConsumerHeaders<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// Its plan.
    pub plan: Option<&'a str>,
}

/// The headers that report the consumer to the upstream; `None` if that is not configured.
pub fn consumer_headers<'a>(
    config: &ApiKeyConfig,
    check: Option<&Check>,
    identity: &'a Identity<'_>,
) -> Option<ConsumerHeaders<'a>> {
    let forwards = config.consumers.as_ref().is_some_and(|consumers| consumers.forward)
        || check.is_some_and(Check::forwards);
    forwards.then(|| ConsumerHeaders { name: identity.consumer(), plan: identity.consumer_plan() })
}
