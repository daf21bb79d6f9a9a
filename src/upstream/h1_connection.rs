//! An HTTP/1.1 connection to a server, driven by the task that serves the request: nothing is handed to another task
//! and back. The body of a request is sent whenever the answer is polled, so that both go at the same time.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::{StatusCode, header};
use sluicegate_wire::h1::write::request_head;
use sluicegate_wire::h1::{Response, ResponseDecoder, ResponseHead};
use tokio::io::AsyncReadExt;

use super::connect::{IdleState, ServerStream};
use super::headers::strip_hop_by_hop;
use super::outgoing::Outgoing;
use super::request_writer::{RequestWriter, WriteAborted};
use crate::client_connection::Connection;
use crate::worker_state::Buffers;

/// What is read at once behind something that is there already.
const READ_SIZE: usize = 16 << 10;

/// A connection to a server.
pub(super) struct H1Connection {
    stream: ServerStream,
    /// What was read and not used yet.
    pub(super) read: BytesMut,
    upload: UploadState,
}

/// How far the request is sent.
enum UploadState {
    /// To its end.
    Sent,
    /// There is more of its body to be sent.
    InProgress(Box<RequestWriter>),
    /// The server took nothing more, though there was more. Its answer may still come.
    Aborted,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum H1Error {
    /// The connection ended before any byte of an answer.
    #[error("the connection ended before an answer")]
    NoResponse(#[source] io::Error),
    /// What came is no answer.
    #[error("{0}")]
    InvalidResponse(&'static str),
    /// The client's body did not come whole.
    #[error("the request's body did not come whole")]
    Upload,
}

impl H1Connection {
    /// A connection that nothing was said on yet.
    pub(super) fn new(stream: ServerStream) -> Self {
        Self { stream, read: BytesMut::new(), upload: UploadState::Sent }
    }

    /// Whether a kept connection is as it was left. What a server says unasked is no answer to the next request.
    pub(super) fn idle_state(&mut self) -> IdleState {
        self.stream.idle_state()
    }

    /// The connection itself.
    pub(super) fn stream(&mut self) -> &mut ServerStream {
        &mut self.stream
    }

    /// Whether the request was sent to its end, so that another may follow it.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.upload, UploadState::Sent)
    }

    /// Sends what has come of the request's body. It never waits: the task is woken when there is more to do.
    ///
    /// # Errors
    /// When the client's body does not come whole. What was sent of it cannot be completed.
    pub(super) fn poll_upload(
        &mut self,
        context: &mut Context<'_>,
        buffers: Option<&Buffers>,
    ) -> Result<(), H1Error> {
        let UploadState::InProgress(writer) = &mut self.upload else { return Ok(()) };
        match writer.poll(&mut self.stream, context) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(out)) => {
                self.upload = UploadState::Sent;
                if let Some(buffers) = buffers {
                    buffers.give_back(out);
                }
            }
            Poll::Ready(Err(WriteAborted::Server)) => self.upload = UploadState::Aborted,
            Poll::Ready(Err(WriteAborted::Client)) => return Err(H1Error::Upload),
        }
        Ok(())
    }

    /// Sends a request and waits for the head of its answer; interim answers are passed on to `client`. A body is taken out
    /// of `outgoing`; if the answer begins before it is sent, the rest is sent by [`poll_upload`](Self::poll_upload).
    pub(super) async fn send_request(
        &mut self,
        outgoing: &mut Outgoing<'_>,
        client: Option<&Connection>,
    ) -> Result<Response, H1Error> {
        let buffers = client.map(|client| &client.worker.buffers);
        let mut head = buffers.map_or_else(Vec::new, Buffers::take_out);
        request_head(&mut head, outgoing.head);
        match outgoing.body.take() {
            Some((body, upload)) => {
                self.upload = UploadState::InProgress(Box::new(RequestWriter::new(head, body, upload)));
            }
            None => {
                head.extend_from_slice(b"\r\n");
                let sent = self.stream.send(&head).await;
                if let Some(buffers) = buffers {
                    buffers.give_back(head);
                }
                sent.map_err(H1Error::NoResponse)?;
            }
        }
        let decoder = ResponseDecoder { method: &outgoing.head.method, upgrade: outgoing.upgrade.as_deref() };
        loop {
            match decoder.decode(&mut self.read).map_err(H1Error::InvalidResponse)? {
                Some(ResponseHead::Final(response)) => return Ok(response),
                Some(ResponseHead::Interim(status, mut headers)) => {
                    // Clients have leave to send their bodies from the gateway itself.
                    if let Some(client) = client.filter(|_| status != StatusCode::CONTINUE) {
                        strip_hop_by_hop(&mut headers);
                        headers.remove(header::CONTENT_LENGTH);
                        client.pass_on((status, headers));
                    }
                    continue; // the answer is still to come
                }
                None => {}
            }
            let read = poll_fn(|context| match self.poll_upload(context, buffers) {
                Ok(()) => self.poll_fill(context, buffers).map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            });
            match read.await? {
                Ok(0) if self.read.is_empty() => {
                    return Err(H1Error::NoResponse(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(0) => {
                    return Err(H1Error::InvalidResponse("the connection ended in the head of the answer"));
                }
                Ok(_) => {}
                Err(error) if self.read.is_empty() => return Err(H1Error::NoResponse(error)),
                Err(_) => {
                    return Err(H1Error::InvalidResponse("the connection broke in the head of the answer"));
                }
            }
        }
    }

    /// Reads some more, into the worker's memory if it is at hand; zero at the end.
    pub(super) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffers: Option<&Buffers>,
    ) -> Poll<io::Result<usize>> {
        if let Some(buffers) = buffers.filter(|_| self.read.is_empty()) {
            self.read = BytesMut::new(); // whoever waits keeps none
            let read = buffers.poll_read(&mut self.stream, context, READ_SIZE);
            return read.map_ok(|read| {
                self.read = read;
                self.read.len()
            });
        }
        self.read.reserve(READ_SIZE);
        // A read keeps nothing between polls, so a new one each time loses nothing.
        pin!(self.stream.read_buf(&mut self.read)).poll(context)
    }
}
