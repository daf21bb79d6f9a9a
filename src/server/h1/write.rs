//! An answer on its way to the client: head and small body in one write, each frame of a larger one as it comes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use http_body::Body as _;
use sluicegate_wire::Headers;
use sluicegate_wire::h1::write::{ResponseHead, says_close, switch_head};
use sluicegate_wire::h1::{BodyFraming, LengthMismatch, MessageEncoder, ResponseTerms};

use crate::client_connection::body_rate::SendRate;
use crate::client_connection::h1::Socket;
use crate::request::{Response, ResponseBody};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is whole, and the connection may live on.
    Whole,
    /// It is whole, and the connection ends behind it.
    Last,
    /// It broke off, or the client has gone.
    Broken {
        /// Nothing but a reset tells the client that.
        reset: bool,
    },
}

struct Writer<'a> {
    socket: &'a Socket,
    encoder: MessageEncoder,
    /// `None` once it has ended, and the exchange with it.
    body: Option<ResponseBody>,
    trailers: bool,
    failed: bool,
    blocked: bool,
    pace: SendRate,
}

/// Sends an answer.
pub(super) async fn send(socket: &Socket, terms: ResponseTerms, response: Response) -> Sent {
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
        // Told now, its client does not send another request at the moment at which this side closes.
        || socket.connection.listener.ending.get()
        || !terms.keep_alive
        || framing == BodyFraming::UntilClose
        || !socket.can_drain()
        || says_close(&headers);
    socket.ends.set(ends);
    let buffers = &socket.connection.worker.buffers;
    let mut out = buffers.take_out();
    let length = body.size_hint().exact().filter(|length| !bodiless || (terms.is_head && *length > 0));
    ResponseHead { status, headers: &headers, framing, length, closes: ends, date: &buffers.date() }
        .write(&mut out, terms);
    let mut writer = Writer {
        socket,
        encoder: MessageEncoder::new(out, framing),
        body: (framing != BodyFraming::Ended).then_some(body), // else it is dropped, which ends the exchange
        trailers: terms.trailers,
        failed: false,
        blocked: false,
        pace: SendRate::default(),
    };
    let sent = poll_fn(|context| writer.poll(context)).await;
    buffers.give_back(writer.encoder.take_buffer());
    match sent {
        Ok(()) if writer.failed => {
            socket.connection.log_close("the response could not be completed");
            Sent::Broken { reset: framing == BodyFraming::UntilClose }
        }
        Ok(()) if ends => Sent::Last,
        Ok(()) => Sent::Whole,
        // A client that is only slow would take the rest for whole.
        Err(error) => {
            socket.connection.log_close(format_args!("the response could not be sent: {error}"));
            Sent::Broken { reset: framing == BodyFraming::UntilClose }
        }
    }
}

/// Sends a head alone, behind which another protocol begins.
pub(super) async fn send_switch(socket: &Socket, status: StatusCode, headers: &Headers) -> io::Result<()> {
    socket.begin_response();
    let mut out = Vec::with_capacity(512);
    switch_head(&mut out, status, headers);
    let mut left = &out[..];
    let mut write = |context: &mut Context<'_>| -> Poll<io::Result<()>> {
        while !left.is_empty() {
            let written = ready!(socket.poll_write(context, left))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            left = &left[written..];
        }
        socket.poll_flush(context)
    };
    give_time(socket);
    let deadline = &socket.connection.deadline;
    poll_fn(|context| {
        let written = write(context);
        if written.is_pending() {
            deadline.watch(context);
            if deadline.socket_passed() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    })
    .await
}

impl Writer<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let deadline = &self.socket.connection.deadline;
        loop {
            let waits = self.gather(context);
            match self.poll_out(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    deadline.watch(context);
                    let worker = &self.socket.connection.worker;
                    let is_slow = self.pace.waits(worker.deadlines.now(), worker.client().min_send_rate);
                    if is_slow || (self.blocked && deadline.socket_passed()) {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    if !self.blocked {
                        self.blocked = true;
                        give_time(self.socket);
                    }
                    if let Some(body) = &mut self.body {
                        body.poll_upload(context);
                    }
                    let _ = self.socket.poll_drain(context); // it may be what the client has to get rid of first
                    return Poll::Pending;
                }
            }
            if std::mem::take(&mut self.blocked) {
                deadline.set_socket(None);
            }
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
            if waits {
                let _ = self.socket.poll_drain(context);
                let gone = self.socket.poll_gone(context);
                return gone.map(|()| Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// Gathers what is there of the body. Whether more is to come that is not there yet.
    fn gather(&mut self, context: &mut Context<'_>) -> bool {
        while self.encoder.has_room() {
            let Some(body) = &mut self.body else { return false };
            if let Some(text) = body.take_text() {
                self.encoder.write_all(&text); // its length is told
                self.body = None;
                return false;
            }
            let gathered = match Pin::new(&mut *body).poll_frame(context) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.encoder.write_data(data),
                    Err(frame) => self.encoder.finish(frame.trailers_ref().filter(|_| self.trailers)),
                },
                Poll::Ready(Some(Err(error))) => {
                    body.log_failure(&error);
                    Err(LengthMismatch)
                }
                Poll::Ready(None) => self.encoder.finish(None),
            };
            self.failed = gathered.is_err();
            if self.failed || self.encoder.is_complete() {
                self.body = None; // the exchange ends before the client has it all
            }
        }
        false
    }

    /// Writes all that is gathered.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, encoder, pace, blocked, .. } = self;
        ready!(encoder.poll_write(|bytes| {
            let written = ready!(socket.poll_write(context, bytes))?;
            pace.took(written, socket.connection.worker.deadlines.now());
            if *blocked {
                give_time(socket);
            }
            Poll::Ready(Ok(written))
        }))?;
        socket.poll_flush(context)
    }
}

/// The client has its time again to take some of the answer.
fn give_time(socket: &Socket) {
    let connection = &socket.connection;
    connection.deadline.set_socket(Some(connection.worker.deadlines.after(connection.worker.client().write)));
}
