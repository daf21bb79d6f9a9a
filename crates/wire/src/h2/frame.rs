//! The layout of frames (RFC 9113 §4.1, §6): frame headers are read, whole frames are written.

use super::error::H2Error;
use super::reason::Reason;

/// The bytes of a frame header.
pub const FRAME_HEADER: usize = 9;
/// The largest payload in bytes, in both directions: SETTINGS_MAX_FRAME_SIZE of the server, and the default of clients. Larger
/// values of clients are not used.
pub const MAX_FRAME_SIZE: usize = 16 << 10;
/// The connection preface of clients (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 §6).
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    /// RFC 9218 §7.1.
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames (RFC 9113 §6).
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub mod flag {
    pub const END_STREAM: u8 = 1;
    /// Of SETTINGS and PING.
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

/// Settings (RFC 9113 §6.5.2).
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The length of the payload in bytes.
    pub length: usize,
    /// The type, one of [`kind`].
    pub kind: u8,
    /// The flags, of [`flag`].
    pub flags: u8,
    /// The stream identifier; zero for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the frame header that these bytes begin with; `None` if it is not complete.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes.first_chunk::<FRAME_HEADER>()?;
        Some(Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([d & 0x7f, e, f, g]),
        })
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without its padding (RFC 9113 §6.1).
    pub(crate) fn unpadded<'p>(&self, payload: &'p [u8]) -> Result<&'p [u8], H2Error> {
        if !self.has(flag::PADDED) {
            return Ok(payload);
        }
        let (padding, rest) = payload.split_first().ok_or(H2Error::SIZE)?;
        let length = rest.len().checked_sub(usize::from(*padding));
        length.map(|length| &rest[..length]).ok_or(H2Error::PROTOCOL)
    }
}

/// The 32-bit number that a payload begins with; zero if it is shorter.
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The bytes of a frame header.
fn bytes(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; FRAME_HEADER] {
    let [_, a, b, c] = (length as u32).to_be_bytes(); // frames are shorter than 2^24
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

/// Writes a frame header.
pub(crate) fn head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&bytes(length, kind, flags, stream));
}

/// Writes SETTINGS.
pub(crate) fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    head(out, 6 * settings.len(), kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes the acknowledgement of SETTINGS.
pub(crate) fn settings_ack(out: &mut Vec<u8>) {
    head(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// Writes PING, or its acknowledgement.
pub(crate) fn ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    head(out, 8, kind::PING, flags, 0);
    out.extend_from_slice(&payload);
}

/// Writes WINDOW_UPDATE.
pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, more: u32) {
    head(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&more.to_be_bytes());
}

/// Writes RST_STREAM.
pub(crate) fn reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    head(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Writes GOAWAY.
pub(crate) fn goaway(out: &mut Vec<u8>, last: u32, reason: Reason) {
    head(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Makes frames of the field block that begins in `out` at `at`, after room for one frame header: HEADERS, and
/// CONTINUATION for each further `most` bytes.
pub(crate) fn headers(out: &mut Vec<u8>, at: usize, flags: u8, stream: u32, most: usize) {
    let length = out.len() - at - FRAME_HEADER;
    if length <= most {
        let head = bytes(length, kind::HEADERS, flags | flag::END_HEADERS, stream);
        out[at..at + FRAME_HEADER].copy_from_slice(&head);
        return;
    }
    let block = out.split_off(at + FRAME_HEADER);
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
