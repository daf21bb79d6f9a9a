//! The identity of the sender of a request, and why there is none.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::consumers::Consumer;
use super::jwt::{TokenError, Verified};
use crate::incoming::Routed;
use sluicegate_config::{Priority, RateSource};

/// What is proved of whoever sent a request.
#[derive(Clone, Debug, Default)]
pub struct Identity<'s> {
    /// The consumer whose key was sent.
    pub key: Option<Consumer<'s>>,
    /// What its token says, if anything wants to know the user.
    pub token: Option<Arc<Verified>>,
    /// What the external check says.
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
    /// The name of the consumer: the one that the external check names, or the one whose key was sent.
    pub fn consumer(&self) -> Option<&str> {
        match self.checked_consumer() {
            Some(named) => Some(named),
            None => self.key.map(|key| key.name),
        }
    }

    /// The plan that it is on: the one that the external check names, or that of the consumer, or else the one that the
    /// token names.
    pub fn plan(&self) -> Option<&str> {
        self.consumer_plan().or_else(|| self.token.as_deref()?.plan())
    }

    /// How important the file of consumers says that the requests of the consumer are.
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

    /// A value that the file of consumers has for the consumer.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        let key = self.key.filter(|key| self.checked_consumer().is_none_or(|named| named == key.name))?;
        key.metadata().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The rate that it has by this source, as it is written there.
    pub fn rate(&self, source: &RateSource) -> Option<&str> {
        match source {
            RateSource::Claim(name) => self.token.as_deref()?.claim(name),
            RateSource::Metadata(name) => self.metadata(name),
            RateSource::Check => self.admission.as_deref()?.rate.as_deref(),
        }
    }

    /// What its request costs by the word of the external check, at least 1.
    pub fn cost(&self) -> u64 {
        self.admission.as_ref().and_then(|admission| admission.cost).unwrap_or(1)
    }
}

/// Who sends a request, by the words of the service.
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

/// A refusal by the service.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 401, 403 or 429.
    pub status: StatusCode,
    /// How clients authenticate themselves there.
    pub challenges: Vec<HeaderValue>,
    /// When they may try again.
    pub retry_after: Option<HeaderValue>,
}

/// Why a request that has to prove itself does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// It carries no API key, an empty one or several.
    NoKey,
    /// It carries one that nobody here has.
    UnknownKey,
    /// Its token does not hold, or it lacks the one that it needs.
    Token(TokenError),
    /// The external check refuses it.
    Refused(Arc<Refusal>),
    /// Whoever knows is away.
    Away,
}

/// Why nobody is identified.
pub(crate) enum Stop<Q> {
    /// The request does not prove itself.
    Unproven(Unproven),
    /// Somebody outside must be asked first.
    Ask(Q),
}

impl<Q> From<TokenError> for Stop<Q> {
    fn from(error: TokenError) -> Self {
        Self::Unproven(Unproven::Token(error))
    }
}

impl<Q> Stop<Q> {
    /// The same with the question as another type has it.
    pub(super) fn asking<T>(self, question: impl FnOnce(Q) -> T) -> Stop<T> {
        match self {
            Self::Unproven(why) => Stop::Unproven(why),
            Self::Ask(asked) => Stop::Ask(question(asked)),
        }
    }
}
