//! Where frames begin in a stream of bytes (RFC 9113 §4.1). Nothing is copied but the nine bytes of a frame's head,
//! and the first of its payload where they say what the frame is.

/// The bytes of a frame's head.
const HEAD: usize = 9;
/// The most of a payload that is looked at: the last stream and the error of GOAWAY.
const PEEK: usize = 8;
/// The client's preface comes before its frames.
pub(super) const PREFACE: u32 = 24;

/// Types of frames (RFC 9113 §6).
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
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
    pub(in super::super) const END_HEADERS: u8 = 4;
    pub(in super::super) const PADDED: u8 = 8;
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    flags: u8,
    pub(super) stream: u32,
    /// Bytes of payload.
    pub(super) length: u32,
    peek: [u8; PEEK],
}

/// Finds the frames in bytes that come in any pieces.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes that are of no interest before the next head.
    skip: u32,
    /// What there is of a head.
    head: [u8; HEAD + PEEK],
    had: usize,
}

impl Frame {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of data in a DATA frame: what is left of it without padding (RFC 9113 §6.1).
    pub(super) fn data(&self) -> u32 {
        let padding = if self.has(flag::PADDED) { u32::from(self.peek[0]) + 1 } else { 0 };
        self.length.saturating_sub(padding)
    }

    /// The error of RST_STREAM, or of GOAWAY.
    pub(super) fn error(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        self.peek[at..at + 4].iter().fold(0, |code, byte| code << 8 | u32::from(*byte))
    }
}

impl Frames {
    /// Frames behind so many other bytes.
    pub(super) fn after(skip: u32) -> Self {
        Self { skip, head: [0; HEAD + PEEK], had: 0 }
    }

    /// Whether the next byte is the first of a frame.
    pub(super) fn at_boundary(&self) -> bool {
        self.skip == 0 && self.had == 0
    }

    /// Whether a frame that is not DATA has begun and not ended.
    pub(super) fn in_other_than_data(&self) -> bool {
        match self.had {
            0 => self.skip > 0 && self.head[3] != kind::DATA,
            _ => self.had < 4 || self.head[3] != kind::DATA,
        }
    }

    /// The next frame whose head, and what is looked at behind it, has come. Takes what it has seen from `bytes`.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        let skipped = bytes.len().min(self.skip as usize);
        *bytes = &bytes[skipped..];
        self.skip -= skipped as u32; // not more than it was
        loop {
            let wanted = self.wanted();
            if self.had == wanted {
                break;
            }
            if bytes.is_empty() {
                return None;
            }
            let taken = bytes.len().min(wanted - self.had);
            self.head[self.had..self.had + taken].copy_from_slice(&bytes[..taken]);
            self.had += taken;
            *bytes = &bytes[taken..];
        }
        let looked_at = self.had - HEAD;
        self.had = 0;
        let frame = Frame {
            kind: self.head[3],
            flags: self.head[4],
            stream: u32::from_be_bytes([self.head[5] & 0x7f, self.head[6], self.head[7], self.head[8]]),
            length: self.length(),
            peek: std::array::from_fn(|at| if at < looked_at { self.head[HEAD + at] } else { 0 }),
        };
        self.skip = frame.length - looked_at as u32; // which is not more than the length
        Some(frame)
    }

    fn length(&self) -> u32 {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]])
    }

    /// How much of the frame has to be there before it is told of.
    fn wanted(&self) -> usize {
        if self.had < HEAD {
            return HEAD;
        }
        let looked_at = match self.head[3] {
            kind::DATA if self.head[4] & flag::PADDED != 0 => 1,
            kind::RST_STREAM => 4,
            kind::GOAWAY => PEEK,
            _ => 0,
        };
        HEAD + looked_at.min(self.length() as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wire(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&head, payload].concat()
    }

    fn all(frames: &mut Frames, mut bytes: &[u8]) -> Vec<(u8, u32, u32)> {
        std::iter::from_fn(|| frames.next(&mut bytes)).map(|f| (f.kind, f.stream, f.length)).collect()
    }

    proptest! {
        /// However the bytes are cut, the same frames are found in them.
        #[test]
        fn frames_in_any_pieces(
            frames in prop::collection::vec((0_u8..12, any::<u8>(), 0_u32..9, 0_usize..40), 0..12),
            cuts in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let mut bytes = vec![b'p'; PREFACE as usize];
            for (kind, flags, stream, length) in &frames {
                bytes.extend(wire(*kind, *flags, *stream, &vec![7; *length]));
            }
            let mut found = Vec::new();
            let (mut parser, mut rest) = (Frames::after(PREFACE), &bytes[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at((*cut).min(rest.len()));
                found.extend(all(&mut parser, piece));
                rest = behind;
            }
            let wanted: Vec<_> = frames.iter().map(|(kind, _, stream, length)| (*kind, *stream, *length as u32)).collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(parser.at_boundary());
        }

        /// No bytes make it panic.
        #[test]
        fn noise_is_read(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            all(&mut Frames::after(0), &noise);
        }
    }

    #[test]
    fn what_a_frame_says() {
        let mut frames = Frames::after(0);
        let mut one = |bytes: Vec<u8>| {
            let mut bytes = &bytes[..];
            let frame = frames.next(&mut bytes).unwrap();
            assert_eq!(frames.next(&mut bytes), None);
            frame
        };
        assert_eq!(one(wire(kind::RST_STREAM, 0, 1, &7_u32.to_be_bytes())).error(), 7);
        assert_eq!(one(wire(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 11])).error(), 11);
        assert_eq!(one(wire(kind::DATA, flag::PADDED, 1, &[3, 0, 0, 0])).data(), 0);
        assert_eq!(one(wire(kind::DATA, flag::PADDED, 1, &[1, b'x', 0])).data(), 1);
        assert_eq!(one(wire(kind::DATA, 0, 1, b"xx")).data(), 2);
        assert_eq!(one(wire(kind::DATA, flag::PADDED, 1, b"")).data(), 0);
    }
}
