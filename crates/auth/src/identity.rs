//! The identity of the sender of a request, and why there is none.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::consumers::Consumer;
use super::jwt::{TokenError, Verified};
use sluicegate_base::incoming::Routed;
use sluicegate_config::{Priority, RateSource};

/// The authenticated identity of the sender of a request; anonymous by default.
#[derive(Clone, Debug, Default)]
pub struct Identity<'s> {
    /// The consumer whose API key the request has.
    pub key: Option<Consumer<'s>>,
    /// The verified token, if the configuration uses anything of it.
    pub token: Option<Arc<Verified>>,
    /// The answer of the external check.
    pub admission: Option<Arc<Admission>>,
}

/// A request with its route and the identity of its sender.
#[derive(Clone, Copy)]
pub struct Identified<'r> {
    /// The request.
    pub routed: &'r Routed<'r>,
    /// The identity, which may be anonymous.
    pub identity: &'r Identity<'r>,
}

impl Identity<'_> {
    /// The name of the consumer: the one that the external check names, or else the owner of the API key.
    pub fn consumer(&self) -> Option<&str> {
        match self.checked_consumer() {
            Some(named) => Some(named),
            None => self.key.map(|key| key.name),
        }
    }

    /// The plan: the one that the external check names, or that of the consumer, or else the one that the token names.
    pub fn plan(&self) -> Option<&str> {
        self.consumer_plan().or_else(|| self.token.as_deref()?.plan())
    }

    /// The priority that the file of consumers gives to requests of the consumer.
    pub fn priority(&self) -> Option<Priority> {
        let key = self.key.filter(|key| self.checked_consumer().is_none_or(|named| named == key.name))?;
        key.priority
    }

    /// The plan of the consumer.
    pub(super) fn consumer_plan(&self) -> Option<&str> {
        if self.admission.is_none() {
            return self.key.and_then(|key| key.plan);
        }
        let named = self.admission.as_ref().and_then(|admission| admission.plan.as_deref());
        named.or_else(|| self.key.filter(|_| self.checked_consumer().is_none())?.plan)
    }

    fn checked_consumer(&self) -> Option<&str> {
        self.admission.as_ref()?.consumer.as_deref()
    }

    /// A metadata value of the consumer, from the file of consumers.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        let key = self.key.filter(|key| self.checked_consumer().is_none_or(|named| named == key.name))?;
        key.metadata().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The rate that this source names, as it is written there.
    pub fn rate(&self, source: &RateSource) -> Option<&str> {
        match source {
            RateSource::Claim(name) => self.token.as_deref()?.claim(name),
            RateSource::Metadata(name) => self.metadata(name),
            RateSource::Check => self.admission.as_deref()?.rate.as_deref(),
        }
    }

    /// The cost of the request that the external check names; 1 if it names none.
    pub fn cost(&self) -> u64 {
        self.admission.as_ref().and_then(|admission| admission.cost).unwrap_or(1)
    }
}

/// The answer of the external check to a request that it admits.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The name of a consumer.
    pub consumer: Option<Box<str>>,
    /// The name of a plan.
    pub plan: Option<Box<str>>,
    /// The rate of limits with `rate: check:rate`, as it is written.
    pub rate: Option<Box<str>>,
    /// The cost of the request on limits with `cost: check:cost`, from 1.
    pub cost: Option<u64>,
}

/// The answer of the external check to a request that it refuses.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 401, 403 or 429.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: Vec<HeaderValue>,
    /// The value of `Retry-After`.
    pub retry_after: Option<HeaderValue>,
}

/// Why authentication failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// The request has no API key, an empty one, or several.
    NoKey,
    /// No consumer has its API key.
    UnknownKey,
    /// Its token is not valid, or is required and missing.
    Token(TokenError),
    /// The external check refuses the request.
    Refused(Arc<Refusal>),
    /// The service that has to be asked is unavailable.
    Away,
}

/// Why the identity of a sender is not known. `Q` is what a service is asked.
pub enum Stop<Q> {
    /// Authentication failed.
    Unproven(Unproven),
    /// A service has to be asked first.
    Ask(Q),
}

impl<Q> From<TokenError> for Stop<Q> {
    fn from(error: TokenError) -> Self {
        Self::Unproven(Unproven::Token(error))
    }
}

impl<Q> Stop<Q> {
    /// Converts the question.
    pub(super) fn asking<T>(self, question: impl FnOnce(Q) -> T) -> Stop<T> {
        match self {
            Self::Unproven(why) => Stop::Unproven(why),
            Self::Ask(asked) => Stop::Ask(question(asked)),
        }
    }
}
