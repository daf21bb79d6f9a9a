//! Writes a request with a body to an HTTP/1.1 server.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http_body::Body as _;
use sluicegate_wire::h1::write::end_request_head;
use sluicegate_wire::h1::{BodyError, MessageEncoder};
use sluicegate_wire::headers::NameCase;
use tokio::io::AsyncWrite;

use super::connect::ServerStream;
use super::upload::{Upload, UploadBody};

/// The part of a request that is still to be written.
pub(super) struct RequestWriter {
    body: UploadBody,
    upload: Rc<Upload>,
    encoder: MessageEncoder,
}

/// Why a request was not written to its end.
pub(super) enum WriteAborted {
    /// The request body failed or must not be forwarded; see [`Upload::client_error`].
    Client,
    /// The server takes no more bytes.
    Server,
}

impl RequestWriter {
    /// A request of which nothing was written yet. The framing and the last line of its head are missing; then its names get
    /// their case.
    pub(super) fn new(
        mut head: Vec<u8>,
        body: UploadBody,
        upload: Rc<Upload>,
        header_case: Option<&NameCase>,
    ) -> Self {
        let framing = end_request_head(&mut head, body.size_hint().exact());
        if let Some(header_case) = header_case {
            header_case.apply(&mut head);
        }
        Self { body, upload, encoder: MessageEncoder::new(head, framing) }
    }

    /// Whether the body may have to be sent again.
    pub(super) fn keeps_body(&self) -> bool {
        self.body.is_kept()
    }

    /// The body, of which a part may have been written.
    pub(super) fn into_body(self) -> UploadBody {
        self.body
    }

    /// Writes what is available of the body. Ready with the buffer when the request is complete.
    pub(super) fn poll(
        &mut self,
        stream: &mut ServerStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Vec<u8>, WriteAborted>> {
        loop {
            let added = self.encoder.poll_add(Pin::new(&mut self.body), cx, true);
            if let Poll::Ready(Err(error)) = added {
                if let BodyError::Length = error {
                    self.upload.set_malformed();
                }
                return Poll::Ready(Err(WriteAborted::Client));
            }
            ready!(self.poll_write(stream, cx)).map_err(|_| {
                self.upload.set_write_aborted();
                WriteAborted::Server
            })?;
            if self.encoder.is_complete() {
                return Poll::Ready(Ok(self.encoder.take_buffer()));
            }
            if added.is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Writes everything that was added to the encoder.
    fn poll_write(&mut self, stream: &mut ServerStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.encoder.poll_write(|slices| {
            let written = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, slices))?;
            self.upload.progress();
            Poll::Ready(Ok(written))
        }))?;
        Pin::new(stream).poll_flush(cx)
    }
}
