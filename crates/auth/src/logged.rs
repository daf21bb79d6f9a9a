//! Who sent a request, by the word of an access log: a replay has no credentials that could be verified.

use std::sync::Arc;

use super::consumers::Consumers;
use super::identity::{Admission, Identity};
use super::jwt::Verified;

/// Who sent a request, as the log of a gateway says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogIdentity {
    /// The consumer.
    pub consumer: Option<String>,
    /// The plan.
    pub plan: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// A limit, and the key that the request had there, as it is shown to operators.
    pub key: Option<(String, String)>,
}

impl LogIdentity {
    /// Whether it says who sent the request, and not only which key it had.
    fn names_anybody(&self) -> bool {
        self.consumer.is_some() || self.plan.is_some() || self.user.is_some()
    }

    /// The identity; `None` if the log names nobody.
    pub(super) fn identity<'s>(&self, consumers: Option<&'s Consumers>) -> Option<Identity<'s>> {
        if !self.names_anybody() {
            return None;
        }
        let known = self.consumer.as_deref().and_then(|name| consumers?.named(name));
        // Of a consumer in the file, the file says what this does not: the plan.
        let unknown = self.consumer.as_deref().filter(|_| known.is_none());
        let admission = Admission {
            consumer: unknown.map(Box::from),
            plan: self.plan.as_deref().map(Box::from),
            rate: None,
            cost: None,
        };
        Some(Identity {
            key: known,
            token: self.user.as_deref().map(|user| Arc::new(Verified::of_log(user))),
            admission: Some(Arc::new(admission)),
        })
    }
}
