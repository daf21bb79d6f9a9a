//! The route of an exchange, and what that changes in it.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;

use super::Exchange;
use crate::auth::Identity;
use crate::shape::{Facts, Unwritable, UriTemplate, apply, disown_changed, render};
use crate::trace::Trace;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The longest request id that is taken over from a trusted proxy.
const MAX_ID: usize = 128;

impl Exchange {
    /// Takes over what a trusted proxy says of a request, and begins its line in the log.
    pub(super) fn take_over(&self, parts: &Parts) {
        if self.trusts_peer()
            && let Some(id) = parts.headers.get(X_REQUEST_ID).filter(|id| is_id(id.as_bytes()))
        {
            let _ = self.id.set(id.clone()); // it has none yet
        }
        self.begin_record(parts);
    }

    /// Notes the route, whoever sent the request, and makes of both what varies in the headers of the answer.
    pub(super) fn set_route(&mut self, route: usize, parts: &Parts, identity: Option<&Identity<'_>>) {
        self.route = Some(route);
        self.set_total(self.view.snapshot.config.routes[route].timeout);
        let changes = self.view.snapshot.answer_headers(self.route);
        if !changes.is_empty() {
            let id = self.id();
            self.answer_values =
                render(changes, &self.facts(parts, identity, &id), &self.connection.worker.scratch);
        }
    }

    /// Makes what the route changes in a request before it is forwarded: its path and query, if they are others.
    ///
    /// # Errors
    /// When the path cannot be written as the route says.
    pub fn shape(
        &mut self,
        parts: &Parts,
        identity: &Identity<'_>,
    ) -> Result<Option<PathAndQuery>, Unwritable> {
        self.trace(&parts.headers); // before Connection, which may name it, takes it away
        let Some(route) = self.route else { return Ok(None) };
        let shape = &self.view.snapshot.config.routes[route].shape;
        let id = self.id();
        let facts = self.facts(parts, Some(identity), &id);
        let target = shape.path.target(&facts);
        self.request_values = render(&shape.request, &facts, &self.connection.worker.scratch);
        target
    }

    /// Where the client is sent.
    pub fn location(&self, to: &UriTemplate, parts: &Parts, identity: &Identity<'_>) -> HeaderValue {
        to.location(&self.facts(parts, Some(identity), &self.id()))
    }

    /// Changes the headers of a request that is ready to be forwarded: nothing that a client names in Connection
    /// takes them away again.
    pub(in crate::forward) fn dress(&self, headers: &mut HeaderMap) {
        let trace = self.trace(headers);
        Trace::write(trace.as_ref(), &self.connection.worker.scratch, headers);
        let Some(route) = self.route else { return };
        let changes = &self.view.snapshot.config.routes[route].shape.request;
        if !changes.is_empty() {
            disown_changed(changes, headers);
            apply(changes, &self.request_values, headers);
        }
    }

    /// Its place in a trace, found once.
    pub(super) fn trace(&self, headers: &HeaderMap) -> Option<Trace> {
        *self.trace.get_or_init(|| {
            let config = &self.view.snapshot.config.trace;
            Trace::of(config, headers, self.trusts_peer(), || self.connection.worker.number())
        })
    }

    /// The scheme that the client used.
    pub(super) fn scheme(&self, parts: &Parts) -> &'static str {
        let said = parts.headers.get(X_FORWARDED_PROTO).filter(|_| self.trusts_peer());
        match said.map(HeaderValue::as_bytes) {
            Some(b"https") => "https",
            Some(b"http") => "http",
            _ => self.connection.scheme(),
        }
    }

    fn facts<'a>(
        &'a self,
        parts: &'a Parts,
        identity: Option<&'a Identity<'a>>,
        id: &'a HeaderValue,
    ) -> Facts<'a> {
        let origin = self.connection.origin();
        let snapshot = &self.view.snapshot;
        let client = snapshot.config.client_ip.resolve(origin.peer, &parts.headers);
        let scheme = self.scheme(parts);
        Facts { snapshot, route: self.route, listener: origin.listener, parts, client, identity, id, scheme }
    }
}

/// Whether a text can be a request's id: it comes to stand in JSON, in logs and in headers as it is.
fn is_id(text: &[u8]) -> bool {
    let good = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'<' | b'>');
    !text.is_empty() && text.len() <= MAX_ID && text.iter().all(good)
}
