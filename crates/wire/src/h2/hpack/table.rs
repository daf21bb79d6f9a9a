//! The static and the dynamic table (RFC 7541 §2.3).

use std::collections::VecDeque;

use super::error::HpackError;

/// The default of SETTINGS_HEADER_TABLE_SIZE, in bytes (RFC 9113 §6.5.2).
pub const DEFAULT_TABLE_SIZE: usize = 4096;
/// The overhead of a field in bytes (RFC 7541 §4.1).
pub(super) const OVERHEAD: usize = 32;
/// The smallest allocation for the bytes of the fields.
const LEAST: usize = 256;

/// The static table (RFC 7541 appendix A); the first entry has index 1.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The dynamic table: the fields that were added last, up to a size. Nothing is allocated before the first one.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    /// The newest first.
    lines: VecDeque<Line>,
    /// The bytes of the fields, the oldest first, preceded by those of evicted fields.
    bytes: Vec<u8>,
    /// The number of bytes of evicted fields.
    gone: usize,
    /// The size as the RFC defines it (§4.1), at most `limit`.
    size: usize,
    limit: usize,
}

/// The position of a field in the bytes: its name, followed by its value.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: usize,
    name: u32,
    value: u32,
}

impl Line {
    fn len(self) -> usize {
        self.name as usize + self.value as usize
    }
}

impl Dynamic {
    /// An empty table of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Sets the size limit and evicts the oldest fields above it.
    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(0);
    }

    /// Name and value of the field with this index in the static or dynamic table.
    #[inline]
    pub(super) fn line(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        if let Some((name, value)) = STATIC.get(index.wrapping_sub(1)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        // Index 0 wraps around and is not found.
        let line = self.lines.get(index.wrapping_sub(STATIC.len() + 1)).ok_or(HpackError)?;
        Ok(self.bytes[line.at..line.at + line.len()].split_at(line.name as usize))
    }

    /// Adds a field and evicts the oldest ones. A field that is larger than the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let length = name.len() + value.len();
        self.evict(length + OVERHEAD);
        let (Ok(name_length), Ok(value_length)) = (u32::try_from(name.len()), u32::try_from(value.len()))
        else {
            return;
        };
        if length + OVERHEAD > self.limit {
            return;
        }
        self.make_room(length);
        self.lines.push_front(Line { at: self.bytes.len(), name: name_length, value: value_length });
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += length + OVERHEAD;
    }

    /// Evicts the oldest fields until there is room for `wanted` bytes, or none is left.
    fn evict(&mut self, wanted: usize) {
        while self.size + wanted > self.limit
            && let Some(line) = self.lines.pop_back()
        {
            self.size -= line.len() + OVERHEAD;
            self.gone += line.len();
        }
        if self.lines.is_empty() {
            self.bytes.clear();
            self.gone = 0;
        }
    }

    /// Makes room for `length` more bytes. The remaining bytes are moved only if at least as many were evicted, so each byte is
    /// moved at most once per added byte, and the allocation stays below twice the size of the table.
    fn make_room(&mut self, length: usize) {
        if self.bytes.len() + length <= self.bytes.capacity() {
            return;
        }
        if self.gone >= self.bytes.len() - self.gone {
            self.bytes.drain(..self.gone);
            for line in &mut self.lines {
                line.at -= self.gone;
            }
            self.gone = 0;
        }
        let wanted = self.bytes.len() + length;
        if wanted > self.bytes.capacity() {
            self.bytes.reserve_exact(wanted.next_power_of_two().max(LEAST) - self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Fields stay intact through insertions and evictions, and the allocation stays close to the size.
        #[test]
        fn fields_stay_intact_in_bounded_memory(
            limit in 32_usize..2000,
            lines in prop::collection::vec((any::<u8>(), 0_usize..30, 0_usize..300), 0..400),
        ) {
            let mut table = Dynamic::new(limit);
            let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for (byte, name, value) in lines {
                let line = (vec![byte; name], vec![!byte; value]);
                table.insert(&line.0, &line.1);
                kept.insert(0, line);
                let mut size = 0;
                kept.retain(|(name, value)| {
                    size += name.len() + value.len() + OVERHEAD;
                    size <= limit
                });
                for (at, (name, value)) in kept.iter().enumerate() {
                    prop_assert_eq!(table.line(62 + at), Ok((&name[..], &value[..])));
                }
                prop_assert_eq!(table.line(62 + kept.len()), Err(HpackError));
                prop_assert!(table.bytes.capacity() <= (2 * limit).next_power_of_two().max(LEAST));
            }
        }
    }

    #[test]
    fn nothing_is_allocated_before_the_first_field() {
        let table = Dynamic::new(4096);
        assert_eq!((table.bytes.capacity(), table.lines.capacity()), (0, 0));
    }
}
