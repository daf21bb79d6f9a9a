//! Frames of WebSocket (RFC 6455 §5.2), as the light upstream sends them back.

/// What is known of the frame that is being received on a connection.
#[derive(Default)]
pub(crate) struct Frames {
    /// What was read of a header that has not ended.
    header: Vec<u8>,
    /// The bytes of the payload that are to come.
    left: usize,
    /// The mask, of which the first byte is for the next byte of the payload.
    mask: [u8; 4],
}

impl Frames {
    /// Takes frames of a client, or parts of them, and appends the same without their masks, as a server sends them.
    pub(crate) fn echo(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left == 0 {
                self.header.push(*first);
                bytes = rest;
                self.header_ended(out);
                continue;
            }
            let (payload, rest) = bytes.split_at(self.left.min(bytes.len()));
            let from = out.len();
            out.extend_from_slice(payload);
            self.unmask(&mut out[from..]);
            self.left -= payload.len();
            bytes = rest;
        }
    }

    /// Notes what the header says and appends it without the mask, if it has come to its end.
    fn header_ended(&mut self, out: &mut Vec<u8>) {
        let Some(short) = self.header.get(1).map(|byte| byte & 0x7f) else { return };
        let longer = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(mask) = self.header.get(2 + longer..6 + longer) else { return };
        self.mask.copy_from_slice(mask);
        let length = &self.header[2..2 + longer];
        self.left = match longer {
            0 => usize::from(short),
            _ => length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
        };
        out.extend_from_slice(&[self.header[0], short]);
        out.extend_from_slice(length);
        self.header.clear();
    }

    /// Four bytes at a time, for the compiler to make a vector of them: the upstream shares its core with the load.
    fn unmask(&mut self, payload: &mut [u8]) {
        let mask = u32::from_ne_bytes(self.mask);
        let (fours, last) = payload.as_chunks_mut::<4>();
        for four in fours {
            *four = (u32::from_ne_bytes(*four) ^ mask).to_ne_bytes();
        }
        for (byte, mask) in last.iter_mut().zip(self.mask) {
            *byte ^= mask;
        }
        self.mask.rotate_left(last.len());
    }
}
