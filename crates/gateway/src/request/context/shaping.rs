//! The route of a request, and the changes of headers and path that the route configures.

use http::uri::PathAndQuery;

use super::RequestContext;
use crate::snapshot::Snapshot;
use sluicegate_auth::Identity;
use sluicegate_base::message::RequestId;
use sluicegate_config::UriTemplate;
use sluicegate_observe::trace::Trace;
use sluicegate_route::rewrite::{self, Facts, Unwritable, apply, disown_changed, render};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;

impl RequestContext {
    /// Adopts the request id of a trusted proxy, and begins the log record.
    pub(super) fn adopt_forwarded(&self, snapshot: &Snapshot, head: &RequestHead) {
        if self.trusts_peer
            && let Some(id) = head.headers.get("x-request-id").and_then(RequestId::received)
        {
            self.exchange.adopt_id(id);
        }
        self.begin_record(snapshot, Some(head));
    }

    /// Notes the route, and renders the response header rules, which may depend on the identity of the sender.
    pub(super) fn set_route(
        &mut self,
        snapshot: &Snapshot,
        route: usize,
        head: &RequestHead,
        identity: &Identity<'_>,
    ) {
        self.route = Some(route);
        self.start_timeout(snapshot, route);
        let changes = snapshot.answer_headers(self.route);
        if !changes.is_empty() {
            self.answer_values = render(changes, &self.facts(snapshot, route, head, identity));
        }
    }

    /// Sets the total timeout of the route, if it is not set. Called before the request waits for anything.
    pub fn start_timeout(&self, snapshot: &Snapshot, route: usize) {
        self.exchange.set_total(snapshot.config.routes[route].timeout);
    }

    /// Rewrites path and query as the route says, and renders its request header rules. `None` if the target stays.
    ///
    /// # Errors
    /// If the route's path template does not apply to the path.
    pub fn rewrite(
        &mut self,
        snapshot: &Snapshot,
        head: &RequestHead,
        identity: &Identity<'_>,
    ) -> Result<Option<PathAndQuery>, Unwritable> {
        self.trace(snapshot, &head.headers); // before hop-by-hop headers are removed
        let Some(route) = self.route else { return Ok(None) };
        let rules = &snapshot.config.routes[route].shape;
        let facts = self.facts(snapshot, route, head, identity);
        let target = rewrite::target(&rules.path, &facts);
        self.request_values = render(&rules.request, &facts);
        target
    }

    /// The Location of a redirect by the route with this index.
    pub fn location(
        &self,
        snapshot: &Snapshot,
        (route, to): (usize, &UriTemplate),
        head: &RequestHead,
        identity: &Identity<'_>,
    ) -> Vec<u8> {
        rewrite::location(to, &self.facts(snapshot, route, head, identity))
    }

    /// Applies the request header rules of the route and sets the trace context. Called after hop-by-hop headers are
    /// removed, so that a client cannot have the results removed by naming them in Connection.
    pub(crate) fn apply_header_rules(&self, snapshot: &Snapshot, headers: &mut Headers) {
        let trace = self.trace(snapshot, headers);
        Trace::write(trace.as_ref(), headers);
        let Some(route) = self.route else { return };
        let changes = &snapshot.config.routes[route].shape.request;
        if !changes.is_empty() {
            disown_changed(changes, headers);
            apply(changes, &self.request_values, headers);
        }
    }

    /// The trace context, determined once.
    pub(super) fn trace(&self, snapshot: &Snapshot, headers: &Headers) -> Option<Trace> {
        *self.trace.get_or_init(|| {
            let config = &snapshot.config.trace;
            Trace::of(config, headers, self.trusts_peer, || self.connection().worker.random_u64())
        })
    }

    fn facts<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        route: usize,
        head: &'a RequestHead,
        identity: &'a Identity<'a>,
    ) -> Facts<'a> {
        let config = &snapshot.config;
        let request = self.request(head);
        let listener = config.listeners.get(request.peer.listener).map(|listener| listener.name.as_str());
        Facts { request, route: &config.routes[route], identity, listener, id: self.id() }
    }
}
