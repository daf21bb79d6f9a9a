//! Serves one request of an HTTP/2 connection and sends its response.

use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{StatusCode, header};
use http_body::Body as _;
use sluicegate_wire::h2::{Reason, ResponseHead, Session, StreamKey};
use sluicegate_wire::number::Decimal;

use super::next_request::{NextRequest, StreamRequest};
use crate::request::{Response, ResponseBody, Services, serve};
use crate::respond::LocalError;
use sluicegate_downstream::body_rate::SendRate;
use sluicegate_downstream::worker_state::{Deadline, WorkerState};
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_wire::RequestHead;

/// Serves one request after the other, each to the end of its response.
pub(super) async fn serve(next: Rc<NextRequest>) -> Infallible {
    loop {
        let StreamRequest { services, connection, session, key, head, is_head, body } = next.wait().await;
        let deadlines = &connection.worker.deadlines;
        // The request uses it from its beginning. While the response is sent, it is the write timeout of the stream.
        let deadline = deadlines.take_spare();
        {
            let mut answering =
                pin!(answer(&services, &connection, &deadline, &session, key, (head, is_head), body));
            poll_fn(|cx| {
                deadline.set_waker(cx);
                match answering.as_mut().poll(cx) {
                    Poll::Pending if deadline.socket_passed() => Poll::Ready(()),
                    polled => polled,
                }
            })
            .await;
        }
        deadlines.recycle(deadline);
        session.borrow_mut().stop_serving(key);
    }
}

async fn answer(
    services: &Services,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    session: &RefCell<Session>,
    key: StreamKey,
    (head, is_head): (Result<RequestHead, LocalError>, bool),
    body: RequestBody,
) {
    let response = match head {
        Ok(mut head) => {
            let mut body = Some(body);
            let mut serving = pin!(serve::serve(services, connection, deadline, &mut head, &mut body));
            poll_fn(|cx| {
                if !session.borrow_mut().can_proceed(key) {
                    return Poll::Pending;
                }
                let polled = serving.as_mut().poll(cx);
                for (status, headers) in connection.take_interims().into_iter().flatten() {
                    session.borrow_mut().send_interim(key, status, &headers);
                }
                polled
            })
            .await
        }
        Err(error) => serve::refuse(services, connection, deadline, error),
    };
    if let Some(mut sending) = send_head(connection, session, key, is_head, response) {
        poll_fn(|cx| sending.poll(cx)).await;
    }
}

/// Sends the head of a response. Returns its body, if it has one.
fn send_head<'s>(
    connection: &'s Connection,
    session: &'s RefCell<Session>,
    key: StreamKey,
    is_head: bool,
    response: Response,
) -> Option<BodyWriter<'s>> {
    let Response { status, mut headers, body } = response;
    let is_bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ends = is_head || is_bodiless || body.is_end_stream();
    if is_bodiless {
        // Clients compare it with the length of the data, which is zero.
        headers.remove(header::CONTENT_LENGTH);
    }
    let length = body.size_hint().exact();
    if let Some(length) = length.filter(|length| *length > 0 && !is_bodiless)
        && !headers.contains_key(header::CONTENT_LENGTH)
    {
        headers.append(header::CONTENT_LENGTH, Decimal::new().format(length));
    }
    let date = connection.worker.buffers.date();
    let head = ResponseHead { status, headers: &headers, date, ends };
    let is_sent = session.borrow_mut().send_head(key, &head);
    (is_sent && !ends).then(|| BodyWriter {
        worker: &connection.worker,
        session,
        key,
        body,
        length,
        next: None,
        send_rate: SendRate::default(),
    })
}

/// Sends the body of a response.
struct BodyWriter<'s> {
    worker: &'s WorkerState,
    session: &'s RefCell<Session>,
    key: StreamKey,
    body: ResponseBody,
    /// Its length, if that is known.
    length: Option<u64>,
    /// Data that is not sent yet, and whether it is the last.
    next: Option<(Bytes, bool)>,
    send_rate: SendRate,
}

impl BodyWriter<'_> {
    /// Sends what is available. Ready when the body has ended or the stream is closed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.send_text() {
            return Poll::Ready(());
        }
        loop {
            if let Some((data, last)) = &mut self.next {
                let mut session = self.session.borrow_mut();
                let Some(room) = session.capacity(self.key) else { return Poll::Ready(()) };
                let now = self.worker.deadlines.now();
                if room == 0 {
                    drop(session);
                    if self.send_rate.begin_wait(now, self.worker.client().min_send_rate) {
                        return Poll::Ready(()); // the stream is reset, because it has not ended
                    }
                    self.body.poll_upload(cx);
                    return Poll::Pending;
                }
                let piece = data.split_to(room.min(data.len()));
                self.send_rate.add(piece.len(), now);
                let (is_sent, last) = (data.is_empty(), *last);
                session.send_data(self.key, &piece, last && is_sent);
                if is_sent {
                    self.next = None;
                }
                if is_sent && last {
                    return Poll::Ready(());
                }
                if session.yield_turn(self.key) {
                    drop(session);
                    self.body.poll_upload(cx);
                    return Poll::Pending;
                }
                if !is_sent {
                    continue;
                }
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let last = self.body.is_end_stream();
                        if !data.is_empty() {
                            self.next = Some((data, last));
                        } else if last {
                            self.session.borrow_mut().send_data(self.key, &[], true);
                            return Poll::Ready(());
                        }
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.session.borrow_mut().send_trailers(self.key, &trailers);
                        }
                        return Poll::Ready(());
                    }
                },
                Poll::Ready(Some(Err(error))) => {
                    self.body.log_failure(&error);
                    self.session.borrow_mut().reset(self.key, reason(&error));
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    self.session.borrow_mut().send_data(self.key, &[], true);
                    return Poll::Ready(());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Sends a body that was written for this response at once, if there is room for all of it.
    fn send_text(&mut self) -> bool {
        let Some(length) = self.length.take() else { return false };
        let mut session = self.session.borrow_mut();
        let has_room = session.capacity_now(self.key).is_some_and(|room| room as u64 >= length);
        let Some(text) = has_room.then(|| self.body.take_text()).flatten() else { return false };
        session.send_data(self.key, &text, true);
        true
    }
}

/// The error code for a response that fails: that of the upstream, if it has reset this stream. Codes of a connection that failed say nothing
/// of this request: gRPC clients read ENHANCE_YOUR_CALM as a rate limit, and REFUSED_STREAM as an invitation to try again.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let reason = error.reason().filter(|_| error.is_reset() && error.is_remote());
            return reason.map_or(Reason::INTERNAL_ERROR, |reason| Reason(reason.into()));
        }
        next = error.source();
    }
    Reason::INTERNAL_ERROR
}
