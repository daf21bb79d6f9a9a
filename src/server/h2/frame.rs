//! Frames (RFC 9113 §4.1, §6): their heads are read, and whole frames written.

use super::fault::Fault;

/// The bytes of a frame's head.
pub(super) const HEAD: usize = 9;
/// The most that a frame may carry, ours and the client's, unless the client allows more, which is not used.
pub(super) const MOST: usize = 16 << 10;
/// What a client begins with (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 §6).
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH_PROMISE: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
    /// RFC 9218 §7.1.
    pub(in super::super) const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames (RFC 9113 §6).
pub(super) mod flag {
    pub(in super::super) const END_STREAM: u8 = 1;
    /// Of SETTINGS and PING.
    pub(in super::super) const ACK: u8 = 1;
    pub(in super::super) const END_HEADERS: u8 = 4;
    pub(in super::super) const PADDED: u8 = 8;
    pub(in super::super) const PRIORITY: u8 = 32;
}

/// Settings (RFC 9113 §6.5.2).
pub(super) mod setting {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const ENABLE_PUSH: u16 = 2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a stream or a connection ends (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason(pub(super) u32);

impl Reason {
    pub(super) const NO_ERROR: Self = Self(0);
    pub(super) const PROTOCOL_ERROR: Self = Self(1);
    pub(super) const INTERNAL_ERROR: Self = Self(2);
    pub(super) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(super) const STREAM_CLOSED: Self = Self(5);
    pub(super) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(super) const REFUSED_STREAM: Self = Self(7);
    pub(super) const CANCEL: Self = Self(8);
    pub(super) const COMPRESSION_ERROR: Self = Self(9);
    pub(super) const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of payload.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    /// The head that these bytes begin with, if they have one whole.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes.first_chunk::<HEAD>()?;
        Some(Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([d & 0x7f, e, f, g]),
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without its padding (RFC 9113 §6.1).
    pub(super) fn unpadded<'p>(&self, payload: &'p [u8]) -> Result<&'p [u8], Fault> {
        if !self.has(flag::PADDED) {
            return Ok(payload);
        }
        let (padding, rest) = payload.split_first().ok_or(Fault::Connection(Reason::FRAME_SIZE_ERROR))?;
        let length = rest.len().checked_sub(usize::from(*padding));
        length.map(|length| &rest[..length]).ok_or(Fault::Connection(Reason::PROTOCOL_ERROR))
    }
}

/// A number of 32 bits at the beginning of a payload that is long enough; zero if it is not.
pub(super) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The bytes of the head of a frame.
fn bytes(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD] {
    let [_, a, b, c] = (length as u32).to_be_bytes(); // no frame is that long
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

/// Writes the head of a frame.
pub(super) fn head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&bytes(length, kind, flags, stream));
}

/// Writes SETTINGS.
pub(super) fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    head(out, 6 * settings.len(), kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes that SETTINGS are agreed to.
pub(super) fn settings_ack(out: &mut Vec<u8>) {
    head(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// Writes PING, or the answer to one.
pub(super) fn ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    head(out, 8, kind::PING, flags, 0);
    out.extend_from_slice(&payload);
}

/// Writes WINDOW_UPDATE.
pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, more: u32) {
    head(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&more.to_be_bytes());
}

/// Writes RST_STREAM.
pub(super) fn reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    head(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Writes GOAWAY.
pub(super) fn goaway(out: &mut Vec<u8>, last: u32, reason: Reason) {
    head(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Makes frames of the block that stands in `out` from `at` on, behind room for the head of one: HEADERS, and
/// CONTINUATION for what is more than `most` bytes.
pub(super) fn headers(out: &mut Vec<u8>, at: usize, flags: u8, stream: u32, most: usize) {
    let length = out.len() - at - HEAD;
    if length <= most {
        let head = bytes(length, kind::HEADERS, flags | flag::END_HEADERS, stream);
        out[at..at + HEAD].copy_from_slice(&head);
        return;
    }
    let block = out.split_off(at + HEAD);
    out.truncate(at);
    let pieces = block.chunks(most);
    let last = pieces.len() - 1;
    for (index, piece) in pieces.enumerate() {
        let (kind, first) = if index == 0 { (kind::HEADERS, flags) } else { (kind::CONTINUATION, 0) };
        let end = if index == last { flag::END_HEADERS } else { 0 };
        head(out, piece.len(), kind, first | end, stream);
        out.extend_from_slice(piece);
    }
}
