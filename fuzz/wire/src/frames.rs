//! Frames of HTTP/2 as a client writes and reads them, apart from the codec under test.

use sluicegate_wire::h2::HeadLimits;
use sluicegate_wire::h2::frame::{FRAME_HEADER, FrameHeader, flag};

/// The most that heads may have.
pub const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, fields: 64, target: 8 << 10 };

/// Whether a frame has a flag.
pub fn has(header: &FrameHeader, flag: u8) -> bool {
    header.flags & flag != 0
}

/// The number of 32 bits at the front of a payload; zero if it is shorter.
pub fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The payload without its padding; nothing if the padding is malformed.
pub fn unpadded<'p>(header: &FrameHeader, payload: &'p [u8]) -> &'p [u8] {
    if !has(header, flag::PADDED) {
        return payload;
    }
    let Some((padding, rest)) = payload.split_first() else { return &[] };
    rest.get(..rest.len().saturating_sub(usize::from(*padding))).unwrap_or_default()
}

/// Appends a frame.
pub fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a header field that is put into no table.
pub fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        length(block, text.len());
        block.extend_from_slice(text);
    }
}

/// The length of a string that is not Huffman coded (RFC 7541 §5.1).
fn length(block: &mut Vec<u8>, number: usize) {
    let Some(mut left) = number.checked_sub(0x7f) else { return block.push(number as u8) };
    block.push(0x7f);
    while left > 0x7f {
        block.push(0x80 | left as u8);
        left >>= 7;
    }
    block.push(left as u8);
}

/// The first frame, if it is whole: its header, its payload, and what follows.
pub fn split(bytes: &[u8]) -> Option<(FrameHeader, &[u8], &[u8])> {
    let header = FrameHeader::read(bytes)?;
    let (payload, rest) = bytes[FRAME_HEADER..].split_at_checked(header.length)?;
    Some((header, payload, rest))
}
