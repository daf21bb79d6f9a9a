//! The line of an exchange in the access log, as it comes to be known.

use std::sync::atomic::Ordering;

use sluicegate_limiter::Time;

use super::RequestContext;
use crate::access_log::{End, Record};
use crate::request::early_reject::Unjudged;
use crate::request::verdict::{Found, Judged};
use crate::respond::LocalError;
use crate::upstream::ForwardError;
use sluicegate_wire::RequestHead;

impl RequestContext {
    /// Begins the line of a request; of one that could not be read there are no `parts`.
    pub(super) fn begin_record(&self, parts: Option<&RequestHead>) {
        let Some(log) = &self.view.access_log else { return };
        let peer = self.connection.peer_ip();
        let Some(parts) = parts else {
            self.record.replace(Some(Record::unread(peer, self.connection.scheme())));
            return;
        };
        let config = &self.view.snapshot.config;
        let client = config.client_ip.resolve(&config.lists, peer, &parts.headers);
        let record = Record::new(log.config(), parts, client, peer, self.scheme(parts));
        self.record.replace(Some(record));
        self.trace(&parts.headers);
    }

    fn note(&self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            note(record);
        }
    }

    /// The request never comes to its limits.
    pub fn unjudged(&mut self, why: &Unjudged, parts: &RequestHead) {
        if let Unjudged::KeyMissing { route, .. }
        | Unjudged::Unproven { route, .. }
        | Unjudged::NotLetIn { route }
        | Unjudged::Preflight { route: Some(route) } = why
        {
            self.set_route(*route, parts, None);
        }
        self.note(|record| record.unjudged(why));
        if let Some(error) = LocalError::of(why) {
            self.refused(error.reason(), Some(error.detail()));
        }
    }

    pub(super) fn note_refusal(&self, detail: Option<&'static str>) {
        self.note(|record| record.refused(detail));
    }

    /// The route is found, and who sent the request.
    pub fn found(&mut self, found: &Found<'_>, parts: &RequestHead) {
        self.set_route(found.route_index, parts, Some(&found.identity));
        self.note(|record| {
            record.identified(&found.identity);
            if found.route.target.is_none() {
                record.admitted();
            }
        });
    }

    /// Its limits have spoken.
    pub fn judged(&self, judged: &Judged<'_>) {
        self.note(|record| record.judged(judged));
    }

    /// It goes to this upstream.
    pub fn goes_to(&self, upstream: usize) {
        self.note(|record| record.forwarded(upstream));
    }

    /// A server was asked, and that took from its release until now.
    pub(crate) fn asked(&self, server: &str, failed: Option<&ForwardError>) {
        let took = || self.connection.worker.clock().now().since(self.released);
        self.note(|record| record.asked(server, took(), failed.map(ForwardError::told)));
    }

    /// No server could be asked.
    pub(crate) fn not_asked(&self, why: &ForwardError) {
        self.note(|record| record.not_asked(why.told()));
    }

    /// Writes the line.
    pub(super) fn log(&self, now: Time) {
        let (Some(log), Some(record)) = (&self.view.access_log, self.record.take()) else { return };
        let worker = &self.connection.worker;
        let snapshot = &self.view.snapshot;
        let end = End {
            snapshot,
            route: self.route,
            listener: self.connection.origin().listener,
            begun: self.begun,
            took: now.since(self.begun),
            code: self.code,
            reason: self.reason.get(),
            complete: self.complete.get(),
            received: self.received(),
            sent: self.sent.get(),
            id: self.id().clone(),
            trace: self.trace.get().copied().flatten(),
        };
        log.write(&record, &end, worker.number());
        if self.connection.services.process.generation.load(Ordering::Acquire) != snapshot.generation {
            log.flush(); // nobody else looks after the log of an earlier configuration
        }
    }
}
