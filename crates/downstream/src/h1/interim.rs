//! Interim responses that are to be sent (RFC 9110 §15.2): `100 Continue`, and those of the upstream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use crate::ClientStream;
use crate::Interim;
use crate::worker_state::WorkerState;
use sluicegate_wire::h1::write::interim_head;

/// Lets the client send its body; also probes whether a half-closed client still listens.
const CONTINUE: Bytes = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
/// Unsent bytes beyond which interim responses of the upstream are dropped.
const UNTAKEN: usize = 64 << 10;

/// Complete heads. A part of the first one may have been sent.
#[derive(Default)]
pub(crate) struct Interims(Bytes);

impl Interims {
    /// Adds `100 Continue`.
    pub(crate) fn add_continue(&mut self) {
        match self.0.is_empty() {
            true => self.0 = CONTINUE,
            false => self.0 = [&self.0[..], &CONTINUE].concat().into(),
        }
    }

    /// Adds interim responses of the upstream, whose names of headers get the case of `worker`.
    pub(crate) fn add(&mut self, interims: &[Interim], worker: &WorkerState) {
        let mut heads = Vec::new();
        for (status, headers) in interims {
            if self.0.len() + heads.len() + headers.written_len() < UNTAKEN {
                interim_head(&mut heads, *status, headers);
            }
        }
        worker.apply_header_case(&mut heads);
        self.0 = [&self.0[..], &heads].concat().into();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends what was added.
    pub(crate) fn poll_send(
        &mut self,
        stream: Option<&mut ClientStream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(stream) = stream else { return Poll::Ready(Ok(())) };
        while !self.0.is_empty() {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.0))?;
            self.0.advance(written);
            if self.0.is_empty() {
                ready!(Pin::new(&mut *stream).poll_flush(cx))?;
            }
        }
        Poll::Ready(Ok(()))
    }
}
