//! The values of template variables.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::auth::Identity;
use crate::message::RequestId;
use crate::route::host;
use crate::tls::Identified;
use sluicegate_config::{Params, PathError, RouteConfig, Variable, normalize};
use sluicegate_wire::RequestHead;

/// The parts of a request that templates refer to, as the client sent them.
pub struct Facts<'a> {
    /// The configuration of the route; `None` if no route was found.
    pub route: Option<&'a RouteConfig>,
    /// The name of the listener, if the configuration in force has it.
    pub listener: Option<&'a str>,
    /// The head of the request as it was received.
    pub parts: &'a RequestHead,
    /// The address of the client.
    pub client: IpAddr,
    /// The authenticated identity of the sender.
    pub identity: Option<&'a Identity<'a>>,
    /// The id of the request.
    pub id: &'a RequestId,
    /// The scheme that the client used.
    pub scheme: &'a str,
    /// The owner of the client's verified certificate.
    pub certified: Option<&'a Identified>,
}

impl Facts<'_> {
    /// The normal form of a path of the route.
    pub(super) fn normal_path<'p>(&self, path: &'p str) -> Result<Cow<'p, str>, PathError> {
        self.route.map_or_else(|| normalize(path), |route| route.normal_path(path))
    }

    /// The value of a variable; `None` if the request does not have it.
    pub(super) fn value(&self, variable: &Variable) -> Option<Cow<'_, [u8]>> {
        let text = |text: &'static str| Some(Cow::Borrowed(text.as_bytes()));
        let same = |bytes: &[u8]| Some(Cow::Owned(bytes.to_vec()));
        match variable {
            Variable::ClientIp => Some(Cow::Owned(self.client.to_string().into_bytes())),
            Variable::RequestId => Some(Cow::Borrowed(self.id.as_bytes())),
            Variable::Host => same(host(self.parts).ok()?.as_bytes()),
            Variable::Method => Some(Cow::Borrowed(self.parts.method.as_str().as_bytes())),
            Variable::Path => same(self.normal_path(self.parts.target.path()).ok()?.as_bytes()),
            Variable::Rest | Variable::Param(_) => {
                self.of_path(variable).map(|text| Cow::Owned(text.into_bytes()))
            }
            Variable::Query => Some(Cow::Borrowed(self.parts.target.query()?.as_bytes())),
            Variable::Scheme => match self.scheme {
                "https" => text("https"),
                _ => text("http"),
            },
            Variable::Listener => Some(Cow::Borrowed(self.listener?.as_bytes())),
            Variable::Route => Some(Cow::Borrowed(self.route?.name.as_bytes())),
            Variable::Consumer => same(self.identity?.consumer()?.as_bytes()),
            Variable::Metadata(name) => same(self.identity?.metadata(name)?.as_bytes()),
            Variable::Plan => same(self.identity?.plan()?.as_bytes()),
            Variable::User => same(self.identity?.token.as_deref()?.user()?.as_bytes()),
            Variable::TlsSubject => Some(Cow::Borrowed(self.certified?.subject.as_bytes())),
            Variable::TlsFingerprint => Some(Cow::Borrowed(self.certified?.fingerprint.as_bytes())),
            Variable::Claim(name) => same(self.identity?.token.as_deref()?.claim(name)?.as_bytes()),
        }
    }

    /// The value of a variable that is part of the path, according to the first pattern of the route that matches.
    fn of_path(&self, variable: &Variable) -> Option<String> {
        let path = self.normal_path(self.parts.target.path()).ok()?;
        let mut params = Params::new();
        let patterns = &self.route?.matches.paths.patterns;
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
