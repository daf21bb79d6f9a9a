//! The identity of the sender of a request that is delivered later: it was verified when the request was accepted, and is not
//! verified again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::consumers::Consumers;
use super::identity::{Admission, Identity};
use super::jwt::{StoredToken, Verified};

/// An identity without the credentials that prove it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredIdentity {
    /// The name of the consumer.
    pub consumer: Option<String>,
    /// The name of the consumer whose API key the request had.
    pub key_owner: Option<String>,
    /// The plan of the consumer.
    pub plan: Option<String>,
    /// What was kept of the token, if there was one.
    pub token: Option<StoredToken>,
    /// The rate that the external check named.
    pub rate: Option<String>,
    /// The cost that the external check named.
    pub cost: Option<u64>,
}

impl StoredIdentity {
    /// What is stored of an identity.
    pub fn of(identity: &Identity<'_>) -> Self {
        let admission = identity.admission.as_deref();
        Self {
            consumer: identity.consumer().map(str::to_owned),
            key_owner: identity.key.map(|key| key.name.to_owned()),
            plan: identity.consumer_plan().map(str::to_owned),
            token: identity.token.as_deref().map(Verified::store),
            rate: admission.and_then(|admission| admission.rate.as_deref()).map(str::to_owned),
            cost: admission.and_then(|admission| admission.cost),
        }
    }

    /// The same identity again. What the file of consumers says besides the plan is what it says now.
    pub(super) fn identity<'s>(&self, consumers: Option<&'s Consumers>) -> Identity<'s> {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        // An admission that names the consumer determines the plan too.
        let admission = Admission {
            consumer: text(&self.consumer),
            plan: text(&self.plan),
            rate: text(&self.rate),
            cost: self.cost,
        };
        Identity {
            key: self.key_owner.as_deref().and_then(|name| consumers?.named(name)),
            token: self.token.as_ref().map(|token| Arc::new(Verified::restore(token))),
            admission: (admission != Admission::default()).then(|| Arc::new(admission)),
        }
    }
}
