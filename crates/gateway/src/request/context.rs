//! The context of one request, from its head to the last byte of the response.

mod capacity;
mod logging;
mod shaping;

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{HeaderMap, Method, StatusCode, header};
use sluicegate_limiter::Time;

use super::ending::Ending;
use super::remember::Refused;
use super::view::View;
use crate::limit::Holds;
use crate::request::cost::settled;
use crate::request::disposition::Admitted;
use crate::respond::{self, LocalError};
use crate::snapshot::Snapshot;
use sluicegate_auth::client_address;
use sluicegate_auth::{self, Answers, Question};
use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::incoming::{Peer, Request};
use sluicegate_base::message::{LocalResponse, RequestId};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::{CorsConfig, ForwardedHeader};
use sluicegate_downstream::Connection;
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_observe::cut_answers::CutAnswer;
use sluicegate_observe::metrics::{ConsumerOutcome, Seat};
use sluicegate_observe::trace::Trace;
use sluicegate_route::rewrite::{Values, apply};
use sluicegate_upstream::{BodyError, Exchange, ForwardError, ForwardFacts, error_chain};
use sluicegate_wire::{Headers, RequestHead};

/// The status in metrics and log of a request whose client disconnected before a response was available, as in nginx.
const CLIENT_LEFT: u16 = 499;

/// The context of a request in progress. Dropping it releases what the request holds, and counts and logs it, also if the
/// client disconnects.
pub struct RequestContext {
    /// What the upstream sees of it.
    exchange: Exchange,
    /// What it needs of the configuration when it ends; the rest is passed to it.
    ending: Rc<Ending>,
    route: Option<usize>,
    /// The address of the client, which a trusted proxy may have forwarded.
    client: IpAddr,
    /// Whether the peer is a trusted proxy.
    trusts_peer: bool,
    /// Whether another proxy describes the request and forwards it.
    is_described: bool,
    /// The index of the route that this proxy has named.
    named_route: Option<usize>,
    begun: Time,
    code: u16,
    trace: OnceCell<Option<Trace>>,
    holds: Holds,
    /// The rendered values of the header rules of the route.
    request_values: Values,
    answer_values: Values,
    /// The Origin header, if CORS is configured.
    origin: Option<Box<[u8]>>,
    /// Why the gateway refused the request, if it did.
    reason: Cell<Option<RefusalReason>>,
    /// Why its answer ended before its end, if the upstream or a timeout ended it, with the error.
    cut: OnceCell<Box<(CutReason, String)>>,
    /// Whether an answer to it can have a body.
    has_answer_body: bool,
    /// Where it is counted by consumer.
    seat: Option<Seat>,
    /// Whether it is not counted and logged, because it stays in a queue.
    is_discarded: bool,
    /// Whether no server took the request.
    is_unsent: Cell<bool>,
}

impl RequestContext {
    /// A context for a request. `deadline` is that of the connection, or of the stream over HTTP/2. `head` is its head, if it
    /// could be parsed.
    pub fn new(
        connection: &Rc<Connection>,
        deadline: &Rc<Deadline>,
        view: &View,
        now: Time,
        head: Option<&RequestHead>,
    ) -> Box<Self> {
        connection.begin();
        connection.queued.set(false);
        let config = &view.snapshot.config;
        let peer = connection.peer_ip();
        let (client_ip, lists) = (&config.client_ip, &config.resources.lists);
        let trusts_peer = client_address::trusts(client_ip, lists, peer);
        let client = match head.filter(|_| trusts_peer) {
            Some(head) => client_address::resolve(client_ip, lists, peer, &head.headers),
            None => peer,
        };
        // For nearly all requests without the header, this is a test of one bit. A proxy that asks for a decision describes its
        // client whether or not it is a trusted proxy.
        let ignored = |head: &RequestHead| {
            head.headers.contains_key(client_ip.header.name()) && !connection.listener.is_served()
        };
        if !trusts_peer && head.is_some_and(ignored) {
            view.process.note_ignored(client_ip.header.name(), peer, now);
        }
        let origin =
            head.filter(|_| view.snapshot.has_cors).and_then(|head| head.headers.only(header::ORIGIN));
        // Boxed, because it is moved from one owner to the next until the response has ended. With `Box::new`, the compiler makes it
        // on the stack and copies it.
        let context = Box::write(
            Box::new_uninit(),
            Self {
                exchange: Exchange::new(connection, deadline, now),
                ending: Rc::clone(&view.ending),
                route: None,
                client,
                trusts_peer,
                is_described: false,
                named_route: None,
                begun: now,
                code: CLIENT_LEFT,
                trace: OnceCell::new(),
                holds: Holds::default(),
                request_values: Values::new(),
                answer_values: Values::new(),
                origin: origin.map(Box::from),
                reason: Cell::new(None),
                cut: OnceCell::new(),
                has_answer_body: head.is_none_or(|head| head.method != Method::HEAD),
                seat: None,
                is_discarded: false,
                is_unsent: Cell::new(false),
            },
        );
        match head {
            Some(head) => context.adopt_forwarded(&view.snapshot, head),
            None => context.begin_record(&view.snapshot, None),
        }
        context
    }

    /// A context for the request of `client` that another proxy describes. `head` is that of the described request, `route` the index of
    /// the route that the proxy has named.
    pub(super) fn described(
        connection: &Rc<Connection>,
        deadline: &Rc<Deadline>,
        view: &View,
        (client, head, route): (IpAddr, &RequestHead, Option<usize>),
    ) -> Box<Self> {
        let now = connection.worker.clock().now();
        let mut context = Self::new(connection, deadline, view, now, None);
        (context.client, context.trusts_peer, context.is_described) = (client, true, true);
        context.named_route = route;
        context.adopt_forwarded(&view.snapshot, head);
        context
    }

    /// Whether another proxy describes the request and forwards it.
    pub(super) fn is_described(&self) -> bool {
        self.is_described
    }

    /// Whether another proxy describes the request, and the index of the route that it has named.
    #[inline]
    pub(super) fn described_route(&self) -> (bool, Option<usize>) {
        (self.is_described, self.named_route)
    }

    /// Holds concurrency slots and places in queues until the end.
    pub fn hold(&mut self, holds: Holds) {
        self.holds = holds;
    }

    /// Notes the cost of the response without its bytes, for limits that charge by it.
    pub fn charge(&mut self, snapshot: &Snapshot, status: StatusCode, headers: &Headers) {
        self.holds.answered(|late, base| match snapshot.late_cost(late.limit) {
            Some(cost) => settled(cost, base, (status, headers), || snapshot.unreadable_cost(late.limit)),
            None => Some((base, 0)),
        });
    }

    /// Notes what the trailers of the response say of its cost.
    #[cold]
    pub(super) fn charge_trailers(&mut self, trailers: &HeaderMap) {
        let ending = &self.ending;
        self.holds.ended(|late| ending.cost_in_trailers(late.limit, trailers));
    }

    /// The part of the request that the upstream sees.
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The id of the request: the same for the upstream, local responses and the log.
    pub(crate) fn id(&self) -> &RequestId {
        self.exchange.id()
    }

    /// Where the request comes from. `connection` is its own: the result borrows from that, and not from the context.
    pub(super) fn peer<'c>(&self, connection: &'c Connection) -> Peer<'c> {
        Peer {
            listener: connection.listener_index(),
            client: self.client,
            trusted: self.trusts_peer,
            tls: connection.tls.as_deref().filter(|_| !self.is_described), // that of the proxy
        }
    }

    /// The request, of which this is the head.
    pub(super) fn request<'r>(&'r self, head: &'r RequestHead) -> Request<'r> {
        Request { head, peer: self.peer(self.connection()) }
    }

    /// What the upstream is told of the request, or what decides that.
    pub(super) fn forward_facts<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        admitted: &'a Admitted<'_>,
    ) -> ForwardFacts<'a> {
        let config = &snapshot.config;
        let peer = self.peer(self.connection());
        let client_header = match &config.client_ip.header {
            ForwardedHeader::Single(name) => Some(name),
            _ => None,
        };
        ForwardFacts {
            peer,
            policy: admitted.route.forward,
            consumer: sluicegate_auth::consumer_headers(
                &config.api_key,
                snapshot.check.as_deref(),
                &admitted.identity,
            ),
            affinity: admitted.affinity,
            listener: config.listeners.get(peer.listener).and_then(|listener| listener.address.tcp()),
            client_header,
            underscores: &snapshot.underscores,
        }
    }

    /// The CORS policy of the route.
    pub fn cors<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s CorsConfig> {
        snapshot.cors(self.route)
    }

    fn connection(&self) -> &Connection {
        self.exchange.connection()
    }

    /// Waits until the leaky buckets release the request. If the client disconnects meanwhile, this future is dropped with
    /// the context, and the place in the queue is given to the next request.
    pub async fn wait_for_turn(&mut self) {
        let clock = *self.connection().worker.clock();
        let mut sleep = pin!(tokio::time::sleep_until(clock.instant(self.begun)));
        let holds = &mut self.holds;
        self.exchange.connection().queued.set(true);
        poll_fn(|cx| {
            let Some(due) = holds.due(clock.now(), cx.waker()) else { return Poll::Ready(()) };
            sleep.as_mut().reset(clock.instant(due));
            sleep.as_mut().poll(cx)
        })
        .await;
        self.exchange.connection().queued.set(false);
        self.exchange.set_released(clock.now());
    }

    /// Asks a service outside who sends the request, and returns the time of its answer.
    pub(super) async fn ask(&self, answers: &mut Answers, question: Question, request: Request<'_>) -> Time {
        answers.ask(question, request, *self.connection().worker.clock()).await;
        self.now()
    }

    /// When the request arrived.
    pub(crate) fn begun(&self) -> Time {
        self.begun
    }

    /// Now, after the request has waited.
    pub(crate) fn now(&self) -> Time {
        self.connection().worker.clock().now()
    }

    /// The local response for an error, which is noted as the reason.
    pub fn refuse(&self, error: LocalError) -> LocalResponse {
        self.refused(error.reason(), Some(error.detail()));
        let response = error.response(self.id());
        self.log_failure(response.status, error.detail());
        response
    }

    /// Logs that the gateway answers with an error of its own.
    #[cold]
    fn log_failure(&self, status: StatusCode, detail: &str) {
        let (peer, request, status) = (self.connection().peer, self.id().as_str(), status.as_u16());
        tracing::debug!(%peer, request, status, detail, "request answered with an error");
    }

    /// The local response to a request that could not be forwarded. It says what failed, but names no server.
    #[cold]
    pub fn fail(&self, error: &ForwardError) -> LocalResponse {
        let local = match error {
            ForwardError::Busy => LocalError::UpstreamBusy,
            ForwardError::Drained => LocalError::UpstreamDrained,
            ForwardError::NoServer
            | ForwardError::Connect(_)
            | ForwardError::Handshake(_)
            | ForwardError::Unanswered(_)
            | ForwardError::Broken(_) => LocalError::UpstreamFailed,
            ForwardError::ConnectTimeout | ForwardError::ResponseTimeout => LocalError::UpstreamSlow,
            ForwardError::TooLarge => LocalError::TooLarge,
            ForwardError::Unwritable => {
                LocalError::Malformed("the path leads out of what this route forwards")
            }
            ForwardError::ClientBroken => LocalError::Malformed("the request body is incomplete"),
            ForwardError::ClientSlow => LocalError::Slow,
        };
        let mut response = self.refuse(local);
        let closing = [StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::BAD_REQUEST];
        if closing.contains(&response.status) {
            response.headers.insert(header::CONNECTION, "close");
        }
        response
    }

    /// Notes why the gateway refuses the request; `detail` is what the client is told.
    pub fn refused(&self, reason: RefusalReason, detail: Option<&'static str>) {
        self.reason.set(Some(reason));
        self.note_refusal(detail);
    }

    /// Notes that the answer ends before its end because of the upstream or of a timeout.
    #[cold]
    pub(super) fn set_cut(&self, error: &BodyError) {
        let _ = self.cut.set(Box::new((error.cut_reason(self.exchange.is_over()), error_chain(error))));
    }

    /// Why the answer ended before its end, if it did. If nothing else ended it, the client's connection did.
    fn cut(&self) -> Option<CutReason> {
        let is_cut = self.has_answer_body && self.code != CLIENT_LEFT && !self.exchange.is_complete();
        is_cut.then(|| self.cut.get().map_or(CutReason::ClientLeft, |cut| cut.0))
    }

    /// Counts the answer as cut, and remembers it for the log and for operators.
    #[cold]
    fn note_cut(&self, reason: CutReason) {
        self.ending.routes.of(self.route).cut(reason);
        let error = self.cut.get().map(|cut| cut.1.clone());
        self.note_upstream_error(error.as_ref());
        let (status, sent) = (self.code, self.exchange.sent());
        self.ending.remember_cut(CutAnswer { id: self.id().as_str().into(), reason, error, status, sent });
    }

    /// Remembers that the request is refused with this answer, so that its id leads to an explanation.
    pub(super) fn remember(
        &self,
        view: &View,
        head: &RequestHead,
        answer: &LocalResponse,
        push: impl FnOnce(Refused<'_>),
    ) {
        push(Refused {
            snapshot: &view.snapshot,
            id: self.id(),
            at: self.begun,
            request: self.request(head),
            reason: self.reason.get(),
            answer,
            log: &view.refusals,
        });
    }

    /// What became of the request, for the figures by consumer.
    fn outcome(&self, cut: Option<CutReason>) -> ConsumerOutcome {
        match self.reason.get() {
            Some(RefusalReason::Limit | RefusalReason::Ban) => ConsumerOutcome::Refused,
            Some(RefusalReason::Respond) => ConsumerOutcome::Answered,
            None if self.code != CLIENT_LEFT && cut.is_none() => ConsumerOutcome::Answered,
            _ => ConsumerOutcome::Failed,
        }
    }

    /// Why the gateway refused the request, if it did.
    pub(super) fn reason(&self) -> Option<RefusalReason> {
        self.reason.get()
    }

    /// Whether no server of the upstream took the request.
    pub(super) fn is_unsent(&self) -> bool {
        self.is_unsent.get()
    }

    /// Neither counts nor logs the request: it stays in a queue.
    pub(super) fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// Completes the headers of the response.
    pub(super) fn complete(&mut self, snapshot: &Snapshot, status: StatusCode, headers: &mut Headers) {
        self.code = status.as_u16();
        let changes = snapshot.answer_headers(self.route);
        apply(changes, &self.answer_values, headers);
        if let Some(cors) = self.cors(snapshot) {
            respond::share(cors, self.origin.as_deref(), headers);
        }
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        let now = self.connection().worker.clock().now();
        self.holds.give_up(now);
        self.holds.settle(now, self.exchange.sent(), self.exchange.received());
        if self.is_discarded {
            return self.exchange.end();
        }
        let stripe = self.ending.routes.of(self.route);
        stripe.finish(self.code, now.since(self.begun));
        stripe.transferred(self.exchange.received(), self.exchange.sent());
        if let Some(reason) = self.reason.get() {
            stripe.refused(reason);
        }
        let cut = self.cut();
        if let Some(cut) = cut {
            self.note_cut(cut);
        }
        if let Some((consumers, seat)) = self.ending.consumers.as_ref().zip(self.seat) {
            consumers.count(seat, self.outcome(cut));
        }
        self.log(now, cut);
        self.exchange.end();
    }
}
