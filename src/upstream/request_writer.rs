//! A request with a body on its way to a server over HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http_body::Body as _;
use sluicegate_wire::h1::MessageEncoder;
use sluicegate_wire::h1::write::end_request_head;
use tokio::io::AsyncWrite;

use super::connect::ServerStream;
use super::upload::{Upload, UploadBody};

/// What is left to be sent of a request.
pub(super) struct RequestWriter {
    body: UploadBody,
    upload: Rc<Upload>,
    encoder: MessageEncoder,
}

/// Why a request was not sent to its end.
pub(super) enum WriteAborted {
    /// Its client broke off, or sent what may not be forwarded; the upload knows more.
    Client,
    /// The server takes nothing more.
    Server,
}

impl RequestWriter {
    /// A request of which nothing was sent yet. Its head has no framing and no last line yet.
    pub(super) fn new(mut head: Vec<u8>, body: UploadBody, upload: Rc<Upload>) -> Self {
        let framing = end_request_head(&mut head, body.size_hint().exact());
        Self { body, upload, encoder: MessageEncoder::new(head, framing) }
    }

    /// Sends what has come of the body. Ready when all is sent, with the memory that it was written from.
    pub(super) fn poll(
        &mut self,
        stream: &mut ServerStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<u8>, WriteAborted>> {
        loop {
            let needs_client = self.fill(context)?;
            ready!(self.poll_write_out(stream, context)).map_err(|_| {
                self.upload.set_write_aborted();
                WriteAborted::Server
            })?;
            if self.encoder.is_complete() {
                return Poll::Ready(Ok(self.encoder.take_buffer()));
            }
            if needs_client {
                return Poll::Pending;
            }
        }
    }

    /// Writes what is added.
    fn poll_write_out(
        &mut self,
        stream: &mut ServerStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.encoder.poll_write(|bytes| {
            let written = ready!(Pin::new(&mut *stream).poll_write(context, bytes))?;
            self.upload.progress();
            Poll::Ready(Ok(written))
        }))?;
        Pin::new(stream).poll_flush(context)
    }

    /// Gathers what there is of the body. Whether the client has to send more first.
    fn fill(&mut self, context: &mut Context<'_>) -> Result<bool, WriteAborted> {
        while !self.encoder.is_complete() && self.encoder.has_room() {
            let added = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.encoder.write_data(data),
                    Err(frame) => self.encoder.finish(frame.trailers_ref()),
                },
                Poll::Ready(Some(Err(_))) => return Err(WriteAborted::Client),
                Poll::Ready(None) => self.encoder.finish(None),
            };
            added.map_err(|_| {
                self.upload.set_malformed();
                WriteAborted::Client
            })?;
        }
        Ok(false)
    }
}
