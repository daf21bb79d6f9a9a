//! An HTTP/1.1 connection to a server. The task that serves the request drives it; there is no task per connection. The request
//! body is sent whenever the response is polled, so both can be in progress at the same time.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use http::{StatusCode, header};
use sluicegate_wire::h1::write::request_head;
use sluicegate_wire::h1::{Response, ResponseDecoder, ResponseHead};
use tokio::io::AsyncReadExt;

use super::connect::{IdleState, ServerStream, idle_state, send};
use super::headers::strip_hop_by_hop;
use super::outgoing::Outgoing;
use super::request_writer::{RequestWriter, WriteAborted};
use super::tunnel::Tunnel;
use super::upload::UploadBody;
use sluicegate_downstream::Connection;
use sluicegate_downstream::worker_state::Buffers;

/// Bytes of one read.
const READ_SIZE: usize = 16 << 10;

/// A connection to a server.
pub(super) struct H1Connection {
    stream: ServerStream,
    /// Bytes that were received and are not decoded yet.
    pub(super) read: BytesMut,
    upload: UploadState,
    /// The body that was sent, if it may have to be sent again.
    sent: Option<Box<UploadBody>>,
}

/// The state of the request.
enum UploadState {
    /// It was sent to its end.
    Sent,
    /// A part of its body is still to be sent.
    InProgress(Box<RequestWriter>),
    /// The server took no more bytes before the end. It may still respond.
    Aborted,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum H1Error {
    /// The connection ended before any byte of a response.
    #[error("the connection ended before a response")]
    NoResponse(#[source] io::Error),
    /// The response is malformed or incomplete.
    #[error("{0}")]
    InvalidResponse(&'static str),
    /// The request body is incomplete.
    #[error("the request body is incomplete")]
    Upload,
}

impl H1Connection {
    /// A new connection. It is boxed once, because every request moves it from the pool to the response and back.
    pub(super) fn new(stream: ServerStream) -> Box<Self> {
        Box::new(Self { stream, read: BytesMut::new(), upload: UploadState::Sent, sent: None })
    }

    /// The state of the connection while it is idle.
    pub(super) fn idle_state(&mut self) -> IdleState {
        idle_state(&mut self.stream)
    }

    /// The connection after a switch to another protocol.
    pub(super) fn into_tunnel(self, idle: Duration) -> Tunnel {
        Tunnel { stream: self.stream, received: self.read, idle }
    }

    /// Sends the rest of the request body, before the protocol is switched: a server may agree as soon as it has the head.
    ///
    /// # Errors
    /// If the request body is incomplete, or if the server does not take it.
    pub(super) async fn finish_upload(&mut self) -> Result<(), H1Error> {
        poll_fn(|cx| {
            self.poll_upload(cx, None)?;
            match self.upload {
                UploadState::Sent => Poll::Ready(Ok(())),
                UploadState::InProgress(_) => Poll::Pending,
                UploadState::Aborted => Poll::Ready(Err(H1Error::InvalidResponse(
                    "the server switched protocols and took no more of the request body",
                ))),
            }
        })
        .await
    }

    /// The whole body of a request that was not answered, if it was kept.
    pub(super) fn take_body(&mut self) -> Option<UploadBody> {
        if let UploadState::InProgress(writer) = std::mem::replace(&mut self.upload, UploadState::Aborted) {
            return writer.into_body().rewound();
        }
        self.sent.take()?.rewound()
    }

    /// Whether the request was sent to its end, so that the connection can be reused.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.upload, UploadState::Sent)
    }

    /// Sends what is available of the request body. The task is woken when it can continue.
    ///
    /// # Errors
    /// If the request body is incomplete.
    pub(super) fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
        buffers: Option<&Buffers>,
    ) -> Result<(), H1Error> {
        let UploadState::InProgress(writer) = &mut self.upload else { return Ok(()) };
        match writer.poll(&mut self.stream, cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(out)) => {
                self.end_upload(UploadState::Sent);
                if let Some(buffers) = buffers {
                    buffers.return_write_buffer(out);
                }
            }
            Poll::Ready(Err(WriteAborted::Server)) => self.end_upload(UploadState::Aborted),
            Poll::Ready(Err(WriteAborted::Client)) => return Err(H1Error::Upload),
        }
        Ok(())
    }

    fn end_upload(&mut self, end: UploadState) {
        if matches!(&self.upload, UploadState::InProgress(writer) if writer.keeps_body()) {
            self.keep_body();
        }
        self.upload = end;
    }

    #[cold]
    fn keep_body(&mut self) {
        if let UploadState::InProgress(writer) = std::mem::replace(&mut self.upload, UploadState::Aborted) {
            self.sent = Some(Box::new(writer.into_body()));
        }
    }

    /// Sends a request and waits for the head of its response; interim responses are passed to `client`. The body is taken out
    /// of `outgoing`; what is not sent before the response begins is sent by [`poll_upload`](Self::poll_upload).
    pub(super) async fn send_request(
        &mut self,
        outgoing: &mut Outgoing<'_>,
        client: Option<&Connection>,
    ) -> Result<Response, H1Error> {
        let buffers = client.map(|client| &client.worker.buffers);
        let mut head = buffers.map_or_else(Vec::new, Buffers::take_write_buffer);
        request_head(&mut head, outgoing.head);
        let header_case = outgoing.header_case;
        if let Some(upload) = &outgoing.upload
            && let Some(body) = outgoing.body.take()
        {
            let writer = RequestWriter::new(head, body, Rc::clone(upload), header_case);
            self.upload = UploadState::InProgress(Box::new(writer));
        } else {
            head.extend_from_slice(b"\r\n");
            if let Some(header_case) = header_case {
                header_case.apply(&mut head);
            }
            let sent = send(&mut self.stream, &head).await;
            if let Some(buffers) = buffers {
                buffers.return_write_buffer(head);
            }
            sent.map_err(H1Error::NoResponse)?;
        }
        let decoder = ResponseDecoder {
            method: &outgoing.head.method,
            upgrade: outgoing.upgrade.as_deref(),
            max_head: outgoing.max_head(),
            max_fields: outgoing.max_headers(),
        };
        loop {
            match decoder.decode(&mut self.read).map_err(H1Error::InvalidResponse)? {
                Some(ResponseHead::Final(response)) => {
                    self.sent = None;
                    return Ok(response);
                }
                Some(ResponseHead::Interim(status, mut headers)) => {
                    // The gateway sends 100 (Continue) itself.
                    if let Some(client) = client.filter(|_| status != StatusCode::CONTINUE) {
                        strip_hop_by_hop(&mut headers);
                        headers.remove(header::CONTENT_LENGTH);
                        client.pass_on((status, headers));
                    }
                    continue; // the response is still to come
                }
                None => {}
            }
            let read = poll_fn(|cx| match self.poll_upload(cx, buffers) {
                Ok(()) => self.poll_fill(cx, buffers).map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            });
            match read.await? {
                Ok(0) if self.read.is_empty() => {
                    return Err(H1Error::NoResponse(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(0) => {
                    return Err(H1Error::InvalidResponse("the connection ended in the head of the response"));
                }
                Ok(_) => {}
                Err(error) if self.read.is_empty() => return Err(H1Error::NoResponse(error)),
                Err(_) => {
                    return Err(H1Error::InvalidResponse(
                        "the connection failed in the head of the response",
                    ));
                }
            }
        }
    }

    /// Reads more bytes, into a buffer of the worker if possible. Returns their number; zero at the end.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffers: Option<&Buffers>,
    ) -> Poll<io::Result<usize>> {
        if let Some(buffers) = buffers.filter(|_| self.read.is_empty()) {
            self.read = BytesMut::new(); // a connection that waits holds no buffer
            let read = buffers.poll_read(&mut self.stream, cx, READ_SIZE);
            return read.map_ok(|read| {
                self.read = read;
                self.read.len()
            });
        }
        self.read.reserve(READ_SIZE);
        // `ReadBuf` has no state between polls, so a new one at each poll is correct.
        pin!(self.stream.read_buf(&mut self.read)).poll(cx)
    }
}
