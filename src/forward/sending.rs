//! A request with a body on its way to a server over HTTP/1.1: its head and small pieces of its body are gathered and
//! written together, large pieces are written from where they are.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::Body as _;
use tokio::io::AsyncWrite;

use super::connect::ServerStream;
use super::upload::{RequestBody, Upload};
use crate::fields::write_line;
use crate::framing::write_size;
use crate::number::write_decimal;

/// What is gathered before it is written; a larger piece is written from where it is.
const FLAT: usize = 16 << 10;

/// What is left to be sent of a request.
pub(super) struct Sending {
    body: RequestBody,
    upload: Rc<Upload>,
    coding: Coding,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// A piece that is too large to be gathered, behind `out`.
    piece: Bytes,
}

/// How the rest of the body goes out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// This many bytes are still to be gathered.
    Length(u64),
    Chunked,
    /// All is gathered.
    Ended,
}

/// Why a request was not sent to its end.
pub(super) enum Unfinished {
    /// Its client broke off, or sent what may not be forwarded; the upload knows more.
    Client,
    /// The server takes nothing more.
    Server,
}

impl Sending {
    /// A request of which nothing was sent yet. Of its head, which is in `out`, the framing and the last line are missing.
    pub(super) fn new(mut out: Vec<u8>, body: RequestBody, upload: Rc<Upload>) -> Self {
        let coding = match body.size_hint().exact() {
            Some(length) => {
                out.extend_from_slice(b"content-length: ");
                write_decimal(&mut out, length);
                out.extend_from_slice(b"\r\n\r\n");
                Coding::Length(length)
            }
            None => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
                Coding::Chunked
            }
        };
        Self { body, upload, coding, out, written: 0, piece: Bytes::new() }
    }

    /// Sends what has come of the body. Ready when all is sent, with the memory that it was written from.
    pub(super) fn poll(
        &mut self,
        stream: &mut ServerStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<u8>, Unfinished>> {
        loop {
            let waits = self.gather(context)?;
            ready!(self.poll_out(stream, context)).map_err(|_| self.cut())?;
            if self.coding == Coding::Ended {
                return Poll::Ready(Ok(std::mem::take(&mut self.out)));
            }
            if waits {
                return Poll::Pending;
            }
        }
    }

    /// Gathers what there is of the body. Whether the client has to send more first.
    fn gather(&mut self, context: &mut Context<'_>) -> Result<bool, Unfinished> {
        while self.coding != Coding::Ended && self.piece.is_empty() && self.out.len() - self.written < FLAT {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.data(data)?,
                    Err(frame) => self.end(frame.into_trailers().ok())?,
                },
                Poll::Ready(Some(Err(_))) => return Err(Unfinished::Client),
                Poll::Ready(None) => self.end(None)?,
            }
        }
        Ok(false)
    }

    fn data(&mut self, data: Bytes) -> Result<(), Unfinished> {
        if data.is_empty() {
            return Ok(()); // an empty chunk would be the last
        }
        if let Coding::Length(left) = &mut self.coding {
            let Some(rest) = left.checked_sub(data.len() as u64) else { return Err(self.mismatch()) };
            *left = rest;
            if *left == 0 {
                self.coding = Coding::Ended;
            }
        } else {
            write_size(&mut self.out, data.len());
        }
        if data.len() > FLAT {
            self.piece = data;
        } else {
            self.out.extend_from_slice(&data);
            self.end_chunk();
        }
        Ok(())
    }

    /// The server takes nothing more, so nobody waits for the client.
    fn cut(&self) -> Unfinished {
        self.upload.is_cut();
        Unfinished::Server
    }

    /// The body is not as long as the head says, which the server must not be told.
    fn mismatch(&self) -> Unfinished {
        self.upload.mismatches();
        Unfinished::Client
    }

    fn end_chunk(&mut self) {
        if self.coding == Coding::Chunked {
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// The body has ended.
    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), Unfinished> {
        match self.coding {
            Coding::Length(1..) => return Err(self.mismatch()),
            Coding::Length(0) | Coding::Ended => {}
            Coding::Chunked => {
                self.out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.iter().flatten() {
                    write_line(&mut self.out, name.as_ref(), value.as_bytes());
                }
                self.out.extend_from_slice(b"\r\n");
            }
        }
        self.coding = Coding::Ended;
        Ok(())
    }

    /// Writes all that is gathered.
    fn poll_out(&mut self, stream: &mut ServerStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_piece = self.written == self.out.len();
            let left = if is_piece { &self.piece[..] } else { &self.out[self.written..] };
            if left.is_empty() {
                self.out.clear();
                self.written = 0;
                return Pin::new(&mut *stream).poll_flush(context);
            }
            let written = ready!(Pin::new(&mut *stream).poll_write(context, left))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.upload.moves();
            if !is_piece {
                self.written += written;
                continue;
            }
            self.piece.advance(written);
            if self.piece.is_empty() {
                self.out.clear();
                self.written = 0;
                self.end_chunk();
            }
        }
    }
}
