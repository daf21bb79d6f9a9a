//! One request and its response, as far as upstreams see them.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_limiter::Time;

use super::ForwardError;
use super::overload::InFlight;
use super::permit::Permit;
use super::upload::Upload;
use sluicegate_base::message::RequestId;
use sluicegate_downstream::Connection;
use sluicegate_downstream::worker_state::{Deadline, READ_SIZE};
use sluicegate_observe::access_log::Record;

/// A client on a multiplexed connection has the write timeout for each part of a response with this many bytes.
const PIECE: usize = READ_SIZE;
/// A longer response gives its place among the requests in flight back before its end: how long it takes depends on the client.
const LARGE: u64 = 64 << 10;

/// A request and its response in progress: deadlines, counted bytes, the permit for an endpoint, and the log record. The
/// owner counts and logs it at the end.
pub struct Exchange {
    connection: Rc<Connection>,
    /// The deadlines of the connection, or of the stream if the connection is multiplexed.
    deadline: Rc<Deadline>,
    /// When its leaky buckets released the request.
    released: Time,
    /// Taken from a trusted proxy, or generated at first use.
    id: OnceCell<RequestId>,
    /// The timeout between two reads of the upstream's response.
    idle: Cell<Duration>,
    /// Bytes of the response body that were given to the connection.
    sent: Cell<u64>,
    /// The permit for an endpoint.
    permit: Cell<Option<Permit>>,
    /// Its place among the requests that the upstream has in flight, if these are limited.
    place: Cell<Option<Box<InFlight>>>,
    /// The state of the request body, if it is forwarded.
    upload: OnceCell<Rc<Upload>>,
    /// Bytes that the client sent through a tunnel.
    tunnelled: Cell<u64>,
    /// Whether the response body was given to the connection to its end.
    complete: Cell<bool>,
    /// The record for the access log, if there is one.
    record: RefCell<Option<Box<Record>>>,
}

impl Exchange {
    /// An exchange on a connection. `deadline` is that of the connection, or of the stream if the connection is multiplexed.
    #[inline(always)] // otherwise it is copied to its place
    pub fn new(connection: &Rc<Connection>, deadline: &Rc<Deadline>, now: Time) -> Self {
        Self {
            connection: Rc::clone(connection),
            deadline: Rc::clone(deadline),
            released: now,
            id: OnceCell::new(),
            idle: Cell::new(Duration::from_secs(60)),
            sent: Cell::new(0),
            permit: Cell::new(None),
            place: Cell::new(None),
            upload: OnceCell::new(),
            tunnelled: Cell::new(0),
            complete: Cell::new(false),
            record: RefCell::new(None),
        }
    }

    /// The connection of the client.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn deadline(&self) -> &Rc<Deadline> {
        &self.deadline
    }

    /// When its leaky buckets released the request.
    pub(crate) fn released(&self) -> Time {
        self.released
    }

    /// Says when its leaky buckets released the request.
    pub fn set_released(&mut self, now: Time) {
        self.released = now;
    }

    /// The id of the request: the same for the upstream, local responses and the log.
    pub fn id(&self) -> &RequestId {
        self.id.get_or_init(|| RequestId::of(self.connection.worker.random_u64()))
    }

    /// Adopts the id that a trusted proxy gave the request, unless there is one already.
    pub fn adopt_id(&self, id: RequestId) {
        let _ = self.id.set(id);
    }

    /// Clears the write timeout of a stream: its client has taken what it was given. Over HTTP/1.1 the socket does that.
    pub fn clear_write_timeout(&self) {
        if self.connection.shared {
            self.deadline.set_socket(None);
        }
    }

    /// Arms the write timeout of a stream: the client has to take these bytes in time.
    pub fn arm_write_timeout(&self, bytes: usize) {
        if self.connection.shared {
            let within =
                self.connection.worker.client().write.saturating_mul(
                    1 + u32::try_from(bytes.saturating_sub(1) / PIECE).unwrap_or(u32::MAX - 1),
                );
            self.deadline.set_socket(Some(self.connection.worker.deadlines.after(within)));
        }
    }

    /// Counts bytes of the response body.
    pub fn add_sent(&self, bytes: usize) {
        let sent = self.sent.get() + bytes as u64;
        self.sent.set(sent);
        if sent > LARGE {
            self.leave_place();
        }
    }

    /// Holds a place among the requests that the upstream has in flight.
    pub fn hold_place(&self, place: InFlight) {
        self.place.set(Some(Box::new(place)));
    }

    /// Gives the place back. The upstream may still send for as long as the client reads.
    pub fn leave_place(&self) {
        drop(self.place.take());
    }

    /// The upstream has answered, well or not. Returns whether the request has a place among those in flight.
    pub fn set_answered_well(&self, well: bool) -> bool {
        let Some(mut place) = self.place.take() else { return false };
        place.answered(well);
        self.place.set(Some(place));
        true
    }

    /// Bytes of the response body that were given to the connection.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Notes that the response body was given to the connection to its end.
    pub fn set_complete(&self) {
        self.complete.set(true);
        self.leave_place(); // the client may take its time, the upstream is done
    }

    /// Whether the response body was given to the connection to its end.
    pub fn is_complete(&self) -> bool {
        self.complete.get()
    }

    /// Holds the permit for an endpoint until the end, in place of the one before.
    pub(super) fn hold_permit(&self, permit: Permit) {
        self.permit.set(Some(permit));
    }

    /// Gives the permit back.
    pub(super) fn release_permit(&self) {
        drop(self.permit.take());
    }

    /// Notes the request body that is forwarded, to count its bytes.
    pub(super) fn set_upload(&self, upload: &Rc<Upload>) {
        let _ = self.upload.set(Rc::clone(upload)); // a request has one body
    }

    /// Counts bytes that the client sent through a tunnel.
    pub fn add_tunnelled(&self, bytes: usize) {
        self.tunnelled.set(self.tunnelled.get() + bytes as u64);
    }

    /// Bytes of the request body that were forwarded, or that the client sent through a tunnel.
    pub fn received(&self) -> u64 {
        self.upload.get().map_or(self.tunnelled.get(), |upload| upload.received.get())
    }

    /// Sets the timeout between two reads of the upstream's response.
    pub(super) fn set_idle(&self, idle: Duration) {
        self.idle.set(idle);
    }

    /// Waits for `future` at most this long. Progress of the request body extends the deadline. The caller
    /// pins it, because an async function that pins an argument holds it twice.
    pub(super) async fn with_timeout<T>(
        &self,
        within: Duration,
        mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Option<T> {
        self.deadline.set_request(Some(self.connection.worker.deadlines.after(within)));
        let result = poll_fn(|cx| {
            self.deadline.set_waker(cx);
            let polled = future.as_mut().poll(cx);
            if let Some(upload) = self.upload.get() {
                self.follow(upload);
            }
            match polled {
                Poll::Ready(value) => Poll::Ready(Some(value)),
                Poll::Pending if self.deadline.request_passed() || self.is_over() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        self.deadline.set_request(None);
        result
    }

    /// The place is free while the upstream waits for the client's body.
    fn follow(&self, upload: &Upload) {
        if let Some(mut place) = self.place.take() {
            place.awaits_client(upload.awaits_client());
            self.place.set(Some(place));
        }
    }

    /// Sets the total timeout of the request, unless it is set: it begins with the head, and a request that waited is matched again.
    pub fn set_total(&self, within: Option<Duration>) {
        if let Some(within) = within.filter(|_| !self.deadline.total_is_set()) {
            self.deadline.set_total(Some(self.connection.worker.deadlines.after(within)));
        }
    }

    /// Whether the total timeout has expired.
    pub fn is_over(&self) -> bool {
        self.deadline.is_over(self.connection.worker.deadlines.now())
    }

    /// Disables the total timeout, for tunnels.
    pub(super) fn disable_total_timeout(&self) {
        self.deadline.set_total(None);
    }

    /// Whether the upstream has sent nothing for too long. Arms the deadline at the first call.
    pub(super) fn has_stalled(&self, context: &Context<'_>) -> bool {
        if self.deadline.request_passed() || self.is_over() {
            return true;
        }
        if !self.deadline.request_is_set() {
            self.deadline.set_waker(context);
            self.deadline.set_request(Some(self.connection.worker.deadlines.after(self.idle.get())));
        }
        false
    }

    /// Clears the deadline: the upstream has sent something.
    pub(super) fn clear_stall_timeout(&self) {
        self.deadline.set_request(None);
    }

    /// Ends the exchange on its connection: its deadlines are cleared.
    pub fn end(&self) {
        self.deadline.set_request(None);
        self.deadline.set_total(None);
        self.connection.end();
    }

    /// Begins the record for the access log.
    pub fn begin_record(&self, record: Box<Record>) {
        self.record.replace(Some(record));
    }

    /// Takes the record out.
    pub fn take_record(&self) -> Option<Box<Record>> {
        self.record.take()
    }

    /// Adds to the record, if there is one.
    pub fn note(&self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            note(record);
        }
    }

    /// Logs an attempt on a server, with the time since the request was released.
    pub(super) fn log_attempt(&self, server: &str, failed: Option<&ForwardError>) {
        let took = || self.connection.worker.clock().now().since(self.released);
        self.note(|record| record.asked(server, took(), failed.map(ForwardError::message)));
    }

    /// Logs that no server was available.
    pub(super) fn log_no_endpoint(&self, why: &ForwardError) {
        self.note(|record| record.upstream_error = Some(why.message()));
    }
}
