//! Bytes of an HTTP/2 client, as they come off a socket.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_wire::RequestHead;
use sluicegate_wire::h2::frame::{FRAME_HEADER, MAX_FRAME_SIZE, PREFACE, flag, kind};
use sluicegate_wire::h2::{ConnectionError, Event, Session};

use super::frames::{self, LIMITS};
use super::h2_client::Client;

/// What a session made of the bytes: its events, what it wrote, and its error.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    events: Vec<String>,
    written: Vec<u8>,
    error: Option<ConnectionError>,
}

/// Has a session receive these pieces, as the gateway takes them off a socket.
fn receive<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Outcome {
    let mut session = Session::new(LIMITS, Arc::default(), Duration::ZERO);
    let (mut events, mut rest, mut error) = (Vec::new(), Vec::new(), None);
    'pieces: for piece in pieces {
        rest.extend_from_slice(piece);
        let mut bytes = &rest[..];
        loop {
            match session.next_event(&mut bytes) {
                Ok(None) => break,
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Err(found) => {
                    error = Some(found);
                    break 'pieces;
                }
            }
        }
        assert!(rest.ends_with(bytes), "what is left is the end");
        rest = bytes.to_vec();
        assert!(rest.len() < FRAME_HEADER + MAX_FRAME_SIZE, "what is left is less than a frame");
    }
    Outcome { events, written: session.output().to_vec(), error }
}

/// What a client sends, its preface first: it is the same in one piece, byte by byte and in pieces of other lengths.
pub fn h2_frames(data: &[u8]) {
    let data = &data[..data.len().min(64 << 10)];
    let whole = receive(std::iter::once(data));
    for length in [1, 7, 10] {
        assert_eq!(receive(data.chunks(length)), whole, "in pieces of {length}");
    }
    // It answers with whole frames that a client may get.
    let mut client = Client::default();
    let mut sent = data.strip_prefix(PREFACE).unwrap_or_default();
    while let Some((header, payload, rest)) = frames::split(sent) {
        client.sends(&header, payload);
        sent = rest;
    }
    client.hears(&whole.written);
}

/// A head that was accepted is, written once more, accepted as the same.
pub fn written_again(head: &RequestHead, length: Option<u64>) {
    let mut block = Vec::new();
    frames::literal(&mut block, b":method", head.method.as_str().as_bytes());
    let target = &head.target;
    if head.method == http::Method::CONNECT {
        frames::literal(&mut block, b":authority", target.authority().unwrap_or_default().as_bytes());
    } else {
        assert!(target.path_and_query().starts_with('/') || target.path_and_query() == "*", "{target}");
        frames::literal(&mut block, b":scheme", b"https");
        frames::literal(&mut block, b":path", target.path_and_query().as_bytes());
    }
    for (name, value) in head.headers.iter() {
        assert!(!name.is_empty() && name.iter().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()));
        assert!(value.trim_ascii() == value && value.iter().all(|b| !matches!(b, b'\r' | b'\n' | 0)));
        frames::literal(&mut block, name, value);
    }
    let mut bytes = PREFACE.to_vec();
    frames::write(&mut bytes, kind::SETTINGS, 0, 0, &[]);
    let pieces = block.chunks(MAX_FRAME_SIZE);
    let last = pieces.len() - 1;
    for (at, piece) in pieces.enumerate() {
        let kind = if at == 0 { kind::HEADERS } else { kind::CONTINUATION };
        frames::write(&mut bytes, kind, if at == last { flag::END_HEADERS } else { 0 }, 1, piece);
    }
    let mut session = Session::new(LIMITS, Arc::default(), Duration::ZERO);
    let again = session.next_event(&mut &bytes[..]);
    let Ok(Some(Event::Request { head: Ok((told, told_length)), ended: false, .. })) = again else {
        panic!("{head:?} is {again:?}");
    };
    assert_eq!((&told.method, &told.target, told_length), (&head.method, &head.target, length));
    assert!(told.headers.iter().eq(head.headers.iter()), "{:?} {:?}", told.headers, head.headers);
}
