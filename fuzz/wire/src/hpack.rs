//! HPACK header blocks.

use sluicegate_wire::h2::hpack::{DEFAULT_TABLE_SIZE, Decoder, Encoder};

use super::Input;

type Line = (Vec<u8>, Vec<u8>);

/// The most that the lines of one block may come to (RFC 7541 §4.1), and the largest line beyond it.
const MOST: usize = (4 << 20) + (64 << 10);
/// What a line counts beside its bytes.
const OVERHEAD: usize = 32;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<Line>> {
    let (mut lines, mut size) = (Vec::new(), 0);
    let read = decoder.decode(block, |name, value| {
        size += name.len() + value.len() + OVERHEAD;
        assert!(size <= MOST, "{size}");
        lines.push((name.to_vec(), value.to_vec()));
    });
    assert!(lines.len() <= block.len(), "a line is at least a byte");
    read.ok().map(|()| lines)
}

/// Header blocks of one connection: each is a length of two bytes and the block. A length whose high bit is set is the
/// table size that the other side allows our encoder.
///
/// - Lines of a block have a bounded size, and there is at most one per byte.
/// - Two decoders read the same, and a block that was read once can be read on its own if it refers to no other.
/// - Lines that were read and written by our encoder are read as the same lines, whatever the table size.
pub fn hpack(data: &[u8]) {
    let mut input = Input(data);
    let (mut one, mut two) = (Decoder::new(DEFAULT_TABLE_SIZE), Decoder::new(DEFAULT_TABLE_SIZE));
    let (mut encoder, mut reader) = (Encoder::default(), Decoder::new(DEFAULT_TABLE_SIZE));
    while let Some(length) = input.number() {
        if length & 0x8000 != 0 {
            encoder.resize(length & 0x7fff);
            continue;
        }
        let block = input.bytes(length);
        let lines = decode(&mut one, block);
        assert_eq!(lines, decode(&mut two, block));
        let Some(lines) = lines else { return };
        if let Some(alone) = decode(&mut Decoder::new(DEFAULT_TABLE_SIZE), block) {
            assert_eq!(alone, lines, "a line of its own is none of the table's");
        }
        if lines.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > 1 << 16 {
            continue; // it was read; writing it would only cost time
        }
        let mut written = Vec::new();
        encoder.begin(&mut written);
        for (name, value) in &lines {
            encoder.field(&mut written, name, value);
        }
        assert_eq!(decode(&mut reader, &written), Some(lines));
    }
}
