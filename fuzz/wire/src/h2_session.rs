//! A server session of HTTP/2 between a client that may send anything and an application that answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use sluicegate_wire::Headers;
use sluicegate_wire::h2::frame::{FrameHeader, MAX_FRAME_SIZE, PREFACE, flag, kind};
use sluicegate_wire::h2::{ConnectionError, Event, Reason, RequestError, ResponseHead, Session, StreamKey};

use super::frames::LIMITS;
use super::h2_client::{Client, Lines};
use super::h2_frames::written_again;
use super::{Input, frames};

/// What may lie unsent: what the session allows before it is full, and what one step adds to it.
const UNSENT: usize = 128 << 10;
const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

/// A request that the application serves.
struct Request {
    key: StreamKey,
    /// The session has said that it is nobody's any more.
    is_over: bool,
    answered: bool,
    sent: bool,
    /// The body is still read.
    reads: bool,
    read: usize,
    is_served: bool,
}

/// Both ends of a connection.
pub struct Run {
    session: Session,
    client: Client,
    requests: Vec<Request>,
    /// How much of what the session wrote the client has heard, beyond what was flushed.
    heard: usize,
    now: Duration,
    is_closed: bool,
}

impl Run {
    /// A connection after the client's preface and SETTINGS.
    pub fn new() -> Self {
        let mut run = Self {
            session: Session::new(LIMITS, Arc::default(), Duration::ZERO),
            client: Client::default(),
            requests: Vec::new(),
            heard: 0,
            now: Duration::ZERO,
            is_closed: false,
        };
        assert!(matches!(run.session.next_event(&mut &PREFACE[..]), Ok(None)));
        run.receive(kind::SETTINGS, 0, 0, &[]);
        run
    }

    /// The client hears what the session has written since the last time.
    fn hear(&mut self) {
        self.client.hears(&self.session.output()[self.heard..]);
        self.heard = self.session.unsent();
        assert!(self.heard <= UNSENT, "{} bytes lie unsent", self.heard);
    }

    fn flush(&mut self, length: usize) {
        let length = length.min(self.heard);
        self.session.advance(length);
        self.heard -= length;
    }

    /// The client sends a frame.
    fn receive(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        if self.session.is_full() {
            self.flush(usize::MAX); // a client that takes nothing is not read
        }
        let frame = FrameHeader { length: payload.len(), kind, flags, stream: stream & (u32::MAX >> 1) };
        self.session.set_time(self.now);
        // Within both windows that the session has given.
        let is_within = self.client.room >= payload.len() as i64
            && self
                .client
                .streams
                .get(&frame.stream)
                .is_none_or(|stream| stream.room >= payload.len() as i64);
        let is_beyond = self.client.room < payload.len() as i64;
        self.client.sends(&frame, payload);
        let mut bytes = Vec::new();
        frames::write(&mut bytes, kind, flags, stream, payload);
        let mut rest = &bytes[..];
        let received = self.session.next_event(&mut rest);
        assert!(rest.is_empty(), "a whole frame is used");
        if kind == kind::DATA && is_within {
            let error = ConnectionError::Protocol(Reason::FLOW_CONTROL_ERROR);
            assert_ne!(received.as_ref().err(), Some(&error));
        }
        if kind == kind::DATA && is_beyond {
            assert!(received.is_err(), "a client may not send beyond its window");
        }
        match received {
            Ok(None) => {}
            Ok(Some(Event::Reset(slot))) => self.end(slot),
            Ok(Some(Event::Request { key, head, ended, .. })) => {
                assert!(key.id == frame.stream && self.client.last == key.id);
                if let Ok((head, length)) = &head {
                    assert!(
                        head.headers.len() <= LIMITS.fields + 1 && !(ended && length.is_some_and(|l| l > 0))
                    );
                    written_again(head, *length);
                }
                assert!(!matches!(head, Err(RequestError::Malformed)), "the session resets it");
                let reads = head.is_ok() && !ended;
                let request = Request {
                    key,
                    is_over: false,
                    answered: false,
                    sent: false,
                    reads,
                    read: 0,
                    is_served: true,
                };
                self.requests.push(request);
            }
            Err(ConnectionError::Protocol(reason)) => self.close(reason),
            Err(ConnectionError::Flood(_)) => self.close(Reason::ENHANCE_YOUR_CALM),
        }
        if let Some((_, slots)) = self.session.take_abort() {
            slots.into_iter().for_each(|slot| self.end(slot));
        }
        self.hear();
    }

    /// The application gives up the request in a slot.
    fn end(&mut self, slot: usize) {
        for request in self.requests.iter_mut().filter(|request| request.key.slot == slot) {
            request.is_over = true;
        }
    }

    /// The connection ends with an error.
    fn close(&mut self, reason: Reason) {
        self.session.go_away(reason);
        self.hear();
        self.session.close();
        self.is_closed = true;
    }

    /// The answer of a request that the application has begun to write.
    fn answer(&mut self, at: usize, choice: u8) {
        let Self { session, client, requests, .. } = self;
        let Some(request) = requests.get_mut(at).filter(|request| !request.is_over && !request.answered)
        else {
            return;
        };
        let status = [200, 204, 304, 404, 500, 299][usize::from(choice & 7) % 6];
        let status = StatusCode::from_u16(status).expect("a status");
        let mut headers = Headers::new();
        for (bit, name, value) in [
            (0x08, "content-type", "text/plain".to_owned()),
            (0x10, "connection", "close".to_owned()),
            (0x20, "set-cookie", "a=b".to_owned()),
            (0x40, "date", "today".to_owned()),
            (0x40, "x-large", "x".repeat(9_000)),
            (0x40, "x-larger", "y".repeat(9_000)),
        ] {
            if choice & bit != 0 {
                headers.append(name, value);
            }
        }
        let ends = choice & 0x80 != 0;
        if !session.send_head(request.key, &ResponseHead { status, headers: &headers, date: DATE, ends }) {
            return;
        }
        (request.answered, request.sent) = (true, ends);
        let mut lines = vec![(b":status".to_vec(), status.as_str().as_bytes().to_vec())];
        lines.extend(
            headers.iter().filter(|(name, _)| *name != b"connection").map(|(n, v)| (n.to_vec(), v.to_vec())),
        );
        if choice & 0x40 == 0 {
            lines.push((b"date".to_vec(), DATE.to_vec()));
        }
        due(client, request.key).push_back(lines);
    }

    /// Sends data of an answer as far as there is room.
    fn send(&mut self, at: usize, mut length: usize, ends: bool) {
        let Self { session, client, requests, .. } = self;
        let Some(request) =
            requests.get_mut(at).filter(|request| !request.is_over && request.answered && !request.sent)
        else {
            return;
        };
        while let Some(room) = session.capacity(request.key)
            && (room > 0 || length == 0)
        {
            assert!(room <= MAX_FRAME_SIZE);
            let piece: Vec<u8> = (0..room.min(length)).map(|at| at as u8 ^ length as u8).collect();
            length -= piece.len();
            if let Some(stream) = client.streams.get_mut(&request.key.id) {
                stream.data_due.extend(&piece);
            }
            request.sent = ends && length == 0;
            session.send_data(request.key, &piece, request.sent);
            if length == 0 || session.yield_turn(request.key) {
                break;
            }
        }
    }

    /// Ends an answer with trailers.
    fn trail(&mut self, at: usize, has_any: bool) {
        let Self { session, client, requests, .. } = self;
        let Some(request) =
            requests.get_mut(at).filter(|request| !request.is_over && request.answered && !request.sent)
        else {
            return;
        };
        let mut trailers = http::HeaderMap::new();
        if has_any {
            trailers.insert("x-sum", http::HeaderValue::from_static("7"));
            trailers.insert("content-length", http::HeaderValue::from_static("7"));
        }
        let before = session.unsent();
        session.send_trailers(request.key, &trailers);
        request.sent = true;
        if session.unsent() > before && has_any {
            due(client, request.key).push_back(vec![(b"x-sum".to_vec(), b"7".to_vec())]);
        }
    }

    fn interim(&mut self, at: usize) {
        let Self { session, client, requests, .. } = self;
        let Some(request) = requests.get_mut(at).filter(|request| !request.is_over && !request.answered)
        else {
            return;
        };
        let headers: Headers = [("link", "</a>"), ("connection", "close")].into_iter().collect();
        let before = session.unsent();
        session.send_interim(request.key, StatusCode::EARLY_HINTS, &headers);
        if session.unsent() > before {
            let lines = [(":status", "103"), ("link", "</a>")];
            due(client, request.key).push_back(lines.map(|(n, v)| (n.into(), v.into())).to_vec());
        }
    }

    /// Reads the body of a request.
    fn read(&mut self, at: usize) {
        let in_head = self.session.has_partial_head();
        let Some(request) = self.requests.get_mut(at).filter(|request| request.reads && !request.is_over)
        else {
            return;
        };
        let polled = self.session.poll_body(request.key, &mut Context::from_waker(Waker::noop()));
        let stream = &self.client.streams[&request.key.id];
        match polled {
            Poll::Pending => assert!(in_head || (!stream.sent_end && stream.sent.len() == request.read)),
            Poll::Ready(Err(_)) => request.reads = false,
            Poll::Ready(Ok((frame, ended))) => {
                let data = frame.and_then(|frame| frame.into_data().ok()).unwrap_or_default();
                assert!(stream.sent[request.read..].starts_with(&data), "the body is what the client sent");
                request.read += data.len();
                assert!(!ended || (stream.sent_end && request.read == stream.sent.len()));
                request.reads = !ended;
            }
        }
    }

    fn leave(&mut self, at: usize, body: bool) {
        let Some(request) = self.requests.get_mut(at) else { return };
        if body && request.reads {
            request.reads = false;
            self.session.stop_reading(request.key);
        } else if !body && request.is_served {
            (request.is_served, request.is_over) = (false, true);
            self.session.stop_serving(request.key);
        }
    }

    /// Does what the next bytes of the input say; `None` at their end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let what = input.byte()?;
        let id = |id: u8| if id < 0xf0 { u32::from(id) } else { u32::from(id & 0xf) << 28 | 1 };
        let last = self.requests.len().saturating_sub(1);
        let request = |input: &mut Input<'_>| input.byte().map(|at| last.saturating_sub(usize::from(at)));
        match what & 0x1f {
            0 => {
                let (kind, flags, stream) = (input.byte()?, input.byte()?, id(input.byte()?));
                let length = usize::from(input.byte()?);
                self.receive(kind, flags, stream, input.bytes(length));
            }
            1..=3 => {
                let (stream, choice) = ((self.client.last + 1) | 1, input.byte()?);
                self.receive(kind::HEADERS, flags(choice), stream, &block(choice));
            }
            4..=6 => {
                let (stream, length, choice) = (id(input.byte()?), input.number()?, input.byte()?);
                let data: Vec<u8> =
                    (0..length % (MAX_FRAME_SIZE + 1)).map(|at| (at + length) as u8).collect();
                self.receive(kind::DATA, choice & flag::END_STREAM, stream, &data);
            }
            7 => {
                let (stream, length) = (id(input.byte()?), usize::from(input.byte()?));
                self.receive(
                    kind::HEADERS,
                    flag::END_HEADERS | flag::END_STREAM,
                    stream,
                    input.bytes(length),
                );
            }
            8 | 9 => {
                let (stream, more, shift) = (id(input.byte()?), input.number()?, input.byte()? % 17);
                self.receive(kind::WINDOW_UPDATE, 0, stream, &((more as u32) << shift).to_be_bytes());
            }
            10 => {
                let (setting, value, shift) = (input.byte()?, input.number()?, input.byte()? % 17);
                let payload = [&[0, setting][..], &((value as u32) << shift).to_be_bytes()].concat();
                self.receive(kind::SETTINGS, 0, 0, &payload);
            }
            11 => {
                let (stream, reason) = (id(input.byte()?), input.byte()?);
                self.receive(kind::RST_STREAM, 0, stream, &[0, 0, 0, reason]);
            }
            12 => {
                if let Some(asked) = self.client.asked.pop() {
                    self.receive(kind::PING, flag::ACK, 0, &asked);
                }
            }
            13 | 14 => self.answer(request(input)?, input.byte()?),
            15..=17 => {
                let (at, length, choice) = (request(input)?, input.number()?, input.byte()?);
                self.send(at, length, choice & 1 != 0);
            }
            18 => self.trail(request(input)?, what & 0x20 != 0),
            19 => self.interim(request(input)?),
            20..=22 => self.read(request(input)?),
            23 => self.leave(request(input)?, true),
            24 => self.leave(request(input)?, false),
            25 => self.session.wake_blocked(|_| ()),
            26 => self.flush(input.number()?),
            27 => self.flush(usize::MAX),
            28 => self.session.begin_shutdown(),
            29 => self.session.send_keepalive(),
            _ => self.now += Duration::from_millis(20 * u64::from(input.byte()?)),
        }
        if !self.is_closed {
            self.hear();
        }
        Some(())
    }
}

/// The header blocks that the application wrote on a stream and the client has not seen yet.
fn due(client: &mut Client, key: StreamKey) -> &mut VecDeque<Lines> {
    &mut client.streams.get_mut(&key.id).expect("a stream of the client").due
}

/// The flags of the head of a request.
fn flags(choice: u8) -> u8 {
    flag::END_HEADERS | if choice & 1 != 0 { flag::END_STREAM } else { 0 }
}

/// The header block of a request: its method, and what it says of its body.
fn block(choice: u8) -> Vec<u8> {
    let method = ["POST", "GET", "HEAD", "CONNECT"][usize::from(choice >> 1 & 3)];
    let mut lines = vec![(":method", method), (":authority", "a.test")];
    if method != "CONNECT" {
        lines.extend([(":scheme", "https"), (":path", "/a?b")]);
    }
    for (bit, name, value) in [
        (0x08, "content-length", "300"),
        (0x10, "expect", "100-continue"),
        (0x20, "te", "trailers"),
        (0x40, "X-Upper", "1"),
        (0x80, "cookie", "a=b"),
    ] {
        if choice & bit != 0 {
            lines.push((name, value));
        }
    }
    let mut block = Vec::new();
    for (name, value) in lines {
        frames::literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// What a client sends and what the application does, as the input says.
///
/// - The session sends no frame that RFC 9113 does not allow at that point: see [`Client`].
/// - What the application answers arrives as it was written, and what the client sends is read as it was sent.
/// - A client that keeps to the windows is not told that it did not, and one that does not keep to them is.
/// - What lies unsent, and what the client may send, is bounded.
pub fn h2_session(data: &[u8]) {
    let (mut run, mut input) = (Run::new(), Input(data));
    while !run.is_closed && run.step(&mut input).is_some() {}
    if !run.is_closed {
        run.session.close();
        run.hear();
    }
}
