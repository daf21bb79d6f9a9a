//! Conversion from and to the header map of the `http` crate.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ADDED, Headers};

/// Bytes of the fields of most requests.
const USUAL: usize = 576;

impl Headers {
    /// An empty set of fields with room for those of a map and for the fields that a gateway adds.
    fn for_map(map: &HeaderMap) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(USUAL + ADDED);
        fields.lines.reserve(map.len());
        fields
    }
}

impl From<&HeaderMap> for Headers {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::for_map(map);
        for (name, value) in map {
            fields.append(name, value);
        }
        fields
    }
}

impl From<Headers> for HeaderMap {
    fn from(mut fields: Headers) -> Self {
        let mut map = Self::with_capacity(fields.lines.len());
        let text = Bytes::from(std::mem::take(&mut fields.text));
        for line in std::mem::take(&mut fields.lines) {
            let value = line.value as usize..line.value as usize + line.value_length as usize;
            // Name and value were checked when they were added.
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(line.name(&text)), HeaderValue::from_maybe_shared(text.slice(value)))
            {
                map.append(name, value);
            }
        }
        map
    }
}
