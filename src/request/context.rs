//! The context of one request, from its head to the last byte of the response.

mod logging;
mod shaping;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderName, StatusCode, header};
use sluicegate_limiter::Time;

use super::view::View;
use crate::access_log::Record;
use crate::client_address;
use crate::client_connection::Connection;
use crate::config::{CorsConfig, DetailedCost, ForwardedHeader};
use crate::limit::Holds;
use crate::message::{LocalResponse, RequestId};
use crate::refusal_reason::RefusalReason;
use crate::request::verdict::Origin;
use crate::respond::{self, LocalError};
use crate::rewrite::{Values, apply};
use crate::trace::Trace;
use crate::upstream::{ForwardError, Permit, Response, Underscores, Upload};
use crate::worker_state::Deadline;
use sluicegate_wire::RequestHead;

/// The status in metrics and log of a request whose client disconnected before a response was available, as in nginx.
const CLIENT_LEFT: u16 = 499;
const PIECE: usize = 32 << 10;

/// The context of a request in progress. Dropping it releases what the request holds, and counts and logs it, also if the
/// client disconnects.
pub struct RequestContext {
    connection: Rc<Connection>,
    /// The deadlines of the connection, or of the stream if the connection is multiplexed.
    deadline: Rc<Deadline>,
    view: Rc<View>,
    route: Option<usize>,
    /// The address of the client, which a trusted proxy may have forwarded.
    client: IpAddr,
    /// Whether the peer is a trusted proxy.
    trusts_peer: bool,
    begun: Time,
    /// When its leaky buckets released it.
    released: Time,
    code: u16,
    /// Taken from a trusted proxy, or generated at first use.
    id: OnceCell<RequestId>,
    trace: OnceCell<Option<Trace>>,
    holds: Holds,
    /// The timeout between two reads of the upstream's response.
    idle: Cell<Duration>,
    /// Bytes of the response body that were given to the connection.
    sent: Cell<u64>,
    /// The permit for an endpoint.
    permit: Cell<Option<Permit>>,
    /// The hash for consistent balancing.
    affinity: Option<u64>,
    /// The state of the request body, if it is forwarded.
    upload: OnceCell<Rc<Upload>>,
    /// Bytes that the client sent through a tunnel.
    tunnelled: Cell<u64>,
    /// Whether the response body was given to the connection to its end.
    complete: Cell<bool>,
    /// The rendered values of the header rules of the route.
    request_values: Values,
    answer_values: Values,
    /// The Origin header, if CORS is configured.
    origin: Option<Box<[u8]>>,
    /// Why the gateway refused the request, if it did.
    reason: Cell<Option<RefusalReason>>,
    /// The record for the access log, if there is one.
    record: RefCell<Option<Box<Record>>>,
}

impl RequestContext {
    /// A context for a request. `parts` is its head, if it could be parsed.
    pub fn new(
        connection: &Rc<Connection>,
        view: &Rc<View>,
        now: Time,
        parts: Option<&RequestHead>,
    ) -> Box<Self> {
        connection.begin();
        connection.queued.set(false);
        let config = &view.snapshot.config;
        let peer = connection.peer_ip();
        let (client_ip, lists) = (&config.client_ip, &config.resources.lists);
        let trusts_peer = client_address::trusts(client_ip, lists, peer);
        let client = match parts.filter(|_| trusts_peer) {
            Some(parts) => client_address::resolve(client_ip, lists, peer, &parts.headers),
            None => peer,
        };
        let origin =
            parts.filter(|_| view.snapshot.has_cors).and_then(|parts| parts.headers.only(header::ORIGIN));
        // Boxed, because it is moved from one owner to the next until the response has ended.
        let context = Box::new(Self {
            connection: Rc::clone(connection),
            deadline: connection.request_deadline(),
            view: Rc::clone(view),
            route: None,
            client,
            trusts_peer,
            begun: now,
            released: now,
            code: CLIENT_LEFT,
            id: OnceCell::new(),
            trace: OnceCell::new(),
            holds: Holds::default(),
            idle: Cell::new(Duration::from_secs(60)),
            sent: Cell::new(0),
            permit: Cell::new(None),
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
            Some(parts) => context.adopt_forwarded(parts),
            None => context.begin_record(None),
        }
        context
    }

    /// Holds concurrency slots and places in queues until the end.
    pub fn hold(&mut self, holds: Holds) {
        self.holds = holds;
    }

    /// Notes the cost of the response without its bytes, for limits that charge by it.
    pub fn charge(&mut self, cost_of: impl Fn(&DetailedCost, u64) -> u64) {
        let snapshot = &self.view.snapshot;
        self.holds
            .answered(|late, base| snapshot.late_cost(late.limit).map_or(base, |cost| cost_of(cost, base)));
    }

    /// Clears the write timeout of a stream: its client has taken what it was given. Over HTTP/1.1 the socket does that.
    pub(crate) fn taken(&self) {
        if self.connection.shared {
            self.deadline.set_socket(None);
        }
    }

    /// Arms the write timeout of a stream: the client has to take these bytes in time.
    pub(crate) fn given(&self, bytes: usize) {
        if self.connection.shared {
            let within =
                self.connection.worker.client().write.saturating_mul(
                    1 + u32::try_from(bytes.saturating_sub(1) / PIECE).unwrap_or(u32::MAX - 1),
                );
            self.deadline.set_socket(Some(self.connection.worker.deadlines.after(within)));
        }
    }

    /// Counts bytes of the response body.
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// Notes that the response body was given to the connection to its end.
    pub(crate) fn completed(&self) {
        self.complete.set(true);
    }

    /// Sets the hash for consistent balancing.
    pub fn set_affinity(&mut self, affinity: Option<u64>) {
        self.affinity = affinity;
    }

    /// The hash for consistent balancing.
    pub(crate) fn affinity(&self) -> Option<u64> {
        self.affinity
    }

    /// Holds the permit for an endpoint until the end, in place of the one before.
    pub(crate) fn hold_permit(&self, permit: Permit) {
        self.permit.set(Some(permit));
    }

    /// Notes the request body that is forwarded, to count its bytes.
    pub(crate) fn uploads(&self, upload: &Rc<Upload>) {
        let _ = self.upload.set(Rc::clone(upload)); // a request has one body
    }

    /// Counts bytes that the client sent through a tunnel.
    pub(crate) fn tunnelled(&self, bytes: usize) {
        self.tunnelled.set(self.tunnelled.get() + bytes as u64);
    }

    /// Bytes of the request body that were forwarded, or that the client sent through a tunnel.
    fn received(&self) -> u64 {
        self.upload.get().map_or(self.tunnelled.get(), |upload| upload.received.get())
    }

    /// The id of the request: the same for the upstream, local responses and the log.
    pub(crate) fn id(&self) -> &RequestId {
        self.id.get_or_init(|| RequestId::of(self.connection.worker.number()))
    }

    pub(crate) fn set_idle(&self, idle: Duration) {
        self.idle.set(idle);
    }

    /// Where the request comes from, as matching needs it.
    pub(crate) fn origin(&self) -> Origin<'_> {
        let tls = self.connection.tls.as_deref();
        Origin { listener: self.connection.listener_index(), client: self.client, tls }
    }

    /// The addresses of the client and of the listener, for a PROXY header to the upstream. An unknown port is 0, an
    /// unknown listener 0.0.0.0:0.
    pub(crate) fn proxied_addresses(&self) -> (SocketAddr, SocketAddr) {
        let peer = self.connection.peer;
        // A forwarded address has no port.
        let port = if self.client == peer.ip().to_canonical() { peer.port() } else { 0 };
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let listeners = &self.view.snapshot.config.listeners;
        let to = listeners.get(self.connection.listener_index()).map_or(unknown, |listener| listener.address);
        (SocketAddr::new(self.client, port), to)
    }

    /// Whether the peer is a trusted proxy.
    pub(crate) fn trusts_peer(&self) -> bool {
        self.trusts_peer
    }

    /// The single-address header in which trusted proxies forward the client, if one is configured.
    pub(crate) fn client_header(&self) -> Option<&HeaderName> {
        match &self.view.snapshot.config.client_ip.header {
            ForwardedHeader::Single(name) => Some(name),
            _ => None,
        }
    }

    /// The CORS policy of the route.
    pub fn cors(&self) -> Option<&CorsConfig> {
        self.view.snapshot.cors(self.route)
    }

    /// The policy for header names with underscores.
    pub(crate) fn underscores(&self) -> &Underscores {
        &self.view.snapshot.underscores
    }

    /// When its leaky buckets released it.
    pub(crate) fn released(&self) -> Time {
        self.released
    }

    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    pub(crate) fn deadline(&self) -> &Rc<Deadline> {
        &self.deadline
    }

    /// Waits until the leaky buckets release the request. If the client disconnects meanwhile, this future is dropped with
    /// the context, and the place in the queue is given to the next request.
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

    /// Waits for `future` at most this long. Progress of the request body extends the deadline.
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

    /// Sets the total timeout of the request.
    pub(crate) fn set_total(&self, within: Option<Duration>) {
        if let Some(within) = within {
            self.deadline.set_total(Some(self.connection.worker.deadlines.after(within)));
        }
    }

    /// Whether the total timeout has expired.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_over(self.connection.worker.deadlines.now())
    }

    /// Disables the total timeout, for tunnels.
    pub(crate) fn disable_total_timeout(&self) {
        self.deadline.set_total(None);
    }

    /// Whether the upstream has sent nothing for too long. Arms the deadline at the first call.
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

    /// Clears the deadline: the upstream has sent something.
    pub(crate) fn moved(&self) {
        self.deadline.set_request(None);
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
        let (peer, request, status) = (self.connection.peer, self.id().as_str(), status.as_u16());
        tracing::debug!(%peer, request, status, detail, "request answered with an error");
    }

    /// The local response to a request that could not be forwarded. It says what failed, but names no server.
    #[cold]
    pub fn fail(&self, error: &ForwardError) -> LocalResponse {
        let local = match error {
            ForwardError::Busy => LocalError::UpstreamBusy,
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
            ForwardError::ClientBroken => LocalError::Malformed("the request's body did not come whole"),
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

    /// Completes the headers of the response and moves the context into its body, with which it ends.
    pub fn finish(mut self: Box<Self>, mut response: Response) -> Response {
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
