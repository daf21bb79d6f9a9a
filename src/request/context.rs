//! One request and its answer: what is counted, and what is freed, on every way out.

mod logging;
mod shaping;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderName, header};
use sluicegate_limiter::Time;

use super::view::View;
use crate::access_log::Record;
use crate::config::{CorsConfig, DetailedCost, ForwardedHeader};
use crate::limit::Holds;
use crate::message::{RequestId, Response};
use crate::refusal_reason::RefusalReason;
use crate::respond::{self, LocalError};
use crate::rewrite::{Values, apply};
use crate::server::Connection;
use crate::trace::Trace;
use crate::upstream::{Slot, Underscores, Upload};
use crate::worker_state::Deadline;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;

/// What the metrics say of a request whose client left before there was an answer (nginx's word for it).
const CLIENT_LEFT: u16 = 499;
const PIECE: usize = 32 << 10;

/// An exchange that is under way. Dropping it frees what it holds and counts it, also when the client leaves.
pub struct RequestContext {
    connection: Rc<Connection>,
    /// The connection's, or its own where requests share a connection.
    deadline: Rc<Deadline>,
    view: Rc<View>,
    route: Option<usize>,
    begun: Time,
    /// When the leaky buckets let it go.
    released: Time,
    code: u16,
    /// Told by a trusted proxy, or made when it is asked for.
    id: OnceCell<RequestId>,
    trace: OnceCell<Option<Trace>>,
    holds: Holds,
    /// How long the upstream may send nothing in the middle of its answer.
    idle: Cell<Duration>,
    /// Bytes of the answer's body.
    sent: Cell<u64>,
    /// The place at a server.
    slot: Cell<Option<Slot>>,
    /// The hash of what keeps such requests on one server.
    affinity: Option<u64>,
    /// The request's body, if it is forwarded.
    upload: OnceCell<Rc<Upload>>,
    /// Bytes that the client sent through a tunnel.
    tunnelled: Cell<u64>,
    /// Whether the answer's body was given to its end.
    complete: Cell<bool>,
    /// What varies of the headers that the route changes.
    request_values: Values,
    answer_values: Values,
    /// The origin of the page that sends the request, where answers say which may read them.
    origin: Option<Box<[u8]>>,
    /// Why the gateway refuses it, if it does.
    reason: Cell<Option<RefusalReason>>,
    /// What is logged, if anything is.
    record: RefCell<Option<Box<Record>>>,
}

impl RequestContext {
    /// Begins an exchange with the head of a request, if it could be read.
    pub fn begin(
        connection: &Rc<Connection>,
        view: &Rc<View>,
        now: Time,
        parts: Option<&RequestHead>,
    ) -> Box<Self> {
        connection.begin();
        connection.queued.set(false);
        let origin =
            parts.filter(|_| view.snapshot.has_cors).and_then(|parts| parts.headers.only(header::ORIGIN));
        // It is handed on from one to the next until the answer has ended.
        let exchange = Box::new(Self {
            connection: Rc::clone(connection),
            deadline: connection.request_deadline(),
            view: Rc::clone(view),
            route: None,
            begun: now,
            released: now,
            code: CLIENT_LEFT,
            id: OnceCell::new(),
            trace: OnceCell::new(),
            holds: Holds::default(),
            idle: Cell::new(Duration::from_secs(60)),
            sent: Cell::new(0),
            slot: Cell::new(None),
            affinity: None,
            upload: OnceCell::new(),
            tunnelled: Cell::new(0),
            complete: Cell::new(false),
            request_values: Values::new(),
            answer_values: Values::new(),
            origin: origin.map(Box::from),
            reason: Cell::new(None),
            record: RefCell::new(None),
        });
        match parts {
            Some(parts) => exchange.take_over(parts),
            None => exchange.begin_record(None),
        }
        exchange
    }

    /// Holds places and turns until the end.
    pub fn hold(&mut self, holds: Holds) {
        self.holds = holds;
    }

    /// The answer is there, from the upstream or as the route has it: `cost_of` says what it costs without its bytes.
    pub fn answered(&mut self, cost_of: impl Fn(&DetailedCost, u64) -> u64) {
        let snapshot = &self.view.snapshot;
        self.holds
            .answered(|late, base| snapshot.late_cost(late.limit).map_or(base, |cost| cost_of(cost, base)));
    }

    /// More of the answer is asked for: the client has taken what it was given. Over HTTP/1.1 the socket says that.
    pub(crate) fn taken(&self) {
        if self.connection.shared {
            self.deadline.set_socket(None);
        }
    }

    /// The client was given so many bytes of the answer, and may leave them lying for a while.
    pub(crate) fn given(&self, bytes: usize) {
        if self.connection.shared {
            let within =
                self.connection.worker.client().write.saturating_mul(
                    1 + u32::try_from(bytes.saturating_sub(1) / PIECE).unwrap_or(u32::MAX - 1),
                );
            self.deadline.set_socket(Some(self.connection.worker.deadlines.after(within)));
        }
    }

    /// Counts bytes of the answer's body.
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// The answer's body was given to its end.
    pub(crate) fn completed(&self) {
        self.complete.set(true);
    }

    /// Notes the hash of what keeps such requests on one server.
    pub fn set_affinity(&mut self, affinity: Option<u64>) {
        self.affinity = affinity;
    }

    /// The hash of what keeps such requests on one server.
    pub(crate) fn affinity(&self) -> Option<u64> {
        self.affinity
    }

    /// Holds a place at a server until the end, instead of the one before.
    pub(crate) fn occupy(&self, slot: Slot) {
        self.slot.set(Some(slot));
    }

    /// Notes the body that is forwarded, to count its bytes.
    pub(crate) fn uploads(&self, upload: &Rc<Upload>) {
        let _ = self.upload.set(Rc::clone(upload)); // a request has one body
    }

    /// Counts bytes that the client sent through a tunnel.
    pub(crate) fn tunnelled(&self, bytes: usize) {
        self.tunnelled.set(self.tunnelled.get() + bytes as u64);
    }

    /// Bytes of the request's body that were forwarded, or of what came in its place.
    fn received(&self) -> u64 {
        self.upload.get().map_or(self.tunnelled.get(), |upload| upload.received.get())
    }

    /// The id of the request, the same for the upstream, an answer of our own and the log.
    pub(crate) fn id(&self) -> &RequestId {
        self.id.get_or_init(|| RequestId::of(self.connection.worker.number()))
    }

    pub(crate) fn set_idle(&self, idle: Duration) {
        self.idle.set(idle);
    }

    /// The address that a request with these headers comes from, and where it came to, as far as they are known.
    pub(crate) fn ends(&self, headers: &Headers) -> (SocketAddr, SocketAddr) {
        let peer = self.connection.peer;
        let origin = self.connection.origin();
        let config = &self.view.snapshot.config;
        let client = config.client_ip.resolve(&config.lists, origin.peer, headers);
        // A proxy in front does not tell its client's port.
        let port = if client == peer.ip().to_canonical() { peer.port() } else { 0 };
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let to = config.listeners.get(origin.listener).map_or(nowhere, |listener| listener.address);
        (SocketAddr::new(client, port), to)
    }

    /// Whether the peer is a proxy that is believed.
    pub(crate) fn trusts_peer(&self) -> bool {
        let config = &self.view.snapshot.config;
        config.client_ip.trusts(&config.lists, self.connection.peer_ip())
    }

    /// The header of one address in which trusted proxies name the client, if it is such a header.
    pub(crate) fn client_header(&self) -> Option<&HeaderName> {
        match &self.view.snapshot.config.client_ip.header {
            ForwardedHeader::Single(name) => Some(name),
            _ => None,
        }
    }

    /// Which pages of other origins may read the answer.
    pub fn cors(&self) -> Option<&CorsConfig> {
        self.view.snapshot.cors(self.route)
    }

    /// Which header names with underscores may pass.
    pub(crate) fn underscores(&self) -> &Underscores {
        &self.view.snapshot.underscores
    }

    /// When the limits let it go.
    pub(crate) fn released(&self) -> Time {
        self.released
    }

    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    pub(crate) fn deadline(&self) -> &Rc<Deadline> {
        &self.deadline
    }

    /// Waits until the leaky buckets release the request. If the client leaves meanwhile, this future is dropped
    /// and the exchange gives its turn to those behind.
    pub async fn wait_for_turn(&mut self) {
        let clock = *self.connection.worker.clock();
        let mut sleep = pin!(tokio::time::sleep_until(clock.instant(self.begun)));
        let holds = &mut self.holds;
        self.connection.queued.set(true);
        poll_fn(|context| {
            let Some(due) = holds.due(clock.now(), context.waker()) else { return Poll::Ready(()) };
            sleep.as_mut().reset(clock.instant(due));
            sleep.as_mut().poll(context)
        })
        .await;
        self.connection.queued.set(false);
        self.released = clock.now();
    }

    /// Waits for `future`, but not beyond the request's deadline, which whoever makes progress may move.
    pub(crate) async fn in_time<T>(&self, within: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.deadline.set_request(Some(self.connection.worker.deadlines.after(within)));
        let mut future = pin!(future);
        let result = poll_fn(|context| {
            self.deadline.watch(context);
            match future.as_mut().poll(context) {
                Poll::Ready(value) => Poll::Ready(Some(value)),
                Poll::Pending if self.deadline.request_passed() || self.is_over() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        self.deadline.set_request(None);
        result
    }

    /// It has to be over within so much of its beginning.
    pub(crate) fn set_total(&self, within: Option<Duration>) {
        if let Some(within) = within {
            self.deadline.set_total(Some(self.connection.worker.deadlines.after(within)));
        }
    }

    /// Whether it takes longer than its route has it.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_over(self.connection.worker.deadlines.now())
    }

    /// It goes on as long as both sides like.
    pub(crate) fn has_no_end(&self) {
        self.deadline.set_total(None);
    }

    /// The upstream has sent nothing: whether that has been so for too long.
    pub(crate) fn stalled(&self, context: &Context<'_>) -> bool {
        if self.deadline.request_passed() || self.is_over() {
            return true;
        }
        if !self.deadline.request_is_set() {
            self.deadline.watch(context);
            self.deadline.set_request(Some(self.connection.worker.deadlines.after(self.idle.get())));
        }
        false
    }

    /// The upstream has sent something.
    pub(crate) fn moved(&self) {
        self.deadline.set_request(None);
    }

    /// The answer to a request that is refused with `error`.
    pub fn refuse(&self, error: LocalError) -> Response {
        self.refused(error.reason(), Some(error.detail()));
        error.response(self.id())
    }

    /// Notes why the gateway refuses the request; `detail` is what it tells the client of that.
    pub fn refused(&self, reason: RefusalReason, detail: Option<&'static str>) {
        self.reason.set(Some(reason));
        self.note_refusal(detail);
    }

    /// Gives the answer the exchange to end with.
    pub fn answer(mut self: Box<Self>, mut response: Response) -> Response {
        self.code = response.status.as_u16();
        let changes = self.view.snapshot.answer_headers(self.route);
        apply(changes, &self.answer_values, &mut response.headers);
        if let Some(cors) = self.cors() {
            respond::share(cors, self.origin.as_deref(), &mut response.headers);
        }
        response.body.ends(self);
        response
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        let now = self.connection.worker.clock().now();
        self.holds.give_up(now);
        self.holds.settle(now, self.sent.get(), self.received());
        let stripe = self.view.route_metrics(self.route);
        stripe.finish(self.code, now.since(self.begun));
        if let Some(reason) = self.reason.get() {
            stripe.refused(reason);
        }
        self.log(now);
        self.deadline.set_request(None);
        self.deadline.set_total(None);
        self.connection.end();
    }
}
