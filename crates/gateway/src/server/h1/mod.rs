//! HTTP/1.1 connections of clients (RFC 9112): one task each, which reads a request, serves it, writes the response, and
//! continues with the next request. An idle connection holds no buffer.

mod tunnel;
mod write;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use http::StatusCode;
use tokio::io::AsyncWriteExt;

use self::write::{Sent, Writer};
use crate::request::{Services, serve};
use crate::respond::LocalError;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_downstream::RequestBody;
use sluicegate_downstream::h1::{Http1Body, MAX_DISCARD, Next, Socket, timeouts};
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_wire::Headers;
use sluicegate_wire::h1::{BodyDecoder, Request, ResponseTerms};

/// Serves a connection to its end.
///
/// A request and its response are boxed: an idle connection does not carry their state, and the memory that one connection
/// gives back is still in the caches when the next one takes it.
pub(super) async fn serve(services: &Services, socket: &Rc<Socket>) {
    let mut slot = None;
    let reset = loop {
        let refused = match socket.next(&mut slot, || services.view().snapshot.config.max_head).await {
            Next::End => break false,
            Next::Request => None,
            Next::Refused(error) => error.map(LocalError::from),
        };
        let request = slot.as_mut().filter(|_| refused.is_none()).ok_or(refused.unwrap_or(LocalError::Slow));
        match boxed_future(|| serve_one(services, socket, request)).await {
            After::Next => slot = None, // an idle connection keeps nothing of it
            After::Close => break false,
            After::Reset => break true,
        }
    };
    socket.close(reset);
}

/// What follows a response.
enum After {
    /// The next request.
    Next,
    /// The connection closes.
    Close,
    /// The connection is reset, so that the response is not taken for complete.
    Reset,
}

/// Serves one request, or refuses what could not be parsed with its error, and sends the response.
#[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice (decision 26)")]
fn serve_one<'r>(
    services: &'r Services,
    socket: &'r Rc<Socket>,
    mut request: Result<&'r mut Request, LocalError>,
) -> impl Future<Output = After> + 'r {
    async move {
        let connection = &socket.connection;
        let (terms, response) = match &mut request {
            Err(error) => {
                socket.ends.set(true);
                (ResponseTerms::default(), serve::refuse(services, connection, &connection.deadline, *error))
            }
            Ok(Request { head, body, terms, expects_continue }) => {
                let mut body = Some(begin_body(socket, body, *expects_continue, terms.is_http10));
                let served = {
                    let deadline = &connection.deadline;
                    let serving = pin!(serve::serve(services, connection, deadline, head, &mut body));
                    socket.while_connected(serving).await
                };
                head.headers = Headers::default(); // the response may take long
                match served {
                    Some(response) => (*terms, response),
                    None => {
                        connection.log_close("the client disconnected before its response");
                        return After::Close;
                    }
                }
            }
        };
        let status = response.status; // comparing in place borrows `response`, whose memory this future would then keep
        if status == StatusCode::SWITCHING_PROTOCOLS {
            boxed_future(|| tunnel::run(socket, response)).await;
            connection.log_close("its tunnel ended");
            return After::Close;
        }
        let sent = {
            let mut writer = Writer::new(socket, terms, response);
            let sent = poll_fn(|cx| writer.poll(cx)).await;
            writer.end(sent)
        };
        match sent {
            Sent::Complete => {
                if socket.take_back() && (socket.has_ended() || drain(socket).await) {
                    return After::Next;
                }
                connection.log_close("the rest of a request body was not read");
                boxed_future(|| linger(socket)).await;
                After::Close
            }
            Sent::CompleteAndLast => {
                connection.log_close(match () {
                    () if request.is_err() => "no complete and valid request arrived",
                    () if connection.listener.ending.get() => "draining",
                    () if !terms.keep_alive => "the client asked for one response only",
                    () => "it ends with this response",
                });
                if request.is_err() || socket.has_unread() {
                    boxed_future(|| linger(socket)).await;
                }
                After::Close
            }
            Sent::Incomplete { reset: true } => After::Reset,
            Sent::Incomplete { reset: false } => After::Close,
        }
    }
}

/// The body of a request that begins. In a function of its own, so that its locals are not memory of the future that serves
/// the request.
fn begin_body(
    socket: &Rc<Socket>,
    body: &mut BodyDecoder,
    expects_continue: bool,
    is_http10: bool,
) -> RequestBody {
    let body = std::mem::replace(body, BodyDecoder::Ended);
    let has_body = body != BodyDecoder::Ended;
    let number = socket.begin(body, expects_continue, is_http10);
    match has_body {
        true => RequestBody::Http1(Http1Body::new(socket, number)),
        false => RequestBody::None,
    }
}

/// Discards the rest of a request body after its response. Returns whether the connection can be reused.
async fn drain(socket: &Socket) -> bool {
    socket.set_timeout(timeouts::DRAIN);
    tokio::select! {
        biased;
        ended = poll_fn(|cx| socket.poll_drain(cx)) => ended,
        () = socket.connection.deadline.until(Deadline::socket_passed) => false,
    }
}

/// Closes our side and discards what the client is still sending, within limits: closing a socket with unread data resets the
/// connection, and the client would not see the response.
async fn linger(socket: &Socket) {
    socket.set_timeout(timeouts::DRAIN);
    let mut writer = socket;
    let discard = async {
        let mut left = MAX_DISCARD;
        while let Ok(read) = socket.read().await
            && !read.is_empty()
            && let Some(rest) = left.checked_sub(read.len() as u64)
        {
            left = rest;
        }
    };
    tokio::select! {
        biased;
        _ = async { tokio::join!(writer.shutdown(), discard) } => {}
        () = socket.connection.deadline.until(Deadline::socket_passed) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what `serve` returns.
    fn size_of_future<'r, F>(
        _serve: impl Fn(&'r Services, &'r Rc<Socket>, Result<&'r mut Request, LocalError>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// The allocator takes a longer path above 1 KiB (decision 26).
    #[test]
    fn the_state_of_a_request_is_allocated_fast() {
        let size = size_of_future(serve_one);
        assert!(size <= 1_024, "{size} bytes");
    }

    /// A response is moved several times; above 128 bytes that is a call.
    #[test]
    fn a_response_is_moved_without_a_call() {
        let size = size_of::<crate::request::Response>();
        assert!(size <= 128, "{size} bytes");
    }
}
