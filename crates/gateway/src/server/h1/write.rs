//! Writes responses: the head together with a small body, and a larger body frame by frame.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use http_body::Body as _;
use sluicegate_wire::Headers;
use sluicegate_wire::h1::write::{ResponseHead, says_close, switch_head};
use sluicegate_wire::h1::{BodyError, BodyFraming, MessageEncoder, ResponseTerms};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::request::{Response, ResponseBody};
use sluicegate_downstream::body_rate::SendRate;
use sluicegate_downstream::h1::Socket;
use sluicegate_downstream::worker_state::Deadline;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It was sent completely, and the connection may be reused.
    Complete,
    /// It was sent completely, and the connection closes after it.
    CompleteAndLast,
    /// It is incomplete, or the client is gone.
    Incomplete {
        /// Only a reset tells the client that the response is incomplete.
        reset: bool,
    },
}

/// Writes one response. It is polled by hand because every request passes here: reading of the body, writing, the rest of the
/// request body and two timeouts share one future without further state.
pub(super) struct Writer<'a> {
    socket: &'a Socket,
    framing: BodyFraming,
    encoder: MessageEncoder,
    /// `None` once it has ended. Dropping it ends the request.
    body: Option<ResponseBody>,
    /// Whether the client accepts trailers.
    trailers: bool,
    failed: bool,
    /// Whether the send buffer of the socket is full.
    blocked: bool,
    send_rate: SendRate,
}

/// Sends the head of a response that switches to another protocol.
pub(super) async fn send_switch(socket: &Socket, status: StatusCode, headers: &Headers) -> io::Result<()> {
    socket.begin_response();
    let mut out = Vec::with_capacity(512);
    switch_head(&mut out, status, headers);
    socket.connection.worker.apply_header_case(&mut out);
    arm_write_timeout(socket);
    let mut writer = socket;
    let write = async {
        writer.write_all(&out).await?;
        writer.flush().await
    };
    tokio::select! {
        biased;
        written = write => written,
        () = socket.connection.deadline.until(Deadline::socket_passed) => Err(io::ErrorKind::TimedOut.into()),
    }
}

impl<'a> Writer<'a> {
    /// A writer whose buffer has the head of the response.
    pub(super) fn new(socket: &'a Socket, terms: ResponseTerms, response: Response) -> Self {
        let Response { status, headers, body } = response;
        socket.begin_response();
        let bodiless = terms.is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let framing = match body.size_hint().exact() {
            _ if bodiless => BodyFraming::Ended,
            Some(length) => BodyFraming::Length(length),
            None if terms.is_http10 => BodyFraming::UntilClose,
            None => BodyFraming::Chunked,
        };
        let ends = socket.connection.deadline.take_closing()
            || socket.ends.get()
            // If the client is told now, it does not send another request at the moment at which the listener closes.
            || socket.connection.listener.ending.get()
            || !terms.keep_alive
            || framing == BodyFraming::UntilClose
            || !socket.can_drain()
            || says_close(&headers);
        socket.ends.set(ends);
        let buffers = &socket.connection.worker.buffers;
        let mut out = buffers.take_write_buffer();
        let length = body.size_hint().exact().filter(|length| !bodiless || (terms.is_head && *length > 0));
        ResponseHead { status, headers: &headers, framing, length, closes: ends, date: &buffers.date() }
            .write(&mut out, terms);
        socket.connection.worker.apply_header_case(&mut out);
        Self {
            socket,
            framing,
            encoder: MessageEncoder::new(out, framing),
            body: (framing != BodyFraming::Ended).then_some(body), // dropping it ends the request
            trailers: terms.trailers,
            failed: false,
            blocked: false,
            send_rate: SendRate::default(),
        }
    }

    /// How the response ended, with the result of [`poll`](Self::poll).
    pub(super) fn end(&mut self, sent: io::Result<()>) -> Sent {
        let Self { socket, .. } = self;
        socket.connection.worker.buffers.return_write_buffer(self.encoder.take_buffer());
        match sent {
            Ok(()) if self.failed => socket.connection.log_close("the response could not be completed"),
            Ok(()) if socket.ends.get() => return Sent::CompleteAndLast,
            Ok(()) => return Sent::Complete,
            // The client may only be slow: without a reset it would take the part that it reads later for the whole response.
            Err(error) => {
                socket.connection.log_close(format_args!("the response could not be sent: {error}"));
            }
        }
        Sent::Incomplete { reset: self.framing == BodyFraming::UntilClose }
    }

    /// Sends the response.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let deadline = &self.socket.connection.deadline;
        loop {
            let needs_body = self.fill(cx);
            match self.poll_write(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    deadline.set_waker(cx);
                    let worker = &self.socket.connection.worker;
                    let is_slow =
                        self.send_rate.begin_wait(worker.deadlines.now(), worker.client().min_send_rate);
                    if is_slow || (self.blocked && deadline.socket_passed()) {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    if !self.blocked {
                        self.blocked = true;
                        arm_write_timeout(self.socket);
                    }
                    if let Some(body) = &mut self.body {
                        body.poll_upload(cx);
                    }
                    let _ = self.socket.poll_drain(cx); // the client may have to send its request body first
                    return Poll::Pending;
                }
            }
            if std::mem::take(&mut self.blocked) {
                deadline.set_socket(None);
            }
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
            if needs_body {
                let _ = self.socket.poll_drain(cx);
                let gone = self.socket.poll_disconnected(cx);
                return gone.map(|()| Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// Adds what is available of the body to the encoder. Returns whether the next frame has to be waited for.
    fn fill(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(body) = &mut self.body else { return false };
        let added = match body.take_text() {
            Some(text) => {
                self.encoder.write_all(&text); // has the announced length
                Poll::Ready(Ok(()))
            }
            None => self.encoder.poll_add(Pin::new(&mut *body), cx, self.trailers),
        };
        if let Poll::Ready(Err(error)) = &added {
            self.failed = true;
            if let BodyError::Body(error) = error {
                body.log_failure(error);
            }
        }
        if self.failed || self.encoder.is_complete() {
            self.body = None; // ends the request before the client has received everything
        }
        added.is_pending()
    }

    /// Writes everything that was added to the encoder.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, encoder, send_rate, blocked, .. } = self;
        if self.body.is_none() && !self.failed && socket.ends.get() {
            socket.hold_back();
        }
        ready!(encoder.poll_write(|slices| {
            let written = ready!(Pin::new(&mut *socket).poll_write_vectored(cx, slices))?;
            send_rate.add(written, socket.connection.worker.deadlines.now());
            if *blocked {
                arm_write_timeout(socket);
            }
            Poll::Ready(Ok(written))
        }))?;
        Pin::new(socket).poll_flush(cx)
    }
}

/// Gives the client the write timeout for the next bytes.
fn arm_write_timeout(socket: &Socket) {
    socket.set_timeout(socket.connection.worker.client().write);
}
