//! HTTP/1.1 connections of clients (RFC 9112): one task each, which reads a request, serves it, writes the response, and
//! continues with the next request. An idle connection holds no buffer.

mod tunnel;
mod write;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;
use tokio::io::AsyncWriteExt;

use self::write::Sent;
use crate::boxed_future::boxed_future;
use crate::client_connection::h1::{Http1Body, MAX_DISCARD, Next, Socket, timeouts};
use crate::client_connection::{ClientStream, Connection, RequestBody};
use crate::request::{Services, pipeline};
use crate::respond::LocalError;
use crate::worker_state::Deadline;
use sluicegate_wire::h1::{BodyDecoder, Request, ResponseTerms};

/// Serves a connection to its end. `read` has the bytes that were read already.
pub(super) async fn serve(
    services: &Services,
    connection: &Rc<Connection>,
    stream: ClientStream,
    read: BytesMut,
) {
    let socket = Rc::new(Socket::new(connection, stream, read));
    let (mut reset, mut refused) = (false, false);
    loop {
        let (terms, response) = match socket.next(|| services.view().snapshot.config.max_head).await {
            Next::End => break,
            Next::Refused(error) => {
                let error = error.map_or(LocalError::Slow, LocalError::from);
                refused = true;
                socket.ends.set(true);
                (ResponseTerms::default(), pipeline::refuse(services, connection, error))
            }
            Next::Request(Request { mut head, body, terms, expects_continue }) => {
                let has_body = body != BodyDecoder::Ended;
                let number = socket.begin(body, expects_continue, terms.is_http10);
                let body = match has_body {
                    true => RequestBody::Http1(Http1Body::new(&socket, number)),
                    false => RequestBody::None,
                };
                let serving = pin!(pipeline::serve(services, connection, &mut head, body));
                match socket.while_connected(serving).await {
                    Some(response) => (terms, response),
                    None => {
                        connection.log_close("the client disconnected before its response");
                        break;
                    }
                }
            }
        };
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            boxed_future(|| tunnel::run(&socket, response)).await;
            connection.log_close("its tunnel ended");
            break;
        }
        match write::send(&socket, terms, response).await {
            Sent::Complete => {
                if !socket.take_back() || !(socket.has_ended() || drain(&socket).await) {
                    connection.log_close("the rest of a request body was not read");
                    boxed_future(|| linger(&socket)).await;
                    break;
                }
            }
            Sent::CompleteAndLast => {
                connection.log_close(match () {
                    () if refused => "no complete and valid request arrived",
                    () if connection.listener.ending.get() => "draining",
                    () if !terms.keep_alive => "the client asked for one response only",
                    () => "it ends with this response",
                });
                if refused || socket.has_unread() {
                    boxed_future(|| linger(&socket)).await;
                }
                break;
            }
            Sent::Incomplete { reset: needs_reset } => {
                reset = needs_reset;
                break;
            }
        }
    }
    socket.close(reset);
}

/// Discards the rest of a request body after its response. Returns whether the connection can be reused.
async fn drain(socket: &Socket) -> bool {
    socket.set_timeout(timeouts::DRAIN);
    tokio::select! {
        biased;
        ended = poll_fn(|context| socket.poll_drain(context)) => ended,
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
