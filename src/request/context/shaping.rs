//! The route of an exchange, and what that changes in it.

use http::uri::PathAndQuery;

use super::RequestContext;
use crate::auth::Identity;
use crate::config::UriTemplate;
use crate::message::RequestId;
use crate::rewrite::{self, Facts, Unwritable, apply, disown_changed, render};
use crate::trace::Trace;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;

impl RequestContext {
    /// Takes over what a trusted proxy says of a request, and begins its line in the log.
    pub(super) fn take_over(&self, parts: &RequestHead) {
        if self.trusts_peer()
            && let Some(id) = parts.headers.get("x-request-id").and_then(RequestId::told)
        {
            let _ = self.id.set(id); // it has none yet
        }
        self.begin_record(Some(parts));
    }

    /// Notes the route, whoever sent the request, and makes of both what varies in the headers of the answer.
    pub(super) fn set_route(&mut self, route: usize, parts: &RequestHead, identity: Option<&Identity<'_>>) {
        self.route = Some(route);
        self.set_total(self.view.snapshot.config.routes[route].timeout);
        let changes = self.view.snapshot.answer_headers(self.route);
        if !changes.is_empty() {
            self.answer_values = render(changes, &self.facts(parts, identity));
        }
    }

    /// Makes what the route changes in a request before it is forwarded: its path and query, if they are others.
    ///
    /// # Errors
    /// When the path cannot be written as the route says.
    pub fn shape(
        &mut self,
        parts: &RequestHead,
        identity: &Identity<'_>,
    ) -> Result<Option<PathAndQuery>, Unwritable> {
        self.trace(&parts.headers); // before Connection, which may name it, takes it away
        let Some(route) = self.route else { return Ok(None) };
        let shape = &self.view.snapshot.config.routes[route].shape;
        let facts = self.facts(parts, Some(identity));
        let target = rewrite::target(&shape.path, &facts);
        self.request_values = render(&shape.request, &facts);
        target
    }

    /// Where the client is sent.
    pub fn location(&self, to: &UriTemplate, parts: &RequestHead, identity: &Identity<'_>) -> Vec<u8> {
        rewrite::location(to, &self.facts(parts, Some(identity)))
    }

    /// Changes the headers of a request that is ready to be forwarded: nothing that a client names in Connection
    /// takes them away again.
    pub(crate) fn dress(&self, headers: &mut Headers) {
        let trace = self.trace(headers);
        Trace::write(trace.as_ref(), headers);
        let Some(route) = self.route else { return };
        let changes = &self.view.snapshot.config.routes[route].shape.request;
        if !changes.is_empty() {
            disown_changed(changes, headers);
            apply(changes, &self.request_values, headers);
        }
    }

    /// Its place in a trace, found once.
    pub(super) fn trace(&self, headers: &Headers) -> Option<Trace> {
        *self.trace.get_or_init(|| {
            let config = &self.view.snapshot.config.trace;
            Trace::of(config, headers, self.trusts_peer(), || self.connection.worker.number())
        })
    }

    /// The scheme that the client used.
    pub(super) fn scheme(&self, parts: &RequestHead) -> &'static str {
        match parts.headers.get("x-forwarded-proto").filter(|_| self.trusts_peer()) {
            Some(b"https") => "https",
            Some(b"http") => "http",
            _ => self.connection.scheme(),
        }
    }

    fn facts<'a>(&'a self, parts: &'a RequestHead, identity: Option<&'a Identity<'a>>) -> Facts<'a> {
        let origin = self.connection.origin();
        let snapshot = &self.view.snapshot;
        let client = snapshot.config.client_ip.resolve(&snapshot.config.lists, origin.peer, &parts.headers);
        let (id, scheme) = (self.id(), self.scheme(parts));
        Facts { snapshot, route: self.route, listener: origin.listener, parts, client, identity, id, scheme }
    }
}
