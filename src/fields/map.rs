//! Fields as the libraries have them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ADDED, Fields};

/// Bytes of the fields that most requests have.
const USUAL: usize = 576;

impl Fields {
    /// No fields, and room for those of a map and for what a gateway adds to them.
    fn for_map(map: &HeaderMap) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(USUAL + ADDED);
        fields.lines.reserve(map.len());
        fields
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::for_map(map);
        for (name, value) in map {
            fields.append(name, value);
        }
        fields
    }
}

impl From<Fields> for HeaderMap {
    fn from(mut fields: Fields) -> Self {
        let mut map = Self::with_capacity(fields.lines.len());
        let text = Bytes::from(std::mem::take(&mut fields.text));
        for line in std::mem::take(&mut fields.lines) {
            let value = line.value as usize..line.value as usize + line.value_length as usize;
            // Both were checked when they were written.
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(line.name(&text)), HeaderValue::from_maybe_shared(text.slice(value)))
            {
                map.append(name, value);
            }
        }
        map
    }
}
