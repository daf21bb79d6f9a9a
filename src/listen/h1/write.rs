//! An answer on its way to the client: head and small body in one write, each frame of a larger one as it comes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;

use super::head::Asked;
use super::look::Stage;
use super::socket::Socket;
use crate::fields::{Fields, Looks, write_line};
use crate::forward::Body;
use crate::framing::write_size;
use crate::listen::pace::SendPace;
use crate::message::Response;
use crate::number::write_decimal;
use crate::trailers::may_come_behind;

/// What a head may have behind its headers, and a small body behind that.
const ROOM: usize = 1 << 10;
/// What is gathered before it is written; a larger frame is written from where it is.
const FLAT: usize = 16 << 10;
/// What is not written as it stands, or looked for.
static FRAMED: Looks = Looks::of(&[b"connection", b"transfer-encoding", b"content-length", b"date"]);

/// How the body of an answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// There is none.
    None,
    /// This many bytes are still to be sent.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Until the connection closes.
    UntilClose,
}

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
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// A frame that is too large to be gathered, behind `out`.
    frame: Bytes,
    /// `None` once it has ended, and the exchange with it.
    body: Option<Body>,
    coding: Coding,
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
        _ if bodiless => Coding::None,
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
        out,
        written: 0,
        frame: Bytes::new(),
        body: (coding != Coding::None).then_some(body), // else it is dropped, which ends the exchange
        coding,
        trailers: asked.trailers,
        failed: false,
        blocked: false,
        pace: SendPace::default(),
    };
    let sent = poll_fn(|context| writer.poll(context)).await;
    buffers.give_back(std::mem::take(&mut writer.out));
    match sent {
        Ok(()) if writer.failed => Sent::Broken { reset: coding == Coding::UntilClose },
        Ok(()) if ends => Sent::Last,
        Ok(()) => Sent::Whole,
        Err(_) => Sent::Broken { reset: false },
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
    poll_fn(|context| {
        while !left.is_empty() {
            let written = ready!(socket.poll_write(context, left))?;
            left = &left[written..];
        }
        socket.poll_flush(context)
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
    let kept_length = coding == Coding::None && status != StatusCode::NO_CONTENT;
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
        (Coding::Length(_) | Coding::None, Some(length)) if !says_length => {
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
                        self.give_time();
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

    fn give_time(&self) {
        let connection = &self.socket.connection;
        connection
            .deadline
            .set_socket(Some(connection.worker.deadlines.after(connection.worker.client().write)));
    }

    /// Gathers what is there of the body. Whether more is to come that is not there yet.
    fn gather(&mut self, context: &mut Context<'_>) -> bool {
        while self.frame.is_empty() && self.out.len() - self.written < FLAT {
            let Some(body) = &mut self.body else { return false };
            if let Some(text) = body.take_text() {
                self.out.extend_from_slice(&text); // its length is told
                self.body = None;
                return false;
            }
            let frame = match Pin::new(body).poll_frame(context) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(_))) => {
                    self.fail();
                    return false;
                }
                Poll::Ready(None) => {
                    self.end(None);
                    return false;
                }
            };
            match frame.into_data() {
                Ok(data) => self.data(data),
                Err(frame) => self.end(frame.into_trailers().ok()),
            }
        }
        false
    }

    fn data(&mut self, data: Bytes) {
        if data.is_empty() {
            return; // an empty chunk would be the last
        }
        match &mut self.coding {
            Coding::Length(left) => match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return self.fail(),
            },
            Coding::Chunked => write_size(&mut self.out, data.len()),
            Coding::UntilClose | Coding::None => {}
        }
        if data.len() <= FLAT {
            self.out.extend_from_slice(&data);
            self.end_chunk();
        } else {
            self.frame = data;
        }
        if self.coding == Coding::Length(0) {
            self.body = None; // nothing more may come, and the exchange ends before the client has it all
        }
    }

    fn end_chunk(&mut self) {
        if self.coding == Coding::Chunked {
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// The body has ended.
    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.body = None;
        match self.coding {
            Coding::Length(1..) => self.failed = true, // a shorter answer would look whole to nobody
            Coding::Chunked => {
                self.out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.iter().flatten().filter(|_| self.trailers) {
                    if may_come_behind(name) {
                        write_line(&mut self.out, name.as_ref(), value.as_bytes());
                    }
                }
                self.out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
    }

    /// The body broke off: the client sees that, instead of a shorter answer that looks whole.
    fn fail(&mut self) {
        self.body = None;
        self.failed = true;
    }

    /// Writes all that is gathered.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let written = ready!(self.socket.poll_write(context, &self.out[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.progress(written);
        }
        self.out.clear();
        self.written = 0;
        while !self.frame.is_empty() {
            let written = ready!(self.socket.poll_write(context, &self.frame))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.frame.advance(written);
            self.progress(written);
            if self.frame.is_empty() {
                self.end_chunk();
            }
        }
        self.socket.poll_flush(context)
    }

    fn progress(&mut self, written: usize) {
        self.pace.took(written, self.socket.connection.worker.deadlines.now());
        if self.blocked {
            self.give_time();
        }
    }
}
