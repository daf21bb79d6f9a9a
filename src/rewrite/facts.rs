//! What templates can say of a request.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::auth::Identity;
use crate::config::{Params, Variable, normalize};
use crate::message::RequestId;
use crate::route::host;
use crate::snapshot::Snapshot;
use sluicegate_wire::RequestHead;

/// A request as templates see it: as it came, whatever was done to it since it was decided on.
pub struct Facts<'a> {
    /// The configuration.
    pub snapshot: &'a Snapshot,
    /// The route's index; `None` if none was found.
    pub route: Option<usize>,
    /// The listener's index.
    pub listener: usize,
    /// The head as it came.
    pub parts: &'a RequestHead,
    /// The client's address.
    pub client: IpAddr,
    /// Who sent it, if that is proved.
    pub identity: Option<&'a Identity<'a>>,
    /// The request's id.
    pub id: &'a RequestId,
    /// The scheme that the client used.
    pub scheme: &'a str,
}

impl Facts<'_> {
    /// What a variable stands for; `None` if the request has no such thing.
    pub(super) fn value(&self, variable: &Variable) -> Option<Cow<'_, [u8]>> {
        let text = |text: &'static str| Some(Cow::Borrowed(text.as_bytes()));
        let same = |bytes: &[u8]| Some(Cow::Owned(bytes.to_vec()));
        match variable {
            Variable::ClientIp => Some(Cow::Owned(self.client.to_string().into_bytes())),
            Variable::RequestId => Some(Cow::Borrowed(self.id.as_bytes())),
            Variable::Host => same(host(self.parts).ok()?.as_bytes()),
            Variable::Method => Some(Cow::Borrowed(self.parts.method.as_str().as_bytes())),
            Variable::Path => same(normalize(self.parts.target.path()).ok()?.as_bytes()),
            Variable::Rest | Variable::Param(_) => {
                self.of_path(variable).map(|text| Cow::Owned(text.into_bytes()))
            }
            Variable::Query => Some(Cow::Borrowed(self.parts.target.query()?.as_bytes())),
            Variable::Scheme => match self.scheme {
                "https" => text("https"),
                _ => text("http"),
            },
            Variable::Listener => {
                Some(Cow::Borrowed(self.snapshot.config.listeners.get(self.listener)?.name.as_bytes()))
            }
            Variable::Route => Some(Cow::Borrowed(self.snapshot.routes[self.route?].name.as_bytes())),
            Variable::Consumer => same(self.identity?.consumer?.name.as_bytes()),
            Variable::Metadata(name) => {
                let consumer = self.identity?.consumer?;
                same(consumer.metadata().find(|(known, _)| known == name)?.1.as_bytes())
            }
            Variable::Plan => same(self.identity?.plan()?.as_bytes()),
            Variable::User => same(self.identity?.token.as_deref()?.user()?.as_bytes()),
            Variable::Claim(name) => same(self.identity?.token.as_deref()?.claim(name)?.as_bytes()),
        }
    }

    /// A piece of the path, by the first of the route's patterns that it matches.
    fn of_path(&self, variable: &Variable) -> Option<String> {
        let path = normalize(self.parts.target.path()).ok()?;
        let mut params = Params::new();
        let patterns = &self.snapshot.config.routes[self.route?].matches.paths;
        let Some(pattern) = patterns.iter().find(|pattern| pattern.matches(&path, &mut params)) else {
            return (*variable == Variable::Rest).then(|| path[1..].to_owned()); // a route that takes every path
        };
        match variable {
            Variable::Param(name) => {
                params.iter().find(|(param, _)| param == name).map(|(_, value)| (*value).to_owned())
            }
            _ => Some(pattern.rest(&path).to_owned()),
        }
    }
}
