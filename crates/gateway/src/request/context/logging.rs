//! The access log record of a request, filled in while the request proceeds.

use sluicegate_limiter::Time;

use super::RequestContext;
use crate::request::early_reject::EarlyReject;
use crate::request::limit_selection::SkipReason;
use crate::request::verdict::{Evaluated, Matched};
use crate::snapshot::{Snapshot, Target};
use sluicegate_auth::Identity;
use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_config::Config;
use sluicegate_observe::access_log::{End, Outcome, Record};
use sluicegate_observe::shown_key::ShownKeys;
use sluicegate_observe::telemetry::span;
use sluicegate_observe::trace::Trace;
use sluicegate_wire::RequestHead;

impl RequestContext {
    /// Begins the record. `head` is that of the request, if it could be parsed.
    pub(super) fn begin_record(&self, snapshot: &Snapshot, head: Option<&RequestHead>) {
        let log = self.ending.access_log.as_ref();
        let peer = self.connection().peer_ip();
        let Some(head) = head else {
            if log.is_some() {
                self.exchange.begin_record(Record::unread(peer, self.connection().scheme()));
            }
            return;
        };
        if log.is_none() && self.ending.spans.is_none() {
            return;
        }
        let trace = self.trace(snapshot, &head.headers);
        let spans = self.ending.spans.is_some() && trace.is_some_and(|trace| trace.is_sampled());
        if log.is_none() && !spans {
            return;
        }
        let fields = log.map(|log| &log.config().fields[..]).unwrap_or_default();
        let record = Record::new(fields, head, self.client, peer, self.request(head).scheme());
        self.exchange.begin_record(if spans { record.with_span(head) } else { record });
    }

    fn note(&self, note: impl FnOnce(&mut Record)) {
        self.exchange.note(note);
    }

    /// Notes that the request is rejected before its limits are evaluated.
    pub fn set_rejected(&mut self, snapshot: &Snapshot, reject: &EarlyReject, head: &RequestHead) {
        if let Some(route) = reject.route() {
            self.set_route(snapshot, route, head, &Identity::default());
        }
        self.note(|record| record.outcome = Some(reject.outcome()));
        if let Some(error) = reject.error() {
            self.refused(error.reason(), Some(error.detail()));
        }
    }

    pub(super) fn note_refusal(&self, detail: Option<&'static str>) {
        self.note(|record| record.detail = detail);
    }

    /// Notes why the upstream's answer ended before its end.
    pub(super) fn note_upstream_error(&self, error: Option<&String>) {
        if let Some(error) = error {
            self.note(|record| record.upstream_error = Some(error.clone()));
        }
    }

    /// Notes the route and the identity of the sender.
    pub fn set_matched(&mut self, snapshot: &Snapshot, matched: &Matched<'_>, head: &RequestHead) {
        self.set_route(snapshot, matched.route_index, head, &matched.identity);
        if let Some(consumers) = &self.ending.consumers {
            self.seat = matched.identity.consumer().map(|name| consumers.enter(name));
        }
        self.note(|record| {
            record.identified(&matched.identity);
            if matches!(matched.route.target, Target::Usage) {
                record.outcome = Some(Outcome::Admitted);
            }
        });
    }

    /// Logs the decision of the limits.
    pub fn log_evaluation(&self, evaluated: Evaluated<'_, '_>, config: &Config) {
        let (decided, decision) = (evaluated.decided(), evaluated.decision());
        self.note(|record| {
            let served = decision.admitted && !decision.unavailable;
            record.outcome = Some(if served { Outcome::Admitted } else { Outcome::Refused });
            if decision.unavailable {
                return; // there are no verdicts
            }
            if let Some(reported) = decided.reported().map(|at| decided.at(at)) {
                let selected = reported.selected;
                record.limit = Some((selected.index, reported.verdict.usage.remaining));
                if record.wants_key {
                    record.key = ShownKeys::for_operators(config).text(&selected.ask.text).map(Into::into);
                }
                record.retry_after = reported.retry_after().filter(|_| !served);
            }
            record.delay = decision.delay;
            for one in decided.iter() {
                match one.outcome() {
                    LimitOutcome::CandidateRefused => record.candidate.push(one.selected.index),
                    LimitOutcome::ShadowRefused => record.shadow.push(one.selected.index),
                    _ => {}
                }
            }
            let denied = evaluated.skipped.iter().filter(|(_, why)| *why == SkipReason::WouldDeny);
            record.shadow.extend(denied.map(|(index, _)| *index));
        });
    }

    /// Logs that the request was put into the queue of a limit.
    pub(crate) fn set_queued(&self, limit: usize) {
        self.note(|record| {
            record.outcome = Some(Outcome::Queued);
            record.limit = Some((limit, 0));
        });
    }

    /// Logs the upstream that the request is forwarded to.
    pub fn set_upstream(&self, upstream: usize) {
        self.note(|record| record.upstream = Some(upstream));
    }

    /// Writes the record into the log, and the span.
    pub(super) fn log(&self, now: Time, cut: Option<CutReason>) {
        let Some(record) = self.exchange.take_record() else { return };
        let worker = &self.connection().worker;
        let names = &*self.ending.names;
        let end = End {
            names,
            route: self.route.map(|route| names.route(route)),
            paths: self.route.map(|route| names.paths(route)).unwrap_or_default(),
            listener: names.listener(self.connection().listener_index()),
            upstream: record.upstream.map(|upstream| names.upstream(upstream)),
            begun: self.begun,
            took: now.since(self.begun),
            code: self.code,
            reason: self.reason.get(),
            cut,
            received: self.exchange.received(),
            sent: self.exchange.sent(),
            id: self.id().clone(),
            trace: self.trace.get().copied().flatten(),
        };
        if let Some((spans, trace)) = self.ending.spans.as_ref().zip(end.trace.filter(Trace::is_sampled)) {
            spans.push(span(&record, &end, &trace));
        }
        let Some(log) = &self.ending.access_log else { return };
        log.write(&record, &end, worker.random_u64());
        if self.ending.is_replaced() {
            log.flush(); // the worker only flushes the log of the configuration in force
        }
    }
}
