//! What is remembered of a request until its line is written.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, Version};
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;

use super::outcome::Outcome;
use crate::auth::Identity;
use crate::auth::jwt::Verified;
use crate::config::{AccessLogConfig, Field, Known};
use crate::message::RequestId;
use crate::refusal_reason::RefusalReason;
use crate::respond::{LimitResults, reported_verdict, retry_after};
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use sluicegate_wire::RequestHead;
use sluicegate_wire::RequestTarget;

/// A request as its line tells it. It outlives the head.
pub struct Record {
    pub(super) client: IpAddr,
    pub(super) peer: IpAddr,
    pub(super) scheme: &'static str,
    /// `None` if the request could not be read.
    pub(super) head: Option<Head>,
    /// What the client was told of its refusal.
    pub(super) detail: Option<&'static str>,
    pub(super) outcome: Option<Outcome>,
    /// The limit that the headers speak of: its index, and what it has left.
    pub(super) limit: Option<(usize, u64)>,
    /// What a refused client has to wait.
    pub(super) retry_after: Option<Span>,
    pub(super) delay: Span,
    /// Indices of limits that would have refused it.
    pub(super) shadow: SmallVec<[usize; 0]>,
    pub(super) candidate: SmallVec<[usize; 0]>,
    pub(super) consumer: Option<Box<str>>,
    pub(super) plan: Option<Box<str>>,
    pub(super) token: Option<Arc<Verified>>,
    pub(super) upstream: Option<usize>,
    pub(super) server: Option<Box<str>>,
    pub(super) upstream_took: Option<Span>,
    /// Why the upstream gave no answer.
    pub(super) upstream_error: Option<String>,
    wants_identity: bool,
    wants_server: bool,
}

/// What the log keeps of a request's head.
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) target: RequestTarget,
    pub(super) version: Version,
    pub(super) host: Option<Box<[u8]>>,
    pub(super) referer: Option<Box<[u8]>>,
    pub(super) agent: Option<Box<[u8]>>,
    /// Of the headers that the log asks for, in its order.
    pub(super) headers: SmallVec<[Option<Box<[u8]>>; 0]>,
}

/// What is known when a request has ended.
pub struct End<'a> {
    /// The configuration that it was served under.
    pub snapshot: &'a Snapshot,
    /// The route's index.
    pub route: Option<usize>,
    /// The listener's index.
    pub listener: usize,
    /// When it came.
    pub begun: Time,
    /// How long it took.
    pub took: Span,
    /// The status.
    pub code: u16,
    /// Why the gateway refused it, if it did.
    pub reason: Option<RefusalReason>,
    /// Whether its answer was given to the end.
    pub complete: bool,
    /// Bytes of its body.
    pub received: u64,
    /// Bytes of its answer's body.
    pub sent: u64,
    /// Its id.
    pub id: RequestId,
    /// Its place in a trace.
    pub trace: Option<Trace>,
}

/// What became of a request, as samples tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It was served.
    Ok,
    /// The gateway turned it away.
    Refused,
    /// It failed.
    Error,
}

/// A host or an authority without the user and the password in front of it, which are no request's business here and no
/// log's.
pub(super) fn without_user(host: &[u8]) -> &[u8] {
    host.iter().rposition(|byte| *byte == b'@').map_or(host, |at| &host[at + 1..])
}

impl Record {
    /// What the log needs of a request that has just come.
    pub fn new(
        config: &AccessLogConfig,
        parts: &RequestHead,
        client: IpAddr,
        peer: IpAddr,
        scheme: &'static str,
    ) -> Box<Self> {
        let value = |name: &[u8]| parts.headers.get(name).map(Box::from);
        let asked = config.fields.iter().filter_map(|field| match field {
            Field::Header(name) => Some(value(name.as_ref())),
            Field::Known(_) => None,
        });
        let wants = |wanted: &[Known]| {
            config.fields.iter().any(|field| matches!(field, Field::Known(known) if wanted.contains(known)))
        };
        let named = parts.headers.get(b"host".as_slice());
        let host = named.or_else(|| parts.target.authority().map(str::as_bytes));
        let wanted_value = |known, name| if wants(&[known]) { value(name) } else { None };
        let mut record = Self::blank(client, peer, scheme);
        record.wants_identity = wants(&[Known::Consumer, Known::Plan, Known::User]);
        record.wants_server = wants(&[Known::Server]);
        record.head = Some(Head {
            method: parts.method.clone(),
            target: parts.target.clone(),
            version: parts.version,
            host: host.map(|host| without_user(host).into()),
            referer: wanted_value(Known::Referer, b"referer"),
            agent: wanted_value(Known::UserAgent, b"user-agent"),
            headers: asked.collect(),
        });
        record
    }

    /// What the log needs of a request that could not be read.
    pub fn unread(peer: IpAddr, scheme: &'static str) -> Box<Self> {
        let mut record = Self::blank(peer, peer, scheme);
        record.outcome = Some(Outcome::Unmatched);
        record
    }

    fn blank(client: IpAddr, peer: IpAddr, scheme: &'static str) -> Box<Self> {
        Box::new(Self {
            client,
            peer,
            scheme,
            head: None,
            detail: None,
            outcome: None,
            limit: None,
            retry_after: None,
            delay: Span::ZERO,
            shadow: SmallVec::new(),
            candidate: SmallVec::new(),
            consumer: None,
            plan: None,
            token: None,
            upstream: None,
            server: None,
            upstream_took: None,
            upstream_error: None,
            wants_identity: false,
            wants_server: false,
        })
    }

    /// Notes the outcome of a request whose limits are not evaluated.
    pub fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// The gateway refuses it, and tells the client this.
    pub fn refused(&mut self, detail: Option<&'static str>) {
        self.detail = detail;
    }

    /// Who sent it.
    pub fn identified(&mut self, identity: &Identity<'_>) {
        if self.wants_identity {
            self.consumer = identity.consumer.map(|consumer| consumer.name.into());
            self.plan = identity.plan().map(Into::into);
            self.token.clone_from(&identity.token);
        }
    }

    /// Notes the decision of the limits.
    pub fn evaluated(&mut self, LimitResults { selected, decision, .. }: LimitResults<'_, '_>) {
        let served = decision.admitted && !decision.unavailable;
        self.outcome = Some(if served { Outcome::Admitted } else { Outcome::Refused });
        if decision.unavailable {
            return; // no limit said anything
        }
        if let Some(at) = reported_verdict(selected, decision) {
            let verdict = &decision.verdicts[at];
            self.limit = Some((selected[at].index, verdict.usage.remaining));
            self.retry_after = retry_after(verdict).filter(|_| !served);
        }
        self.delay = decision.delay;
        for (selected, verdict) in selected.iter().zip(&decision.verdicts) {
            match (verdict.answer, selected.limit.enforces()) {
                (Err(_), _) if selected.candidate => self.candidate.push(selected.index),
                (Err(_), false) => self.shadow.push(selected.index),
                _ => {}
            }
        }
    }

    /// It goes to this upstream.
    pub fn forwarded(&mut self, upstream: usize) {
        self.upstream = Some(upstream);
    }

    /// This server was asked, and that took so long.
    /// `failed` is why it gave no answer, if it gave none.
    pub fn asked(&mut self, server: &str, took: Span, failed: Option<String>) {
        self.upstream_took = Some(took);
        self.upstream_error = failed;
        if self.wants_server {
            self.server = Some(server.into());
        }
    }

    /// No server could be asked.
    pub fn not_asked(&mut self, why: String) {
        self.upstream_error = Some(why);
    }

    /// Which sample it belongs to.
    pub(super) fn kind(&self, end: &End<'_>) -> Kind {
        match self.outcome {
            Some(Outcome::Refused | Outcome::Unmatched) => Kind::Refused,
            _ if end.code >= 400 => Kind::Error,
            _ => Kind::Ok,
        }
    }

    /// Whether its answer has a body at all.
    pub(super) fn has_answer_body(&self) -> bool {
        self.head.as_ref().is_none_or(|head| head.method != Method::HEAD)
    }
}
