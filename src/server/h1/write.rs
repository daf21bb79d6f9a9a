//! An answer on its way to the client: head and small body in one write, each frame of a larger one as it comes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{StatusCode, header};
use http_body::Body as _;

use super::head::Asked;
use super::look::Stage;
use super::socket::Socket;
use crate::fields::{Fields, Looks, write_line};
use crate::message::Response;
use crate::number::write_decimal;
use crate::outbox::{Coding, Mismatch, Outbox};
use crate::server::pace::SendPace;
use crate::upstream::Body;

/// What a head may have behind its headers, and a small body behind that.
const ROOM: usize = 1 << 10;
/// What is not written as it stands, or looked for.
static FRAMED: Looks = Looks::of(&[b"connection", b"transfer-encoding", b"content-length", b"date"]);

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
    outbox: Outbox,
    /// `None` once it has ended, and the exchange with it.
    body: Option<Body>,
    trailers: bool,
    failed: bool,
    blocked: bool,
    pace: SendPace,
}

/// Sends an answer.
pub(super) async fn send(socket: &Socket, asked: Asked, response: Response) -> Sent {
    let Response { status, headers, body } = response;
    socket.answers();
    let bodiless = asked.head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let coding = match body.size_hint().exact() {
        _ if bodiless => Coding::Ended,
        Some(length) => Coding::Length(length),
        None if asked.old => Coding::UntilClose,
        None => Coding::Chunked,
    };
    let ends = socket.connection.deadline.take_closing()
        || socket.ends.get()
        // Told now, its client does not send another request at the moment at which this side closes.
        || socket.connection.listener.ending.get()
        || !asked.keeps
        || coding == Coding::UntilClose
        || !socket.can_drain()
        || says_close(&headers);
    socket.ends.set(ends);
    let buffers = &socket.connection.worker.buffers;
    let mut out = buffers.take_out();
    let length = body.size_hint().exact().filter(|length| !bodiless || (asked.head && *length > 0));
    write_head(&mut out, status, &headers, coding, length, (ends, asked.old), &buffers.date());
    let mut writer = Writer {
        socket,
        outbox: Outbox::new(out, coding),
        body: (coding != Coding::Ended).then_some(body), // else it is dropped, which ends the exchange
        trailers: asked.trailers,
        failed: false,
        blocked: false,
        pace: SendPace::default(),
    };
    let sent = poll_fn(|context| writer.poll(context)).await;
    buffers.give_back(writer.outbox.take_buffer());
    match sent {
        Ok(()) if writer.failed => Sent::Broken { reset: coding == Coding::UntilClose },
        Ok(()) if ends => Sent::Last,
        Ok(()) => Sent::Whole,
        // A client that is only slow would take the rest for whole.
        Err(_) => Sent::Broken { reset: coding == Coding::UntilClose },
    }
}

/// Sends a head alone, behind which another protocol begins.
pub(super) async fn send_switch(socket: &Socket, status: StatusCode, headers: &Fields) -> io::Result<()> {
    socket.answers();
    let mut out = Vec::with_capacity(512);
    status_line(&mut out, status);
    headers.write_some(&mut out, &FRAMED, |name| !matches!(name, b"content-length" | b"transfer-encoding"));
    out.extend_from_slice(b"\r\n");
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

/// Writes an interim answer.
pub(super) fn interim(out: &mut Vec<u8>, status: StatusCode, headers: &Fields) {
    status_line(out, status);
    headers.write(out);
    out.extend_from_slice(b"\r\n");
}

fn says_close(headers: &Fields) -> bool {
    headers.get(header::CONNECTION).is_some_and(|value| value.eq_ignore_ascii_case(b"close"))
}

fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The head. What frames the message is ours to say, whatever the headers hold.
fn write_head(
    out: &mut Vec<u8>,
    status: StatusCode,
    headers: &Fields,
    coding: Coding,
    length: Option<u64>,
    (ends, old): (bool, bool),
    date: &[u8],
) {
    status_line(out, status);
    let mut dated = false;
    let kept_length = coding == Coding::Ended && status != StatusCode::NO_CONTENT;
    let mut says_length = false;
    out.reserve(headers.written() + ROOM);
    headers.write_some(out, &FRAMED, |name| match name {
        b"connection" | b"transfer-encoding" => false,
        // Of an answer without its body: what it would be with it.
        b"content-length" => kept_length && !std::mem::replace(&mut says_length, true),
        b"date" => {
            dated = true;
            true
        }
        _ => true,
    });
    match (coding, length) {
        (Coding::Chunked, _) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (Coding::Length(_) | Coding::Ended, Some(length)) if !says_length => {
            out.extend_from_slice(b"content-length: ");
            write_decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        _ => {}
    }
    if !dated {
        write_line(out, b"date", date);
    }
    match (ends, old) {
        (true, _) => out.extend_from_slice(b"connection: close\r\n"),
        (false, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, false) => {}
    }
    out.extend_from_slice(b"\r\n");
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
                let gone = self.socket.poll_gone(context, Stage::Answering);
                return gone.map(|()| Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// Gathers what is there of the body. Whether more is to come that is not there yet.
    fn gather(&mut self, context: &mut Context<'_>) -> bool {
        while self.outbox.has_room() {
            let Some(body) = &mut self.body else { return false };
            if let Some(text) = body.take_text() {
                self.outbox.whole(&text); // its length is told
                self.body = None;
                return false;
            }
            let gathered = match Pin::new(body).poll_frame(context) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.outbox.data(data),
                    Err(frame) => self.outbox.end(frame.trailers_ref().filter(|_| self.trailers)),
                },
                Poll::Ready(Some(Err(_))) => Err(Mismatch),
                Poll::Ready(None) => self.outbox.end(None),
            };
            self.failed = gathered.is_err();
            if self.failed || self.outbox.has_all() {
                self.body = None; // the exchange ends before the client has it all
            }
        }
        false
    }

    /// Writes all that is gathered.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, outbox, pace, blocked, .. } = self;
        ready!(outbox.poll(|bytes| {
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
