//! One request of an HTTP/2 connection: it is served, and its answer sent.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, StatusCode, header};
use http_body::Body as _;

use super::super::connection::Connection;
use super::super::deadline::Deadline;
use super::super::inbound::Inbound;
use super::body::Http2Body;
use super::head;
use crate::forward::Body;
use crate::message::Response;
use crate::pipeline;

/// Fields that are about a connection (RFC 9113 §8.2.2), and those that the answer's length is said in.
const OF_CONNECTIONS: [&[u8]; 6] =
    [b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"];

/// Serves a request to the end of its answer. Dropping this, like a client that leaves its answer where it is for too
/// long, resets the stream.
pub(super) async fn run(
    connection: Rc<Connection>,
    request: Request<RecvStream>,
    reply: SendResponse<Bytes>,
) {
    let deadlines = &connection.worker.deadlines;
    // The exchange takes it over when it begins. Its body then says how long the client may leave the answer where it
    // is; the library itself would wait for ever.
    let deadline = deadlines.lend();
    {
        let mut answering = pin!(answer(&connection, &deadline, request, reply));
        poll_fn(|context| {
            deadline.watch(context);
            match answering.as_mut().poll(context) {
                Poll::Pending if deadline.socket_passed() => Poll::Ready(()),
                polled => polled,
            }
        })
        .await;
    }
    deadlines.take_back(deadline);
}

async fn answer(
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    request: Request<RecvStream>,
    mut reply: SendResponse<Bytes>,
) {
    let (parts, stream) = request.into_parts();
    let bodiless = parts.method == Method::HEAD;
    let body = Http2Body::new(stream, &parts.headers).map_or(Inbound::None, Inbound::Http2);
    connection.next_stream.replace(Some(Rc::clone(deadline)));
    let response = match head::read(parts, connection.worker.client().max_headers) {
        Ok(mut head) => {
            let mut serving = pin!(pipeline::serve(connection, &mut head, body));
            poll_fn(|context| match serving.as_mut().poll(context) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                // Reset by the client, or lost with the connection: nobody is there to be answered.
                Poll::Pending => reply.poll_reset(context).map(|_| None),
            })
            .await
        }
        Err(error) => Some(pipeline::refuse(connection, error)),
    };
    let Some(response) = response else { return };
    let mut sending = send_head(connection, &mut reply, bodiless, response);
    if let Some(sending) = &mut sending {
        poll_fn(|context| sending.poll(context)).await;
    }
}

/// Sends the head of an answer; what is to be sent behind it, if anything is.
fn send_head(
    connection: &Connection,
    reply: &mut SendResponse<Bytes>,
    bodiless: bool,
    response: Response,
) -> Option<Sending> {
    let Response { status, mut headers, body } = response;
    for name in OF_CONNECTIONS {
        headers.remove(name);
    }
    let bodiless = bodiless || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ended = bodiless || body.is_end_stream();
    let length = body.size_hint().exact().filter(|length| *length > 0 && status != StatusCode::NO_CONTENT);
    if let Some(length) = length
        && !headers.contains_key(header::CONTENT_LENGTH)
    {
        headers.append_number(header::CONTENT_LENGTH, length);
    }
    let buffers = &connection.worker.buffers;
    if !headers.contains_key(header::DATE) {
        headers.append(header::DATE, buffers.date());
    }
    let mut head = http::Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers.into_map(&buffers.names);
    match reply.send_response(head, ended) {
        Ok(stream) if !ended => Some(Sending { stream, body, next: None }),
        Ok(_) => None,
        Err(_) => {
            reply.send_reset(Reason::INTERNAL_ERROR);
            None
        }
    }
}

/// The body of an answer on its way.
struct Sending {
    stream: SendStream<Bytes>,
    body: Body,
    /// What the client has no room for yet, and whether it is the last.
    next: Option<(Bytes, bool)>,
}

impl Sending {
    /// Sends what is there, until it is all sent or nobody wants it.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some((data, last)) = &mut self.next {
                while self.stream.capacity() == 0 {
                    // Nothing, or an error, is the end of the stream.
                    let Some(Ok(_)) = ready!(self.stream.poll_capacity(context)) else {
                        return Poll::Ready(());
                    };
                }
                // The library keeps what the room is not enough for: one piece, which is of bounded size.
                let (data, last) = (std::mem::take(data), *last);
                self.next = None;
                if self.stream.send_data(data, last).is_err() || last {
                    return Poll::Ready(());
                }
            }
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    self.stream.send_reset(reason(&error));
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    let _ = self.stream.send_data(Bytes::new(), true); // or it is over already
                    return Poll::Ready(());
                }
                Poll::Pending => return self.stream.poll_reset(context).map(drop),
            };
            match frame.into_data() {
                Ok(data) => {
                    let last = self.body.is_end_stream();
                    if data.is_empty() && !last {
                        continue;
                    }
                    // No more than a claim before there is something to send: room that is held and not used is
                    // missing to the other streams.
                    self.stream.reserve_capacity(usize::from(!data.is_empty()));
                    if data.is_empty() {
                        let _ = self.stream.send_data(data, last);
                        return Poll::Ready(());
                    }
                    self.next = Some((data, last));
                }
                Err(frame) => {
                    self.stream.reserve_capacity(0);
                    if let Ok(trailers) = frame.into_trailers() {
                        let _ = self.stream.send_trailers(trailers);
                    }
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// What the client is told of an answer that breaks off: what the upstream said of it, where it speaks HTTP/2.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(reason) = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return reason;
        }
        next = error.source();
    }
    Reason::INTERNAL_ERROR
}
