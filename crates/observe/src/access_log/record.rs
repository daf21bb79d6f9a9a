//! What the log needs to know about a request.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, Version};
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;

use super::names::Names;
use super::outcome::Outcome;
use crate::trace::Trace;
use sluicegate_auth::Identity;
use sluicegate_auth::jwt::Verified;
use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::message::RequestId;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::{Field, Known, PathPattern};
use sluicegate_wire::RequestHead;
use sluicegate_wire::RequestTarget;

/// The record of a request. It outlives the head of the request.
pub struct Record {
    pub(crate) client: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) scheme: &'static str,
    /// `None` if the request could not be read.
    pub(crate) head: Option<Head>,
    /// The detail of the refusal that the client gets.
    pub detail: Option<&'static str>,
    /// How the request ended, once that is known.
    pub outcome: Option<Outcome>,
    /// The limit that the response headers report: its index, and what it has left.
    pub limit: Option<(usize, u64)>,
    /// The key of the request under that limit, as operators are shown it.
    pub key: Option<Box<str>>,
    /// Whether the log has a field for it.
    pub wants_key: bool,
    /// How long a refused client has to wait.
    pub retry_after: Option<Span>,
    /// How long limits delay it.
    pub delay: Span,
    /// Indices of limits in shadow mode that would have refused it.
    pub shadow: SmallVec<[usize; 0]>,
    /// Indices of limits whose candidate would have refused it.
    pub candidate: SmallVec<[usize; 0]>,
    pub(super) consumer: Option<Box<str>>,
    pub(super) plan: Option<Box<str>>,
    pub(super) token: Option<Arc<Verified>>,
    /// The index of the upstream that it is forwarded to.
    pub upstream: Option<usize>,
    pub(crate) server: Option<Box<str>>,
    pub(crate) upstream_took: Option<Span>,
    /// Why the upstream did not respond, or why its response ended before its end.
    pub upstream_error: Option<String>,
    wants_identity: bool,
    wants_server: bool,
}

/// What the log keeps of the head of a request.
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) target: RequestTarget,
    pub(crate) version: Version,
    pub(crate) host: Option<Box<[u8]>>,
    pub(super) referer: Option<Box<[u8]>>,
    pub(crate) agent: Option<Box<[u8]>>,
    /// The values of the headers that the log has, in the order of its fields.
    pub(super) headers: SmallVec<[Option<Box<[u8]>>; 0]>,
}

/// The values that are known when a request has ended.
pub struct End<'a> {
    /// The names of the configuration that it was served under.
    pub names: &'a Names,
    /// The route's name.
    pub route: Option<&'a str>,
    /// The patterns of the route's paths.
    pub paths: &'a [PathPattern],
    /// The listener's name.
    pub listener: Option<&'a str>,
    /// The name of the upstream that it was forwarded to.
    pub upstream: Option<&'a str>,
    /// When its head arrived.
    pub begun: Time,
    /// How long it took.
    pub took: Span,
    /// The status.
    pub code: u16,
    /// Why the gateway refused it.
    pub reason: Option<RefusalReason>,
    /// Why its response ended before its end.
    pub cut: Option<CutReason>,
    /// Bytes of its body.
    pub received: u64,
    /// Bytes of its answer's body.
    pub sent: u64,
    /// Its id.
    pub id: RequestId,
    /// Its place in a trace.
    pub trace: Option<Trace>,
}

/// The kind of a request, by which it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It was served.
    Ok,
    /// The gateway refused it.
    Refused,
    /// It failed.
    Error,
}

/// A host or an authority without user and password, which must not be logged.
pub(super) fn without_user(host: &[u8]) -> &[u8] {
    host.iter().rposition(|byte| *byte == b'@').map_or(host, |at| &host[at + 1..])
}

impl Record {
    /// A record with what these fields need from the head of a request.
    pub fn new(
        fields: &[Field],
        head: &RequestHead,
        client: IpAddr,
        peer: IpAddr,
        scheme: &'static str,
    ) -> Box<Self> {
        let value = |name: &[u8]| head.headers.get(name).map(Box::from);
        let asked = fields.iter().filter_map(|field| match field {
            Field::Header(name) => Some(value(name.as_ref())),
            Field::Known(_) => None,
        });
        let wants = |wanted: &[Known]| {
            fields.iter().any(|field| matches!(field, Field::Known(known) if wanted.contains(known)))
        };
        let named = head.headers.get(b"host".as_slice());
        let host = named.or_else(|| head.target.authority().map(str::as_bytes));
        let wanted_value = |known, name| if wants(&[known]) { value(name) } else { None };
        let mut record = Self::blank(client, peer, scheme);
        record.wants_identity = wants(&[Known::Consumer, Known::Plan, Known::User]);
        record.wants_key = wants(&[Known::Key]);
        record.wants_server = wants(&[Known::Server]);
        record.head = Some(Head {
            method: head.method.clone(),
            target: head.target.clone(),
            version: head.version,
            host: host.map(|host| without_user(host).into()),
            referer: wanted_value(Known::Referer, b"referer"),
            agent: wanted_value(Known::UserAgent, b"user-agent"),
            headers: asked.collect(),
        });
        record
    }

    /// Notes what a span has, whether or not the log has a field for it: the server that is asked, and the user agent.
    pub fn with_span(mut self: Box<Self>, head: &RequestHead) -> Box<Self> {
        self.wants_server = true;
        if let Some(known) = &mut self.head {
            known.agent = head.headers.get(b"user-agent".as_slice()).map(Box::from);
        }
        self
    }

    /// The record of a request that could not be parsed.
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
            key: None,
            wants_key: false,
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

    /// Sets the identity of the sender, if the log has fields for it.
    pub fn identified(&mut self, identity: &Identity<'_>) {
        if self.wants_identity {
            self.consumer = identity.consumer().map(Into::into);
            self.plan = identity.plan().map(Into::into);
            self.token.clone_from(&identity.token);
        }
    }

    /// Sets the server that was asked, how long that took, and why it did not respond, if it did not.
    pub fn asked(&mut self, server: &str, took: Span, failed: Option<String>) {
        self.upstream_took = Some(took);
        self.upstream_error = failed;
        if self.wants_server {
            self.server = Some(server.into());
        }
    }

    /// The kind of sample that the request belongs to.
    pub(super) fn kind(&self, end: &End<'_>) -> Kind {
        match self.outcome {
            Some(Outcome::Refused | Outcome::Unmatched) => Kind::Refused,
            _ if end.code >= 400 => Kind::Error,
            _ => Kind::Ok,
        }
    }
}
