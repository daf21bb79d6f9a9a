//! HTTP/1.1 connections of clients (RFC 9112): one task each, which reads a head, has it served, writes the answer,
//! and goes on to the next. A connection that waits holds no buffer.

mod tunnel;
mod write;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use http::StatusCode;

use self::write::Sent;
use crate::boxed_future::boxed_future;
use crate::client_connection::h1::{Http1Body, MAX_DISCARD, Next, Socket, timeouts};
use crate::client_connection::{ClientStream, Connection, RequestBody};
use crate::request::{Services, pipeline};
use crate::respond::LocalError;
use sluicegate_wire::h1::{BodyDecoder, Request, ResponseTerms};

/// Serves a connection to its end. `read` is what was read of it already.
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
                let turn = socket.begin(body, expects_continue, terms.is_http10);
                let body = match has_body {
                    true => RequestBody::Http1(Http1Body::new(&socket, turn)),
                    false => RequestBody::None,
                };
                let serving = pin!(pipeline::serve(services, connection, &mut head, body));
                match socket.attended(serving).await {
                    Some(response) => (terms, response),
                    None => {
                        connection.log_close("the client left before its response");
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
            Sent::Whole => {
                if !socket.take_back() || !(socket.has_ended() || drain(&socket).await) {
                    connection.log_close("the rest of a request body was not read");
                    boxed_future(|| linger(&socket)).await;
                    break;
                }
            }
            Sent::Last => {
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
            Sent::Broken { reset: only } => {
                reset = only;
                break;
            }
        }
    }
    if !reset {
        // Best effort: what does not fit into the socket at once is not waited for.
        let _ = poll_fn(|context| Poll::Ready(socket.poll_farewell(context).is_ready())).await;
    }
    socket.close(reset);
}

/// Reads the rest of a body that was answered before it had come. Whether the connection can be used further.
async fn drain(socket: &Socket) -> bool {
    let connection = &socket.connection;
    connection.deadline.set_socket(Some(connection.worker.deadlines.after(timeouts::DRAIN)));
    poll_fn(|context| {
        connection.deadline.watch(context);
        match socket.poll_drain(context) {
            Poll::Pending if connection.deadline.socket_passed() => Poll::Ready(false),
            polled => polled,
        }
    })
    .await
}

/// Closes our side and reads what the client is still sending, in bounds: closing with unread data resets the
/// connection, and the client would never see the answer.
async fn linger(socket: &Socket) {
    let connection = &socket.connection;
    connection.deadline.set_socket(Some(connection.worker.deadlines.after(timeouts::DRAIN)));
    let mut left = MAX_DISCARD;
    let mut shut = false;
    poll_fn(|context| {
        connection.deadline.watch(context);
        loop {
            if !shut {
                shut = socket.poll_shutdown(context).is_ready();
            }
            match socket.poll_read(context) {
                Poll::Pending if connection.deadline.socket_passed() => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(read)) if !read.is_empty() => match left.checked_sub(read.len() as u64) {
                    Some(rest) => left = rest,
                    None => return Poll::Ready(()),
                },
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    })
    .await;
}
