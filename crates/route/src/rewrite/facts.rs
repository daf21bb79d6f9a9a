//! The values of template variables.

use std::borrow::Cow;

use crate::host;
use sluicegate_auth::Identity;
use sluicegate_base::incoming::Request;
use sluicegate_base::message::RequestId;
use sluicegate_config::{Params, RouteConfig, Variable};

/// The request that templates refer to, as the client sent it.
pub struct Facts<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The configuration of the route.
    pub route: &'a RouteConfig,
    /// The identity of the sender, which may be anonymous.
    pub identity: &'a Identity<'a>,
    /// The name of the listener, if the configuration in force has it.
    pub listener: Option<&'a str>,
    /// The id of the request.
    pub id: &'a RequestId,
}

impl Facts<'_> {
    /// The value of a variable; `None` if the request does not have it.
    pub(super) fn value(&self, variable: &Variable) -> Option<Cow<'_, [u8]>> {
        let text = |text: &'static str| Some(Cow::Borrowed(text.as_bytes()));
        let same = |bytes: &[u8]| Some(Cow::Owned(bytes.to_vec()));
        let (head, identity) = (self.request.head, self.identity);
        match variable {
            Variable::ClientIp => Some(Cow::Owned(self.request.peer.client.to_string().into_bytes())),
            Variable::RequestId => Some(Cow::Borrowed(self.id.as_bytes())),
            Variable::Host => same(host(head).ok()?.as_bytes()),
            Variable::Method => Some(Cow::Borrowed(head.method.as_str().as_bytes())),
            Variable::Path => same(self.route.normal_path(head.target.path()).ok()?.as_bytes()),
            Variable::Rest | Variable::Param(_) => {
                self.of_path(variable).map(|text| Cow::Owned(text.into_bytes()))
            }
            Variable::Query => Some(Cow::Borrowed(head.target.query()?.as_bytes())),
            Variable::Scheme => match self.request.scheme() {
                "https" => text("https"),
                _ => text("http"),
            },
            Variable::Listener => Some(Cow::Borrowed(self.listener?.as_bytes())),
            Variable::Route => Some(Cow::Borrowed(self.route.name.as_bytes())),
            Variable::Consumer => same(identity.consumer()?.as_bytes()),
            Variable::Metadata(name) => same(identity.metadata(name)?.as_bytes()),
            Variable::Plan => same(identity.plan()?.as_bytes()),
            Variable::User => same(identity.token.as_deref()?.user()?.as_bytes()),
            Variable::TlsSubject => Some(Cow::Borrowed(self.request.certificate()?.subject.as_bytes())),
            Variable::TlsFingerprint => {
                Some(Cow::Borrowed(self.request.certificate()?.fingerprint.as_bytes()))
            }
            Variable::Claim(name) => same(identity.token.as_deref()?.claim(name)?.as_bytes()),
        }
    }

    /// The value of a variable that is part of the path, according to the first pattern of the route that matches.
    fn of_path(&self, variable: &Variable) -> Option<String> {
        let path = self.route.normal_path(self.request.head.target.path()).ok()?;
        let mut params = Params::new();
        let patterns = &self.route.matches.paths.patterns;
        let Some(pattern) = patterns.iter().find(|pattern| pattern.matches(&path, &mut params)) else {
            return (*variable == Variable::Rest).then(|| path[1..].to_owned()); // a route without patterns, or a path that matches an expression
        };
        match variable {
            Variable::Param(name) => {
                params.iter().find(|(param, _)| param == name).map(|(_, value)| (*value).to_owned())
            }
            _ => Some(pattern.rest(&path).to_owned()),
        }
    }
}
